"""A bookstore that sells for one simulated hour, and writes every event to a topic. `make demo` plays it.

- `catalog`: the books
- `backends`: security, order processing and book information; what they do becomes events
- `ledger`: what the store knows it did, kept in plain Python; the pipeline's results are held against it
- `customers`: what people do in a store, one generator for each of them
- `hour`: runs all of them on one simulated clock: the same seed gives the same events, byte for byte
- `playing`: sends the events to the brokers
- `losing`: a broker that dies meanwhile, and comes back
- `results`: reads back what the pipeline wrote
- `audit`: holds the results against the ledger
- `drawing`: charts and tables in plain text
- `processes`: the brokers and the commands, started and ended for certain
- `screen`: how the demo writes to its terminal
- `progress`: what a running pipeline tells, on that screen

Everything above `playing` is pure: no clock, no sockets, chance is an argument.
"""
