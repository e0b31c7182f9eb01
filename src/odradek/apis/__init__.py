"""Facts about each API besides what it does: one row for each, in one table.

    row       the columns: versions, listeners, how it is handled, where its items are, which access it needs
    table     the rows; ApiVersions and docs/COMPATIBILITY.md are made from them
    items     one algorithm over a row: refuse, divide, merge, cut and look through requests and responses by item
    messages  the message types of an API, imported when they are first needed

Nothing here handles a request. `serving` does, and everything below it that needs a fact about an API looks here.

Not obvious:

- A request that fails as a whole still gets a response (`apis.items`): if its API has no error code for the whole,
  every topic, partition, group or resource that it names gets the code. Only a violation of the protocol closes a
  connection.
"""
