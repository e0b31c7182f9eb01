"""A blocking Kafka client for Spark's workers, which returns record batches as they are in the log.

Ordinary clients return records one by one, and a Python object per record is what makes Python slow. Here a fetch
returns the bytes of the log, and a produce takes encoded bytes; the caller decodes or encodes a million records at
once.

    settings      what a client needs to know, with secrets that are never printed
    properties    the same from the names that the Java client gives it
    tls, sasl     the two ways to authenticate
    deadline      how long to retry, and what is logged meanwhile
    connection    one socket: requests and responses in order
    cluster       brokers, leaders, offsets, groups; retries until a deadline
    fetching      one partition from an offset to an offset, one fetch ahead
    aborted       which batches belong to transactions that were aborted
    producing     batches to their leaders, in order, each once
    transactions  the same in transactions
    transaction_steps  what protocols of transactions have in common, without input or output

There is no group membership and no asyncio: use confluent-kafka for those.
"""
