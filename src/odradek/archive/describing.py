"""A topic as a cluster shows it now."""

from odradek.archive.planning import Log, Topic
from odradek.client.cluster import EARLIEST, LATEST, Cluster


def describe(cluster: Cluster, name: str) -> Topic:
    """Starts come last: what was there when the ends were asked for may be deleted meanwhile, and is then missed."""
    topic_id = cluster.topic_ids([name])[name]
    partitions = cluster.partitions_of([name])
    stable = cluster.list_offsets(dict.fromkeys(partitions, LATEST), read_committed=True)
    ends = cluster.list_offsets(dict.fromkeys(partitions, LATEST))
    starts = cluster.list_offsets(dict.fromkeys(partitions, EARLIEST))
    logs = {one.partition: Log(starts[one], stable[one], ends[one]) for one in partitions}
    return Topic(name, topic_id, logs)
