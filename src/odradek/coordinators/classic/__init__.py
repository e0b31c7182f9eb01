"""Classic consumer groups: one of the members, the leader, assigns partitions; the coordinator manages the generations.

Read `group` (the state and its legal moves), then `rebalance` (from one generation to the next), then
`join` and `members` (what the requests do).
"""
