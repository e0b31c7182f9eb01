"""Request frames that are almost right, thrown at a broker: none may crash it, grow it, or hold up others.

    python -m tools.fuzz --frames 100000 --seed 1

Frames begin as valid ones: the messages of every API in every version served, filled at random, with names and ids
that the broker knows, so that most of them get past the door. Most are then damaged: bits flipped, numbers replaced by
extreme ones, bytes cut out, put in or borrowed from another frame. They go straight into the dispatcher of a broker in
this process, where every exception, every line of its log that speaks of an error, and every response that cannot be
read back is a finding. Between them a healthy client produces, fetches and commits, and must be served.

A part of the frames can also be sent to a broker in a process of its own, over sockets (`--bootstrap`).
"""
