"""The transaction coordinator, pure: `coordinator` is the one of a partition of `__transaction_state`.

`states` has the legal moves, `transaction` the state of one transactional id, `records` how it is written.
`initializing`, `adding` and `ending` decide what a request makes of it; `listing` describes it; `effects` is what the
coordinator asks of the outside world, and what it hears from there; `refusals` are the error responses.
"""
