"""Kafka's quotas, as pure cores: how much clients may ask of a node. Time is an argument.

    keys       the quotas that there are, and what each may be set for
    limits     which limit applies to a user and a client id: the most specific one that is set
    windows    a rate over sampled windows, and for how long a client over its limit has to wait
    bucket     a token bucket, for changes of the metadata (KIP-599)
    meters     what is kept for each client that a quota applies to: its rate, or its token bucket

`serving.quotas` applies them to requests, `controller.mutations` to changes of the metadata, and `net.address_rates` to
new connections. The limits are in the metadata (`MetadataImage.quotas`); nothing here knows where they come from.

Not obvious: a limit of a default entity is not shared. With `--user-default` every user has a rate of its own; only the
kind of the entity says whether the client ids of a user share one.
"""
