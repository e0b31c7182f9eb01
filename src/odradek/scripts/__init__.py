"""Kafka's own scripts, without a JVM: the flags of Kafka 4.3's, and output that its readers can parse.

    options      the option parser, with the rules of the one that Kafka uses
    running      from the command line of a script to its exit status
    install      writes the scripts into a directory
    table        the tables that some of them print

and a module for each script: `topics` is `kafka-topics.sh`, and so on. What a script does is in `admin`. A flag that is
not supported is refused by its name, never ignored.
"""
