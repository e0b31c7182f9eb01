"""Topics of one cluster, copied to another, each record exactly once. docs/decisions/0013 has the crash points.

A partition is copied by transactions on the target: the records of a fetch, and a position that says where to go on. So
the state of a mirror is in what it writes, and a process that is killed leaves nothing behind.

    names         which topics are copied, and what a copy is called; loops
    position      a position: what it says, its bytes, and which of the old ones are kept
    translation   offsets of the source to offsets of the copy, and back
    reframing     batches of the source as batches for the target, mostly unopened
    protocol      pure: what to do next with one partition
    file          the TOML file
    clients       the connections to both clusters
    positions     the topic with the positions
    copying       carries out the protocol's steps
    sharing       pure: who copies which partition
    membership    a member of the group that shares the work
    rights        what the mirror's user needs, in the words of a refusal
    upkeep        topics, partitions and settings of the target kept in step
    groups        offsets of groups, translated
    lag           how far a mirror is behind
    work          a process's partitions, a thread for each
    running       a process: its member, its partitions, its progress
"""
