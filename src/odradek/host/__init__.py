"""The world outside a node: `interface` says what it is, `real` is this machine, `simulated` has virtual time."""
