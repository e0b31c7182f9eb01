"""The three indexes: their bytes, and their searches against a plain list."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.storage.disk.simulated import SimulatedFiles
from odradek.storage.segments.indexes import (
    ABORTED_ENTRY,
    OFFSET_ENTRY,
    PENDING_BYTES,
    TIME_ENTRY,
    AbortedTransaction,
    Index,
    TransactionIndex,
    find_aborted,
)


def disk() -> SimulatedFiles:
    files = SimulatedFiles()
    files.make_directory("/d")
    return files


def test_the_bytes_of_an_offset_index() -> None:
    files = disk()
    index = Index(files.create("/d/index"), OFFSET_ENTRY, 0)
    index.append(5, 4200)
    index.append(11, 8400)
    index.write_pending()
    assert files.read("/d/index") == bytes.fromhex("00000005 00001068 0000000b 000020d0")


def test_the_bytes_of_a_time_index() -> None:
    files = disk()
    index = Index(files.create("/d/index"), TIME_ENTRY, 0)
    index.append(1_700_000_000_000, 7)
    index.write_pending()
    assert files.read("/d/index") == bytes.fromhex("0000018bcfe56800 00000007")


def test_the_bytes_of_a_transaction_index() -> None:
    files = disk()
    index = TransactionIndex(files, "/d/index", None)
    index.append(AbortedTransaction(1, 2, 3, 4))
    assert files.read("/d/index") == bytes.fromhex(
        "0000" + "".join(f"{number:016x}" for number in (1, 2, 3, 4))
    )
    assert ABORTED_ENTRY.size == 34


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), max_size=400),
    st.integers(0, 400),
    st.lists(st.integers(-1, 10_000), min_size=1, max_size=20),
)
def test_floor_is_the_last_entry_not_above(
    steps: list[tuple[int, int]], written: int, targets: list[int]
) -> None:
    index = Index(disk().create("/d/index"), OFFSET_ENTRY, 0)
    entries = []
    first = second = 0
    for slot, (one, other) in enumerate(steps):
        if slot == written:
            index.write_pending()
        first, second = first + one, second + other
        index.append(first, second)
        entries.append((first, second))
    assert list(index.entries(0, len(index))) == entries
    for field in (0, 1):
        for target in targets:
            expected = sum(1 for entry in entries if entry[field] <= target) - 1
            assert index.floor(field, target) == expected


def test_entries_are_written_some_at_a_time() -> None:
    files = disk()
    index = Index(files.create("/d/index"), OFFSET_ENTRY, 0)
    for number in range(PENDING_BYTES // OFFSET_ENTRY.size):
        assert files.read("/d/index") == b""
        index.append(number, number)
    assert len(files.read("/d/index")) == PENDING_BYTES


def test_a_full_disk_leaves_entries_in_memory() -> None:
    files = disk()
    index = Index(files.create("/d/index"), OFFSET_ENTRY, 0)
    files.free_bytes = 100
    for number in range(1000):
        index.append(number, number)
    assert list(index.entries(0, 1000)) == [(number, number) for number in range(1000)]
    with pytest.raises(OSError, match="no space"):
        index.write_pending()
    files.free_bytes = None
    index.write_pending()
    assert len(files.read("/d/index")) == 8000


@pytest.mark.parametrize("kept", [0, 1, 3, 5, 6])
def test_truncating_over_what_is_written_and_what_is_not(kept: int) -> None:
    files = disk()
    index = Index(files.create("/d/index"), OFFSET_ENTRY, 0)
    for number in range(6):
        index.append(number, number)
        if number == 2:
            index.write_pending()
    index.truncate(kept)
    assert [first for first, _ in index.entries(0, len(index))] == list(range(kept))
    index.append(77, 77)
    index.write_pending()
    assert len(files.read("/d/index")) == 8 * (kept + 1)
    assert index.last == (77, 77)


def test_a_torn_entry_at_the_end_of_a_file_is_overwritten() -> None:
    files = disk()
    file = files.create("/d/index")
    file.write_at(0, OFFSET_ENTRY.pack(1, 10) + b"\0\0\0")
    index = Index(file, OFFSET_ENTRY, file.size())
    assert len(index) == 1
    index.append(2, 20)
    index.write_pending()
    assert files.read("/d/index") == OFFSET_ENTRY.pack(1, 10) + OFFSET_ENTRY.pack(2, 20)


def test_aborted_transactions_of_a_range() -> None:
    files = disk()
    older = TransactionIndex(files, "/d/1", None)
    newer = TransactionIndex(files, "/d/2", None)
    late_start = AbortedTransaction(1, 20, 30, 10)
    early_start = AbortedTransaction(2, 10, 40, 41)
    behind = AbortedTransaction(3, 50, 60, 61)
    older.append(late_start)
    newer.append(early_start)
    newer.append(behind)
    assert find_aborted([older, newer], 0, 100) == [early_start, late_start, behind]
    assert find_aborted([older, newer], 0, 15) == [early_start]
    assert find_aborted([older, newer], 31, 45) == [early_start]
    assert find_aborted([older, newer], 41, 50) == []


def test_a_transaction_index_forgets_what_was_cut_off() -> None:
    files = disk()
    index = TransactionIndex(files, "/d/1", None)
    entries = [
        AbortedTransaction(number, number * 10, number * 10 + 5, number * 10 + 6) for number in range(3)
    ]
    for entry in entries:
        index.append(entry)
    index.truncate_to(15)
    assert index.entries() == entries[:1]
    assert TransactionIndex(files, "/d/1", 34).entries() == entries[:1]
