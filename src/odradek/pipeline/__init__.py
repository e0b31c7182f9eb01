"""Data pipelines on Spark, from one TOML file.

What a file says (no Spark needed):

    errors        one message with file, line and what to do
    document      TOML with the line of every key
    variables     `${VAR}`, from the environment or a file; secrets are never literal
    definition    the file as dataclasses; `reading` makes them, with `tables` for one table
    examples      what `init` writes, and schemas inferred from a topic's records
    checkpoint    where a pipeline keeps what it must not forget, and to whom that belongs

What becomes of it (Spark):

    session       one quiet Spark for all pipelines of a process
    decoding      bytes to rows, and why a record is no row; `avro` for one format, `reasons` for the why
    sources, transforms, sinks
    weaving       all of it put together, for one query; streaming or batch
    state         what Spark's plan says about state, and whether it is bounded
    checking, planning, testing, previewing, status
    dead_letters, isolation, rejecting, replay
    queries       one of Spark's queries, from weaving to a clean stop
    running       the supervisor; `failures` judges, `progress`, `display` and `metrics` tell how it goes

Nothing here knows a broker from inside: topics are read and written through `odradek.spark`, and looked at
through `odradek.client` (`topics`).
"""
