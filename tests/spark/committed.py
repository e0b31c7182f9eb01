"""A topic as a reader of committed data sees it, by our own client; and a checkpoint as a crash leaves it."""

from contextlib import closing
from pathlib import Path

from odradek.client.cluster import EARLIEST, LATEST, Cluster
from odradek.client.fetching import RangeReader
from odradek.client.settings import ClientSettings, FetchSettings
from odradek.records.record import Record, decode_batch


def committed_records(bootstrap: str, topic: str) -> list[Record]:
    host, _, port = bootstrap.split(",")[0].partition(":")
    with closing(Cluster(ClientSettings(bootstrap=((host, int(port)),)))) as cluster:
        return committed_of(cluster, topic)


def committed_of(cluster: Cluster, topic: str) -> list[Record]:
    """Everything below the high watermark, however long it takes until that is stable."""
    found = []
    for partition in cluster.partitions_of([topic]):
        start = cluster.list_offsets({partition: EARLIEST})[partition]
        end = cluster.list_offsets({partition: LATEST})[partition]
        settings = FetchSettings(read_committed=True, max_wait_ms=50)
        reader = RangeReader(cluster, partition, start, end, settings, 300)
        while reader.position < end:
            for batch in reader.fetch().batches:
                found += decode_batch(batch.data, batch.header)
    return found


def committed_values(bootstrap: str, topic: str) -> list[str]:
    return sorted((one.value or b"").decode() for one in committed_records(bootstrap, topic))


def forget_last_commit(checkpoint: Path) -> int:
    """Leaves a checkpoint as if the driver had been killed between EndTxn and Spark's commit."""
    last = max(int(path.name) for path in (checkpoint / "commits").glob("[0-9]*"))
    (checkpoint / "commits" / str(last)).unlink()
    (checkpoint / "commits" / f".{last}.crc").unlink(missing_ok=True)
    return last
