"""Making a log where that fails half-way, and where something is in its place already."""

import pytest

from odradek.storage.config import LogConfig
from odradek.storage.disk.files import DirectoryEntry
from tests.storage.batches import NOW_MS, TOPIC_ID, append_values
from tests.storage.test_store import ONE, D, create, disk, names, open_store


@pytest.mark.parametrize("room", range(0, 60, 10))
def test_a_log_that_cannot_be_made_leaves_nothing(room: int) -> None:
    files = disk()
    store = open_store(files)
    before = names(files)
    files.free_bytes = room
    try:
        create(store)
    except OSError:
        assert names(files) == before
        assert store.get(ONE) is None
    files.free_bytes = None
    if store.get(ONE) is None:
        create(store)
    append_values(store.logs[ONE], b"a")


def test_records_that_are_in_its_place_are_not_overwritten() -> None:
    """Whosever they are: the metadata knows of no such log."""
    files = disk()
    store = open_store(files)
    append_values(create(store), b"a")
    store.close({ONE: 1})
    content = files.read(f"{D}/one-0/00000000000000000000.log")
    store = open_store(files)
    del store.logs[ONE]  # as if it had been overlooked
    with pytest.raises(OSError, match="records of another log"):
        store.create(ONE, TOPIC_ID, LogConfig(), NOW_MS)
    assert files.read(f"{D}/one-0/00000000000000000000.log") == content
    assert DirectoryEntry("one-0", True, 0) in files.list(D)
