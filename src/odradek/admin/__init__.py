"""Say what a cluster is and act on it, without output: for the command line, Kafka's scripts, a web console and
tests. Functions take an `Access` and return dataclasses; they print nothing and exit nothing. A failure is an
`AdminError`, whose message is one line for a user; `Refused` has the broker's error code.

How a cluster is asked:

    access           where a cluster is, and with which settings it is reached; kept connections
    client_names     those settings by Java's names and by librdkafka's: one table for both directions
    failures         what cannot be done, in one line
    requests         a request to one broker, to any broker, to the coordinator of a group
    capabilities     which APIs the cluster serves
    librdkafka       producers and consumers that have reached the cluster
    watching         who hears of work that takes a while

What it has:

    places           partitions by name; internal topics
    metadata         brokers, topics, leaders
    overview         all of it in a few numbers
    status           what is wrong with it; `tolerance`: how many nodes it may lose
    topics           offsets, sizes and settings of topics; create, alter, delete; delete records
    offsets          where logs start and end, and what groups have committed
    offset_reset     a plan of new offsets for a group
    groups           members and lag; delete
    transactions     list, describe, find those that hang, abort
    settings         of topics, brokers and groups; `resources`: what they are called; `setting_names`: mistyped ones
    quorum           voters and observers of the metadata quorum; `voters`: who should vote
    produce_cause    why a produce was not acknowledged
    message_filter   which messages are wanted; `message_text`: messages as text and back

What moves:

    layout                   the brokers and what each of them keeps
    reassignment_plan        pure: where replicas should go
    reassignment_files       the same as Kafka's JSON
    reassignment_requests    begin, list and cancel moves; elect leaders
    reassignment_run         carry a plan out, with a `throttle`
    growth, removal          a cluster that gets brokers, or loses one

Modules that send requests are slow to import (a tenth of a second), because of the messages. So a command imports them
in the function that needs them; `access`, `failures`, `places`, `resources` and `librdkafka` are light.
"""
