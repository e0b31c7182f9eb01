"""Data pipelines on Spark, from one TOML file.

Reading the file (no Spark needed):

    errors        one message with file, line and what to do
    document      TOML with the line of every key
    variables     `${VAR}`, from the environment or a file; secrets are never literal
    definition    the file as dataclasses; `reading` builds them, with `tables` for one table
    examples      what `init` writes, and schemas inferred from a topic's records
    checkpoint    where a pipeline keeps its state, and which pipeline it belongs to

Running it (Spark):

    session       one quiet Spark for all pipelines of a process
    decoding      bytes to rows, and bad records; `avro` for one format, `reasons` says why a record is bad
    sources, transforms, sinks
    weaving       all of it assembled for one query, streaming or batch
    state         what Spark's plan says about state, and whether it is bounded
    checking, planning, testing, previewing, status
    dead_letters, isolation, rejecting, replay
    queries       one of Spark's queries, from weaving to a clean stop
    running       the supervisor; `failures` judges; `progress`, `display`, `live_view` and `metrics` report progress

Nothing here depends on broker internals: topics are read and written through `odradek.spark`, and inspected
through `odradek.client` (`topics`).
"""
