"""Compaction of `__consumer_offsets` does not change what it says: a coordinator that is loaded from the compacted log
knows the same offsets, committed and pending, as one that has seen every record."""

from pathlib import Path
from random import Random

import pytest

from odradek.coordinators.group import GroupSettings
from odradek.coordinators.groups import GroupCoordinator
from odradek.coordinators.journal import decode
from odradek.coordinators.pending_offsets import Place
from odradek.coordinators.records import OffsetCommitValue, encode
from odradek.coordinators.runtime import Shard
from odradek.storage.compaction.job import LastBatches
from tests.storage.test_compaction import NOW_MS, RETENTION_MS, TestLog

PRODUCERS = (1, 2, 3)
PLACES = [Place("g", "t", partition) for partition in range(3)]
State = dict[Place, tuple[int | None, tuple[int, ...], bool]]


class History:
    """A history of what is written, in any order."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.rng = Random(seed)
        self.log = TestLog(directory)
        self.now_ms = NOW_MS
        self.offset = 0
        self.last_records: dict[int, LastBatches] = {}
        self.is_compacted = False  # since somebody looked

    def go_on(self) -> None:
        chance = self.rng.random()
        if chance < 0.3:
            self.commit(None)
        elif chance < 0.6:
            self.commit(self.rng.choice(PRODUCERS))
        elif chance < 0.75:
            self.end(self.rng.choice(PRODUCERS))
        elif chance < 0.8:
            self.log.append(encode(self.rng.choice(PLACES).key, None))
        elif chance < 0.9:
            self.roll()
        else:
            self.now_ms += self.rng.choice((0, RETENTION_MS + 1))
            self.log.compact(self.now_ms, dict(self.last_records))
            self.is_compacted = True

    def roll(self) -> None:
        if self.log.segments[-1] != self.log.next_offset:
            self.log.roll()

    def commit(self, producer_id: int | None) -> None:
        self.offset += 1
        places = self.rng.sample(PLACES, self.rng.randint(1, len(PLACES)))
        records = [encode(place.key, OffsetCommitValue(self.offset)) for place in places]
        if producer_id is None:
            self.log.append(*records)
            return
        base_offset = self.log.append(*records, producer_id=producer_id, producer_epoch=0, transactional=True)
        self.last_records[producer_id] = LastBatches((base_offset + len(records) - 1,), 0)

    def end(self, producer_id: int) -> None:
        commit = self.rng.random() < 0.5
        self.log.end_transaction(producer_id, commit=commit)
        self.last_records.setdefault(producer_id, LastBatches((), 0))


def new_shard() -> Shard:
    return Shard(GroupCoordinator(GroupSettings(), Random(1)))


def loaded(log: TestLog) -> Shard:
    shard = new_shard()
    for batch, header in log.batches():
        shard.replay(decode(header, batch))
    return shard


def known(shard: Shard) -> State:
    """Returns, for each place, what is committed, what may be, and whether anything is pending."""
    coordinator = shard.coordinator
    assert isinstance(coordinator, GroupCoordinator)
    offsets = coordinator.offsets
    state: State = {}
    for place in PLACES:
        committed = offsets.of(place.group).get(place.topic, {}).get(place.partition)
        pending = offsets._pending
        state[place] = (
            committed.offset if committed is not None else None,
            tuple(value.offset for value in pending.values(place)),
            place in pending,
        )
    return state


@pytest.mark.parametrize("seed", range(40))
def test_compaction_changes_nothing(tmp_path: Path, seed: int) -> None:
    history, witness, seen = History(tmp_path, seed), new_shard(), 0
    for step in range(80):
        history.is_compacted = False
        history.go_on()
        if history.log.next_offset > seen:
            for batch, header in history.log.batches():
                if header.base_offset >= seen:
                    witness.replay(decode(header, batch))
            seen = history.log.next_offset
        if history.is_compacted:
            assert known(loaded(history.log)) == known(witness), f"step {step}"
    assert known(loaded(history.log)) == known(witness)
