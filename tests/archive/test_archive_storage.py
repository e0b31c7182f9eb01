"""Archives in object storage (moto's server) that refuses some requests, or all of them for a while."""

from collections.abc import Iterator

import pytest

from odradek.archive.layout import Range
from odradek.archive.location import Location
from odradek.archive.rows import read_range
from odradek.archive.tables import Table
from tests.pipeline.stores import BUCKET, Store, running_store

ARCHIVE = f"s3://{BUCKET}/archive"


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with running_store() as store:
        yield store


@pytest.fixture
def storage(store: Store) -> dict[str, str]:
    names = {"endpoint": "aws_endpoint_url"}
    access = {names.get(name, f"aws_{name}"): value for name, value in store.access.items()}
    return {**access, "aws_allow_http": "true"}


def archived(topic: str, storage: dict[str, str]) -> list[bytes]:
    location = Location.of(ARCHIVE, topic, storage)
    snapshot = Table.open(location).snapshot()
    batches = read_range(location, snapshot, Range(0, 0, snapshot.ends[0]))
    return [value for one in batches for value in one.column("value").to_pylist()]


def test_storage_that_refuses_for_a_while(odradek, topics, store, storage):
    topic = topics.create(partitions=1)

    def archive():
        settings = [word for name, value in storage.items() for word in ("--storage", f"{name}={value}")]
        return odradek("archive", topic, "--to", ARCHIVE, *settings, "--storage", "max_retries=3")

    for number, part in enumerate(("no path", ".parquet", "_delta_log")):
        store.refuse(part, 2)
        topics.fill(topic, [b"%d" % number])
        done = archive()
        assert done.returncode == 0, done.stderr
    store.refuse(".parquet", 1000)
    topics.fill(topic, [b"3"])
    done = archive()
    assert done.returncode == 1 and "\x1b" not in done.stderr
    assert len(done.stderr.splitlines()) == 1 and "503 Service Unavailable" in done.stderr
    assert done.stderr.endswith("Nothing of it counts as archived: run it again once that is mended\n")
    store.go_away()
    done = archive()
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1
    store.come_back()
    assert archive().returncode == 0
    assert archived(topic, storage) == [b"0", b"1", b"2", b"3"]
