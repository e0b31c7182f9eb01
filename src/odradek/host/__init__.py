"""The world outside a node, as one parameter.

    interface   clocks, timers, threads, the compacting process, free space; the event loop that watches sockets
    real        this machine; `simulated`: virtual time
    log_lines   which node a log line comes from; `repeats`: lines that are counted instead of repeated
    metrics     what a node counts

Not obvious:

- Counting is an addition (`host.metrics`): code that counts often keeps the counter object. Values that have to be
  looked up or added up are computed when `/metrics` is read (docs/METRICS.md).
- Times: records carry the time of day; waiting uses the monotonic clock; group sessions use a clock that started at
  the time of day and never jumps (`Host.steady_ms`).
"""
