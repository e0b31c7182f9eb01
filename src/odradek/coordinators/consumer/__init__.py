"""Consumer groups of the KIP-848 protocol: the coordinator assigns partitions and moves members there step by step.

Read in this order: `assignment` (a set of partitions), `assignors` and `balance` (the target assignment),
`member` (how one member gets from its current partitions to its target), `topics` (names, expressions and
how they change), `group` (the state, changed by replay alone), `draft` (a change while it is being decided),
`heartbeat` (what a request changes), `classic_members` and `migration` (members that use the classic
protocol), `plugin` (how it becomes part of the group coordinator).
"""
