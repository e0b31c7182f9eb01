"""The command line: `odradek up` runs a broker, everything else is a client of any Kafka cluster."""
