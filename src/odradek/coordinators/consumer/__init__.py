"""Consumer groups of the KIP-848 protocol: the coordinator says who reads what, and walks each member there.

Read in this order: `assignment` (a set of partitions), `assignors` and `balance` (who should hold what),
`member` (how one member gets from what it holds to what it should hold), `topics` (names, expressions and
how they change), `group` (the state, changed by replay alone), `draft` (a change while it is being decided),
`heartbeat` (what a request changes), `classic_members` and `migration` (members that speak the classic
protocol), `plugin` (how it all becomes a part of the group coordinator).
"""
