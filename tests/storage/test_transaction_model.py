"""Transactions in a log against a plain list of batches: what is open, what was aborted, what `read_committed` shows.

Through rolls, truncations, deletions, clean stops and crashes, in whatever order a seed comes up with."""

import random
from typing import NamedTuple

import pytest

from odradek.records.control import build_marker_batch
from odradek.records.record import decode_batch
from odradek.records.walk import whole_batches
from odradek.storage.config import LogConfig
from odradek.storage.log.log import Log
from odradek.storage.log.retention import delete_old_segments
from odradek.storage.segments.indexes import AbortedTransaction
from tests.storage.batches import NOW_MS, append, durable_disk, make_batch, new_log, reopen

D = "/data/topic-0"
PRODUCERS = (1, 2, 3)
COMMIT, ABORT, PLAIN, TRANSACTIONAL = "commit", "abort", "plain", "transactional"


class Stored(NamedTuple):
    base_offset: int
    last_offset: int
    producer: int
    kind: str
    values: tuple[bytes, ...] = ()
    last_sequence: int = -1


class Oracle:
    """An oracle that goes by the batches alone."""

    def __init__(self, batches: list[Stored]) -> None:
        self.open: dict[int, int] = {}  # producer -> first offset
        self.aborted: list[AbortedTransaction] = []
        hidden: set[Stored] = set()
        mine: dict[int, list[Stored]] = {}
        for batch in batches:
            if batch.kind is TRANSACTIONAL:
                self.open.setdefault(batch.producer, batch.base_offset)
                mine.setdefault(batch.producer, []).append(batch)
            elif batch.kind in (COMMIT, ABORT):
                first = self.open.pop(batch.producer, None)
                data = mine.pop(batch.producer, [])
                if first is not None and batch.kind is ABORT:
                    stable = min(self.open.values(), default=batch.last_offset + 1)
                    self.aborted.append(AbortedTransaction(batch.producer, first, batch.last_offset, stable))
                    hidden.update(data)
        end = batches[-1].last_offset + 1 if batches else 0
        self.stable_offset = min(self.open.values(), default=end)
        self.visible = [
            (batch.base_offset + at, value)
            for batch in batches
            if batch not in hidden and batch.last_offset < self.stable_offset
            for at, value in enumerate(batch.values)
        ]

    def aborted_between(self, start: int, end: int) -> list[AbortedTransaction]:
        found = [one for one in self.aborted if one.last_offset >= start and one.first_offset < end]
        return sorted(found, key=lambda one: one.first_offset)


