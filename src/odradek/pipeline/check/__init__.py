"""Tools for authors before a run: check, plan, test, preview."""
