"""The leader epochs of a log."""

import pytest

from odradek.storage.disk.simulated import SimulatedFiles
from odradek.storage.log.epochs import LeaderEpochs


@pytest.fixture
def epochs() -> LeaderEpochs:
    files = SimulatedFiles()
    files.make_directory("/d")
    epochs = LeaderEpochs(files, "/d/leader-epoch-checkpoint")
    for epoch, start_offset in ((1, 10), (3, 20), (4, 40)):
        epochs.assign(epoch, start_offset)
    return epochs


def test_an_epoch_is_assigned_once(epochs: LeaderEpochs) -> None:
    epochs.assign(4, 45)
    assert epochs.entries == [(1, 10), (3, 20), (4, 40)]


def test_an_epoch_may_turn_out_to_have_begun_earlier(epochs: LeaderEpochs) -> None:
    epochs.assign(4, 15)
    assert epochs.entries == [(1, 10), (4, 15)]


def test_a_new_entry_drops_what_conflicts(epochs: LeaderEpochs) -> None:
    epochs.assign(2, 25)
    assert epochs.entries == [(1, 10), (2, 25)]


@pytest.mark.parametrize(
    ("asked", "end"),
    [
        (-2, (-1, -1)),
        (-1, (-1, -1)),
        (0, (0, 10)),
        (1, (1, 20)),
        (2, (1, 20)),
        (3, (3, 40)),
        (4, (4, 55)),
        (5, (-1, -1)),
    ],
)
def test_where_an_epoch_ended(epochs: LeaderEpochs, asked: int, end: tuple[int, int]) -> None:
    assert epochs.end_offset_for(asked, 55) == end


def test_without_epochs_no_offset_is_found() -> None:
    epochs = LeaderEpochs(SimulatedFiles(), "/x")
    assert epochs.end_offset_for(0, 5) == (-1, -1)
    assert epochs.latest == epochs.epoch_for_offset(0) == -1


@pytest.mark.parametrize(("offset", "epoch"), [(9, -1), (10, 1), (19, 1), (20, 3), (100, 4)])
def test_the_epoch_of_an_offset(epochs: LeaderEpochs, offset: int, epoch: int) -> None:
    assert epochs.epoch_for_offset(offset) == epoch


@pytest.mark.parametrize(("end", "kept"), [(50, 3), (41, 3), (40, 2), (20, 1), (11, 1), (10, 0), (0, 0)])
def test_cutting_the_end(epochs: LeaderEpochs, end: int, kept: int) -> None:
    entries = epochs.entries
    epochs.truncate_from_end(end)
    assert epochs.entries == entries[:kept]


@pytest.mark.parametrize(
    ("start", "entries"),
    [
        (5, [(1, 10), (3, 20), (4, 40)]),
        (10, [(1, 10), (3, 20), (4, 40)]),
        (15, [(1, 15), (3, 20), (4, 40)]),
        (20, [(3, 20), (4, 40)]),
        (99, [(4, 99)]),
    ],
)
def test_cutting_the_start(epochs: LeaderEpochs, start: int, entries: list[tuple[int, int]]) -> None:
    epochs.truncate_from_start(start)
    assert epochs.entries == entries


def test_entries_are_written_when_asked_and_read_again() -> None:
    files = SimulatedFiles()
    files.make_directory("/d")
    epochs = LeaderEpochs(files, "/d/e")
    epochs.assign(7, 0)
    assert epochs.is_unsaved
    epochs.persist()
    assert not epochs.is_unsaved
    assert files.read("/d/e") == b"0\n1\n7 0\n"
    syncs = files.syncs
    epochs.persist()
    assert files.syncs == syncs
    again = LeaderEpochs(files, "/d/e")
    again.load()
    assert again.entries == [(7, 0)]
    assert not again.is_unsaved
    again.truncate_from_end(0)
    assert not again.is_unsaved, "whoever opens a log cuts its epochs to fit"
    assert again.persisted_epoch != again.latest, "but an append writes them first"


def test_a_leader_enters_its_epoch_without_a_write() -> None:
    files = SimulatedFiles()
    files.make_directory("/d")
    epochs = LeaderEpochs(files, "/d/e")
    epochs.assign(1, 0)
    epochs.persist()
    syncs = files.syncs
    epochs.begin(4, 10)
    assert (files.syncs, epochs.is_unsaved) == (syncs, False)
    assert epochs.end_offset_for(1, 10) == epochs.end_offset_for(3, 10) == (1, 10)
    assert epochs.end_offset_for(4, 10) == (4, 10)
    assert epochs.persisted_epoch != 4
    epochs.persist()
    assert (files.read("/d/e"), epochs.persisted_epoch) == (b"0\n2\n1 0\n4 10\n", 4)


def test_an_epoch_without_data_gives_way_to_the_next() -> None:
    epochs = LeaderEpochs(SimulatedFiles(), "/x")
    for epoch in range(3):
        epochs.begin(epoch, 0)
        assert epochs.entries == [(epoch, 0)]
    epochs.begin(2, 5)
    assert epochs.entries == [(2, 0)]
    epochs.begin(3, 5)
    assert epochs.entries == [(2, 0), (3, 5)]
    assert epochs.end_offset_for(0, 5) == (0, 0)
