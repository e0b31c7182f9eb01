"""Make the data directory of this release, for `test_upgrade` of later ones: python -m tests.release

Do this once for each release, when its version is set, and never again: what a release has written stays as it is.
"""

import gzip
import io
import tarfile
import tempfile
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import odradek
from tests.release.contents import (
    ABORTED,
    CODECS,
    COMMITTED,
    COMPACTED,
    GROUP,
    OFFSETS,
    PLAIN,
    RECORDS,
    RETENTION_MS,
    TRANSACTIONAL,
    value_of,
)
from tests.support import running_broker

DIRECTORIES = Path(__file__).parent / "directories"
SETTINGS = {
    "offsets_topic_num_partitions": "2",
    "transaction_state_log_num_partitions": "2",
    "log_index_size_max_bytes": "4096",
}


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch, running_broker(Path(scratch), **SETTINGS) as broker:
        write(broker.bootstrap)
        assert broker.stop() == 0
        target = DIRECTORIES / f"{odradek.__version__}.tar.gz"
        target.parent.mkdir(exist_ok=True)
        pack(broker.data_dir, target)
        print(f"{target}: {target.stat().st_size:,} bytes")


def write(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [
        NewTopic(PLAIN, 2, config={"retention.ms": str(RETENTION_MS)}),
        NewTopic(COMPACTED, 1, config={"cleanup.policy": "compact"}),
        NewTopic(TRANSACTIONAL, 1),
    ]
    for created in admin.create_topics(topics).values():
        created.result(30)
    for codec in CODECS:
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 50})
        for number in range(RECORDS):
            headers = [("codec", codec.encode())]
            producer.produce(PLAIN, value_of(codec, number), f"{number}", number % 2, headers=headers)
        assert producer.flush(30) == 0
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(RECORDS):
        producer.produce(COMPACTED, value_of("idempotent", number), f"key-{number % 5}")
    assert producer.flush(30) == 0
    write_transactions(bootstrap)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    positions = [TopicPartition(PLAIN, partition, offset) for partition, offset in OFFSETS.items()]
    consumer.commit(offsets=positions, asynchronous=False)
    consumer.close()


def write_transactions(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "upgrade"})
    producer.init_transactions(30)
    for value, commits in ((COMMITTED, True), (ABORTED, False)):
        producer.begin_transaction()
        producer.produce(TRANSACTIONAL, value)
        producer.flush(30)
        producer.commit_transaction(30) if commits else producer.abort_transaction(30)


def pack(directory: Path, target: Path) -> None:
    """Without lock files; sorted, and without times and owners, so that it is small and says nothing of its maker."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        for path in sorted(directory.rglob("*")):
            if path.name == ".lock":
                continue
            entry = archive.gettarinfo(path, str(path.relative_to(directory)))
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            entry.mtime = 0
            with path.open("rb") if path.is_file() else io.BytesIO() as data:
                archive.addfile(entry, data if path.is_file() else None)
    with target.open("wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=0) as compressed:
        compressed.write(raw.getvalue())


if __name__ == "__main__":
    main()
