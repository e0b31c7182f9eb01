"""Numbered batches to topics, each of them exactly once.

A sink writes batch N in one transaction together with a record in the ledger, a compacted topic that says which batch
of a sink was written last. Whoever runs batch N again asks the ledger. docs/decisions/0008 has the crash points.

    record      a record of the ledger: what it says, and its bytes
    protocol    pure: what to do next with a batch, by what the ledger and the cluster said
    compacted   a compacted topic of ours: created, read, listed
    topic       the ledger as such a topic, and how it is reset
    writer      carries out the protocol's steps on a cluster
    counts      another topic: what the requirements of pipelines have counted, for whoever shows that

Nothing here knows Spark: whoever has numbered batches can use it.
"""
