"""Data pipelines on Spark, from one TOML file.

The rooms, from the lowest up (tests/pipeline/test_pipeline_rooms.py holds imports to this order):

    file/         TOML to dataclasses; no Spark. `errors` (one message with file, line and what to do), `document` (TOML
                  with the line of every key), `variables`, `tables`, `definition` (the dataclasses), `sources`,
                  `sinks` and `reading`, which build them, `examples` for `init`
    checkpoint    where a pipeline keeps its state, and which pipeline it belongs to
    session       one quiet Spark for all pipelines of a process
    rows/         `decoding`: bytes to rows, and bad records; `avro_output`: rows to Avro; `reasons` says why a record
                  is bad; `transforms`: SQL and functions of the user's; `expectations`: what these require
    kinds/        a module for each kind of source and sink, behind one interface; its `__init__` is a map
    check/        `weaving` assembles all stages for one query, streaming or batch; `state` asks Spark's plan about
                  state; `sharing` decides which sinks share a query; `checking`, `planning`, `testing` and `previewing`
                  are the commands for authors
    run/          `queries`: one of Spark's queries, from weaving to a clean stop; `shared_query`: one for several
                  `outputs`; `running`: the supervisor; `failures` judges; `isolation` finds records that fail;
                  `progress`, `display`, `live_view` and `metrics` report; `explaining`, `status` and `replay` work
                  beside a run

Nothing here depends on broker internals: topics are read and written through `odradek.spark`, and inspected
through `odradek.client` (`kinds.topics`).
"""
