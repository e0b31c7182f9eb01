"""The world outside a node: `interface` defines it, `real` is this machine, `simulated` has virtual time."""
