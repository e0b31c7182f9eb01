"""A blocking Kafka client that hands out record batches as they came: what Spark's workers use.

Ordinary clients hand out records one by one, and a Python object per record is what makes Python slow. Here a
fetch answers with the bytes of the log, and a produce takes bytes that are ready for it; whoever knows how to
decode a million records at once does so.

    settings      what a client needs to know, with secrets that are never printed
    properties    the same from the names that the Java client gives it
    tls, sasl     the two ways to prove who one is
    deadline      how long to ask again, and what is said meanwhile
    connection    one socket: requests and answers in order
    cluster       brokers, leaders, offsets, groups; retries until a deadline
    fetching      one partition from an offset to an offset, one fetch ahead
    aborted       which batches belong to transactions that were aborted
    producing     batches to their leaders, in order, each once

There is no group membership, no transaction and no asyncio: who needs those has confluent-kafka.
"""
