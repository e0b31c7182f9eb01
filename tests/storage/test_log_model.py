"""A log against a plain list of records, under whatever order of operations hypothesis comes up with."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from odradek.errors import KafkaError
from odradek.storage.config import LogConfig
from odradek.storage.disk.shortage import CannotOpen
from odradek.storage.disk.simulated import SimulatedFiles
from odradek.storage.log.log import Log
from odradek.storage.log.retention import delete_old_segments
from tests.storage.batches import NOW_MS, append, make_batch, new_log, reopen, values_of

D = "/data/topic-0"


class LogMachine(RuleBasedStateMachine):
    """`batches` is the oracle: base offset and values of each batch that should be there."""

    log: Log
    files: SimulatedFiles

    @initialize(segment_bytes=st.integers(200, 2000), interval=st.sampled_from([0, 100, 4096]))
    def begin(self, segment_bytes: int, interval: int) -> None:
        self.config = LogConfig(
            segment_bytes=segment_bytes, index_interval_bytes=interval, retention_ms=-1, compact=True
        )
        self.files = SimulatedFiles()
        self.files.make_directory(D)
        self.files.sync_directory("/")
        self.files.sync_directory("/data")
        self.log = new_log(self.files, D, self.config)
        self.batches: list[tuple[int, list[bytes]]] = []
        self.start = self.end = 0
        self.epoch = 0
        self.serial = 0

    def next_values(self, count: int) -> list[bytes]:
        self.serial += 1
        return [b"%d.%d" % (self.serial, number) for number in range(count)]

    @rule(count=st.integers(1, 5), time=st.integers(0, 100))
    def append(self, count: int, time: int) -> None:
        values = self.next_values(count)
        appended = append(self.log, make_batch(values, timestamps=NOW_MS + time), self.epoch)
        assert appended.base_offset == self.end
        self.batches.append((self.end, values))
        self.end += count

    @rule(gaps=st.lists(st.integers(0, 3), min_size=1, max_size=4))
    def follow(self, gaps: list[int]) -> None:
        fetched = b""
        for gap in gaps:
            values = self.next_values(2)
            base = self.end + gap
            fetched += make_batch(values, base_offset=base, leader_epoch=self.epoch)
            self.batches.append((base, values))
            self.end = base + 2
        assert self.log.append_as_follower(fetched, NOW_MS) == len(fetched)

    @rule()
    def new_epoch(self) -> None:
        self.epoch += 1

    @rule()
    def roll(self) -> None:
        self.log.roll(NOW_MS)

    @rule()
    def sync(self) -> None:
        self.log.sync()
        assert self.log.synced_offset == self.end

    @rule(part=st.floats(0, 1))
    def truncate(self, part: float) -> None:
        offset = round(part * self.end)
        self.log.truncate_to(offset)
        if offset < self.end:
            self.batches = [(base, values) for base, values in self.batches if base + len(values) <= offset]
            self.end = self.log.end_offset
            assert self.end <= offset
            self.start = min(self.start, self.end)

    @rule(part=st.floats(0, 1))
    def delete_records(self, part: float) -> None:
        offset = self.start + round(part * (self.end - self.start))
        if offset > self.log.synced_offset:
            self.log.sync()  # as the store does: no log start is on disk before the records below it
        assert self.log.delete_records_before(offset) == offset
        self.start = offset
        delete_old_segments(self.log, NOW_MS, self.end)

    @contextmanager
    def few_descriptors(self, count: int) -> Iterator[None]:
        """So many files can be opened, and then none: what was begun is refused, or done in full."""
        self.files.run_out_of_descriptors(count)
        try:
            yield
        except (KafkaError, CannotOpen):
            pass
        finally:
            self.files.free_descriptors()
        assert not self.log.failed

    @rule(opens=st.integers(0, 12), count=st.integers(1, 5))
    def append_when_short(self, opens: int, count: int) -> None:
        values = self.next_values(count)
        with self.few_descriptors(opens):
            append(self.log, make_batch(values), self.epoch)
            self.batches.append((self.end, values))
            self.end += count

    @rule(opens=st.integers(0, 12), part=st.floats(0, 1))
    def truncate_when_short(self, opens: int, part: float) -> None:
        offset = max(round(part * self.end), self.log.segments[0].base_offset)
        with self.few_descriptors(opens):
            self.log.truncate_to(offset)
        if self.log.end_offset < self.end:
            self.batches = [(base, values) for base, values in self.batches if base + len(values) <= offset]
            self.end = self.log.end_offset
            self.start = min(self.start, self.end)

    @rule(opens=st.integers(0, 12))
    def roll_when_short(self, opens: int) -> None:
        with self.few_descriptors(opens):
            self.log.roll(NOW_MS)

    @rule(opens=st.integers(0, 12))
    def write_all_when_short(self, opens: int) -> None:
        with self.few_descriptors(opens):
            self.log.sync()
            self.log.persist_state()

    @rule(jump=st.integers(0, 50))
    def start_over(self, jump: int) -> None:
        self.log.truncate_fully_and_start_at(self.end + jump)
        self.start = self.end = self.end + jump
        self.batches.clear()

    @rule()
    def restart_cleanly(self) -> None:
        self.log.persist_state()
        self.reopen(clean=True)
        self.end = self.log.end_offset
        assert self.end >= self.last_end(self.batches)

    @rule()
    def restart_after_a_kill(self) -> None:
        self.reopen(clean=False)
        self.end = self.log.end_offset
        assert self.end >= self.last_end(self.batches)

    @precondition(lambda self: self.end > 0)
    @rule(seed=st.integers(0, 1000))
    def lose_power(self, seed: int) -> None:
        synced = [batch for batch in self.batches if batch[0] < self.log.synced_offset]
        self.files.crash(random.Random(seed) if seed else None)
        self.reopen(clean=False)
        self.log.sync()
        assert self.last_end(synced) <= self.log.end_offset <= self.end
        self.end = self.log.end_offset
        self.batches = [(base, values) for base, values in self.batches if base + len(values) <= self.end]

    def reopen(self, *, clean: bool) -> None:
        point = self.log.synced_offset
        self.log = reopen(
            self.files, D, self.config, clean=clean, recovery_point=point, log_start_offset=self.start
        )

    def last_end(self, batches: list[tuple[int, list[bytes]]]) -> int:
        """Return where the last batch ends: an end within a gap, after a cut, is not on disk."""
        return max([self.start, *(base + len(values) for base, values in batches)])

    @invariant()
    def the_log_is_what_the_list_says(self) -> None:
        log = self.log
        assert (log.log_start_offset, log.end_offset) == (self.start, self.end)
        expected = [
            (base + slot, value) for base, values in self.batches for slot, value in enumerate(values)
        ]
        assert values_of(log) == [record for record in expected if record[0] >= self.start]

    @invariant()
    def the_parts_agree(self) -> None:
        log = self.log
        bases = [segment.base_offset for segment in log.segments]
        assert bases == sorted(set(bases))
        assert log.active is log.segments[-1]
        assert log.synced_offset <= log.end_offset
        entries = log.leader_epochs.entries
        assert entries == sorted(entries)
        names = {entry.name for entry in self.files.list(D) if entry.name.endswith(".log")}
        assert names == {f"{base:020d}.log" for base in bases}


LogMachine.TestCase.settings = settings(max_examples=120, stateful_step_count=30, deadline=None)
TestLogAgainstAList = LogMachine.TestCase
