"""What authors ask before a run: check, plan, test, preview."""