class World:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.config = LogConfig(
            segment_bytes=self.rng.choice([300, 700, 5000]),
            index_interval_bytes=self.rng.choice([0, 150, 4096]),
            retention_ms=-1,
        )
        self.files = durable_disk(D)
        self.log = new_log(self.files, D, self.config)
        self.batches: list[Stored] = []
        self.start = 0
        self.serial = 0

    # --- what happens ---

    def step(self) -> None:
        happenings = [self.write] * 8 + [self.end] * 5 + [self.roll, self.truncate, self.restart, self.crash]
        self.rng.choice([*happenings, self.delete])()

    def write(self) -> None:
        producer = self.rng.choice(PRODUCERS)
        kind = TRANSACTIONAL if producer in self.oracle.open else self.rng.choice([PLAIN, TRANSACTIONAL])
        self.serial += 1
        values = tuple(b"%d.%d" % (self.serial, at) for at in range(self.rng.randint(1, 4)))
        sequence = self.last_sequence(producer) + 1
        batch = make_batch(
            values,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=kind is TRANSACTIONAL,
        )
        base, last, *_ = append(self.log, batch)
        self.batches.append(Stored(base, last, producer, kind, values, sequence + len(values) - 1))

    def last_sequence(self, producer: int) -> int:
        state = self.log.producers.by_id.get(producer)
        known = [
            batch.last_sequence
            for batch in self.batches
            if batch.producer == producer and batch.values and batch.last_offset >= self.start
        ]
        if known:
            assert state is not None and state.batches[-1].last_sequence == known[-1]
        return state.batches[-1].last_sequence if state is not None and state.batches else -1

    def end(self) -> None:
        producer, is_commit = self.rng.choice(PRODUCERS), self.rng.random() < 0.5
        marker = build_marker_batch(
            commit=is_commit, coordinator_epoch=0, producer_id=producer, producer_epoch=0, timestamp=NOW_MS
        )
        base, last, *_ = append(self.log, marker, check_sequence=False)
        self.batches.append(Stored(base, last, producer, COMMIT if is_commit else ABORT))

    def roll(self) -> None:
        self.log.roll(NOW_MS)

    def truncate(self) -> None:
        lowest = max(self.start, self.log.end_offset - 10)
        offset = self.rng.randint(lowest, self.log.end_offset)
        self.log.truncate_to(offset)
        while self.batches and self.batches[-1].last_offset >= offset:
            self.batches.pop()
        if self.batches:
            assert self.log.end_offset == self.batches[-1].last_offset + 1
        self.start = min(self.start, self.log.end_offset)

    def delete(self) -> None:
        """No further than a transaction is open: what the log cannot read again, it cannot know again."""
        limit = min(self.log.end_offset, self.oracle.stable_offset)
        if limit > self.start:
            self.start = self.log.delete_records_before(self.rng.randint(self.start, limit))
            delete_old_segments(self.log, NOW_MS, self.log.end_offset)

    def restart(self) -> None:
        self.log.persist_state()
        self.reopen(clean=True)

    def crash(self) -> None:
        self.log.sync()
        self.reopen(clean=False)

    def reopen(self, clean: bool) -> None:
        self.log.close()
        point = 0 if clean else self.rng.randint(0, self.log.end_offset)
        self.log = reopen(
            self.files, D, self.config, clean=clean, recovery_point=point, log_start_offset=self.start
        )

    # --- what must be true ---

    @property
    def oracle(self) -> Oracle:
        return Oracle(self.batches)

    def check(self) -> None:
        log, oracle = self.log, self.oracle
        assert log.end_offset == (self.batches[-1].last_offset + 1 if self.batches else log.end_offset)
        assert {producer: first for first, producer in log.producers.open_transactions.items()} == oracle.open
        assert list(log.producers.open_transactions) == sorted(oracle.open.values())
        assert (
            log.last_stable_offset(log.end_offset) == max(oracle.stable_offset, self.start)
            or not self.batches
        )
        for _ in range(3):
            start = self.rng.randint(self.start, log.end_offset)
            end = self.rng.randint(start, log.end_offset)
            assert log.aborted_transactions(start, end) == oracle.aborted_between(start, end)
        offset = self.rng.randint(self.start, log.end_offset)
        seen = [(at, value) for at, value in oracle.visible if at >= offset]
        assert consumed(log, offset, self.rng.choice([1, 200, 1000])) == seen


def consumed(log: Log, offset: int, max_bytes: int) -> list[tuple[int, bytes | None]]:
    """Return what a `read_committed` consumer shows from an offset on. Each fetch tells it all that it has to leave
    out.
    """
    values: list[tuple[int, bytes | None]] = []
    position, stable = offset, log.last_stable_offset(log.end_offset)
    while (piece := log.read(position, max_bytes, stable)) is not None:
        begins = [
            (one.first_offset, one.producer_id) for one in log.aborted_transactions(position, stable, piece)
        ]
        assert begins == sorted(begins)
        aborted: set[int] = set()
        data = piece.file.read_at(piece.position, piece.length)
        for header, batch in whole_batches(memoryview(data)):
            while begins and begins[0][0] <= header.last_offset:
                aborted.add(begins.pop(0)[1])
            if header.is_control:
                aborted.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborted):
                values += [(record.offset, record.value) for record in decode_batch(batch, header)]
            position = header.next_offset
    return [(at, value) for at, value in values if at >= offset]


@pytest.mark.parametrize("seed", range(40))
def test_transactions_are_what_the_batches_say(seed: int) -> None:
    world = World(seed)
    for _ in range(120):
        world.step()
        world.check()
