"""Classic consumer groups: the members' own leader assigns, the coordinator keeps the generations apart.

Read `group` (the state and its legal moves), then `rebalance` (from one generation to the next), then
`join` and `members` (what the requests do).
"""
