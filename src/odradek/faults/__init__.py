"""Faults on demand, for brokers that `odradek.testing` starts.

Such a broker is another program, `python -m odradek.faults`: the same node, with a wrapper around its request handler
(`requests`), its transports (`connections`, `wires`), its network and its disk (`storage.disk.lossy`), all assembled
in `broker`. One of a cluster formats its own directory (`founding`). The faults that are armed are a `plan`; they come
over the socket that is the process's standard input (`control`), so only the process that started the broker can ask
for any. `odradek up` and `odradek broker` import nothing of this package.
"""
