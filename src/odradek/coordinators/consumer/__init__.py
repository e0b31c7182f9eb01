"""Consumer groups of the KIP-848 protocol: the coordinator computes who reads what and walks each member
there.

Read in this order: `assignment` (what a member may hold), `assignors` and `balance` (who should hold what),
`member` (how one member gets from what it holds to what it should hold), `group` (the state, changed by
replay alone), `heartbeat` (what a request changes), `classic_members` and `migration` (members that still
speak the classic protocol).
"""
