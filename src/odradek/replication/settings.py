"""The settings of a topic that its replicas obey: one object for all of them, replaced when a setting changes."""

from collections.abc import Collection
from typing import NamedTuple

from odradek.records.validation import DEFAULT_RULES, TopicRules


class ReplicaSettings(NamedTuple):
    rules: TopicRules = DEFAULT_RULES  # what Produce enforces
    min_insync_replicas: int = 1
    sync_commit: bool = True  # a record counts as stored once it is on disk, not once it is written
    # The partitions for which this broker's part in replication is throttled (`replication.quota`).
    throttled_as_leader: Collection[int] = ()
    throttled_as_follower: Collection[int] = ()
