"""Opening logs after crashes and damage: what was synced is there, what is damaged is cut, nothing is made up."""

import random
from functools import partial

import pytest

from odradek.errors import DamagedData
from odradek.records.batch import HEADER_SIZE
from odradek.records.control import build_marker_batch
from odradek.storage.config import LogConfig
from odradek.storage.disk.simulated import SimulatedFiles
from odradek.storage.log.log import Log
from odradek.storage.segments.segment import CLEANED_SUFFIX, Segment
from tests.storage.batches import (
    NOW_MS,
    append,
    append_values,
    cut_power_within,
    durable_disk,
    make_batch,
    new_log,
    reopen,
    values_of,
)

D = "/data/topic-0"
LOG = f"{D}/00000000000000000000.log"


def replace(files: SimulatedFiles, path: str, data: bytes) -> None:
    files.create(path).write_at(0, data)


def three_batches(files: SimulatedFiles, config: LogConfig | None = None) -> tuple[bytes, list[int]]:
    """A log of three batches of two records in epochs 1, 2 and 2: its bytes, and where its batches end."""
    log = new_log(files, D, config)
    ends = [0]
    for number in range(3):
        append_values(log, b"%d" % number, b"second", epoch=min(number + 1, 2))
        ends.append(log.active.size)
    return files.read(LOG), ends


def test_a_log_cut_at_any_byte_keeps_its_whole_batches() -> None:
    files = durable_disk(D)
    data, ends = three_batches(files)
    for size in range(len(data) + 1):
        replace(files, LOG, data[:size])
        log = reopen(files, D)
        whole = sum(1 for end in ends[1:] if end <= size)
        assert log.end_offset == 2 * whole
        assert [offset for offset, _ in values_of(log)] == list(range(2 * whole))
        assert len(files.read(LOG)) == ends[whole]
        assert log.leader_epochs.entries == [(1, 0), (2, 2)][: min(whole, 2)]
        append_values(log, b"next", epoch=3)
        assert values_of(log)[-1] == (2 * whole, b"next")
        replace(files, f"{D}/leader-epoch-checkpoint", b"0\n2\n1 0\n2 2\n")


@pytest.mark.parametrize("seed", range(20))
def test_a_crash_while_damaged_segments_are_dropped_leaves_no_hole(seed: int) -> None:
    """The part that was cut must never be followed by what came after it: that would look like a lawful gap."""
    config = LogConfig(segment_bytes=300)
    for steps in range(100):
        files = durable_disk(D)
        log = new_log(files, D, config)
        for number in range(6):
            append_values(log, b"%d" % number * 100)
        log.persist_state()
        log.sync()
        damaged = files.file(log.segments[1].log.path)
        damaged.write_at(100, b"damage")
        damaged.sync()
        is_cut_short = cut_power_within(files, partial(reopen, files, D, config), steps, seed)
        offsets = [offset for offset, _ in values_of(reopen(files, D, config))]
        assert offsets == list(range(len(offsets)))
        if not is_cut_short:
            return
    pytest.fail("there are more steps than were tried")


def test_garbage_behind_a_log_is_cut() -> None:
    rng = random.Random(1)
    files = durable_disk(D)
    data, _ = three_batches(files)
    for tail in (b"\0" * 500, rng.randbytes(500), data[:70], data):
        replace(files, LOG, data + tail)
        log = reopen(files, D)
        assert log.end_offset == 6
        assert files.read(LOG) == data


@pytest.mark.parametrize("damaged", [0, 1, 2])
def test_a_flipped_bit_anywhere_in_a_batch_cuts_the_log_before_it(damaged: int) -> None:
    """Also in the 21 bytes that the CRC does not cover, with one exception: if the base offset of the last batch
    became larger, the batch looks like one behind a gap, which is lawful, and is kept."""
    files = durable_disk(D)
    data, ends = three_batches(files)
    start, end = ends[damaged], ends[damaged + 1]
    for position in range(start, end):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[position] ^= 1 << bit
            replace(files, LOG, flipped)
            replace(files, f"{D}/leader-epoch-checkpoint", b"0\n2\n1 0\n2 2\n")
            log = reopen(files, D)
            jumps_to = int.from_bytes(flipped[start : start + 8], "big", signed=True)
            if damaged == 2 and 2 * damaged < jumps_to < 2**31 - 1:
                assert log.end_offset == jumps_to + 2
                assert files.read(LOG) == flipped
            else:
                assert log.end_offset == 2 * damaged, (position - start, bit)
                assert files.read(LOG) == data[:start]


def test_a_batch_that_goes_back_is_cut() -> None:
    files = durable_disk(D)
    config = LogConfig(compact=True)
    append_values(new_log(files, D, config), b"once")
    data = files.read(LOG)
    replace(files, LOG, data + data)
    assert values_of(reopen(files, D, config)) == [(0, b"once")]


def test_below_the_recovery_point_only_headers_are_read() -> None:
    files = durable_disk(D)
    data, ends = three_batches(files)
    flipped = bytearray(data)
    flipped[HEADER_SIZE + 3] ^= 1
    flipped[ends[2] + HEADER_SIZE + 3] ^= 1
    replace(files, LOG, flipped)
    log = reopen(files, D, recovery_point=2)
    assert log.end_offset == 4
    replace(files, LOG, flipped)
    assert reopen(files, D, recovery_point=0).end_offset == 0


def test_a_clean_start_reads_no_batch() -> None:
    files = durable_disk(D)
    data, _ = three_batches(files)
    flipped = bytearray(data)
    flipped[HEADER_SIZE + 3] ^= 1
    replace(files, LOG, flipped)
    assert reopen(files, D, clean=True).end_offset == 6


def test_segments_behind_a_damaged_one_are_dropped() -> None:
    files = durable_disk(D)
    config = LogConfig(segment_bytes=300)
    log = new_log(files, D, config)
    for number in range(8):
        append_values(log, b"%d" % number * 100)
    bases = [segment.base_offset for segment in log.segments]
    assert len(bases) > 3
    path = f"{D}/{bases[1]:020d}.log"
    replace(files, path, files.read(path)[:-1])
    again = reopen(files, D, config)
    assert [segment.base_offset for segment in again.segments] == bases[:2]
    assert [offset for offset, _ in values_of(again)] == list(range(again.end_offset))
    assert {int(entry.name[:20]) for entry in files.list(D) if entry.name.endswith(".log")} == set(bases[:2])


@pytest.mark.parametrize("compact", [False, True])
@pytest.mark.parametrize("recovery_point", [0, 6, 10])
def test_a_gap_is_never_damage(compact: bool, recovery_point: int) -> None:
    """Compaction leaves gaps, and the topic's policy may have changed since."""
    files = durable_disk(D)
    log = new_log(files, D, LogConfig(compact=True))
    for offset in (0, 5, 9):
        log.append_as_follower(make_batch([b"x"], base_offset=offset), NOW_MS)
    again = reopen(files, D, LogConfig(compact=compact), recovery_point=recovery_point)
    assert [offset for offset, _ in values_of(again)] == [0, 5, 9]
    assert again.end_offset == 10


def test_a_gap_at_the_end_of_every_segment_survives_recovery() -> None:
    files = durable_disk(D)
    config = LogConfig(segment_bytes=200)
    log = new_log(files, D, config)
    offsets = [0, 1, 7, 8, 20, 21, 33, 40]
    for offset in offsets:
        log.append_as_follower(make_batch([b"x" * 30], base_offset=offset), NOW_MS)
    assert len(log.segments) == 4
    assert [offset for offset, _ in values_of(reopen(files, D, config))] == offsets


def test_rubbish_behind_a_gap_does_not_discredit_the_batch_before_it() -> None:
    """A header alone proves nothing: only a batch with a valid CRC can contradict another one."""
    files = durable_disk(D)
    log = new_log(files, D)
    for offset in (0, 5):
        log.append_as_follower(make_batch([b"x"], base_offset=offset), NOW_MS)
    data = files.read(LOG)
    rubbish = bytearray(data[: len(data) // 2])
    rubbish[-1] ^= 1
    replace(files, LOG, data + rubbish)
    assert [offset for offset, _ in values_of(reopen(files, D))] == [0, 5]


def test_a_batch_that_reaches_into_the_next_segment_is_cut() -> None:
    """Its base offset is damaged: a segment ends before the next one begins."""
    files = durable_disk(D)
    config = LogConfig(segment_bytes=300)
    log = new_log(files, D, config)
    for number in range(8):
        append_values(log, b"%d" % number * 100)
    path, (*_, (position, header)) = log.segments[0].log.path, log.segments[0].batches()
    flipped = bytearray(files.read(path))
    flipped[position + 7] |= 64
    replace(files, path, flipped)
    again = reopen(files, D, config)
    assert again.end_offset == header.base_offset
    assert len(again.segments) == 1


def test_recovery_is_written_down() -> None:
    files = durable_disk(D)
    three_batches(files)
    log = reopen(files, D)
    assert log.synced_offset == 0
    log.sync()
    assert log.synced_offset == 6
    files.crash()
    assert reopen(files, D).end_offset == 6


def test_an_empty_directory_is_an_empty_log() -> None:
    files = durable_disk(D)
    for clean in (True, False):
        log = reopen(files, D, clean=clean)
        assert (log.log_start_offset, log.end_offset) == (0, 0)
    assert append_values(log, b"x").base_offset == 0


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_start_beyond_the_end_removes_no_record(clean: bool) -> None:
    """It is the checkpoint of another log of this name, or part of this one is lost: the files are what counts."""
    files = durable_disk(D)
    three_batches(files)
    log = reopen(files, D, clean=clean, log_start_offset=100)
    assert (log.log_start_offset, log.end_offset) == (0, 6)
    assert len(values_of(log)) == 6
    assert append_values(log, b"x", epoch=2).base_offset == 6


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_without_records_begins_at_its_log_start(clean: bool) -> None:
    files = durable_disk(D)
    new_log(files, D)
    for _ in range(2):
        log = reopen(files, D, clean=clean, log_start_offset=100)
        assert (log.log_start_offset, log.end_offset) == (100, 100)
    assert append_values(log, b"x").base_offset == 100


def test_a_recovery_point_beyond_the_end_is_not_trusted() -> None:
    """It is not this log's, so nothing is known to be synced: a torn batch that looks whole is cut."""
    files = durable_disk(D)
    data, ends = three_batches(files)
    torn = data[: ends[2] + HEADER_SIZE] + bytes(ends[3] - ends[2] - HEADER_SIZE)
    replace(files, LOG, torn)
    assert reopen(files, D, recovery_point=400).end_offset == 4
    assert files.read(LOG) == data[: ends[2]]


def test_the_indexes_of_a_recovered_segment_are_those_that_were_written() -> None:
    files = durable_disk(D)
    config = LogConfig(index_interval_bytes=200, segment_bytes=3000)
    log = new_log(files, D, config)
    for number in range(50):
        append_values(log, b"%d" % number * 30, timestamp=NOW_MS + number)
    log.persist_state()
    names = [entry.name for entry in files.list(D) if "index" in entry.name]
    written = {name: files.read(f"{D}/{name}") for name in names}
    assert sum(map(len, written.values())) > 300
    for name in names:
        replace(files, f"{D}/{name}", b"rubbish!" * 3)
    reopen(files, D, config)
    assert {name: files.read(f"{D}/{name}") for name in names} == written


# Producers


def idempotent(sequence: int, *, transactional: bool = False) -> bytearray:
    return make_batch(
        [b"x"], producer_id=7, producer_epoch=0, base_sequence=sequence, transactional=transactional
    )


@pytest.mark.parametrize("clean", [True, False])
def test_producers_are_known_after_a_restart(clean: bool) -> None:
    files = durable_disk(D)
    config = LogConfig(segment_bytes=200)
    log = new_log(files, D, config)
    for sequence in range(6):
        append(log, idempotent(sequence))
    if clean:
        log.persist_state()
    again = reopen(files, D, config, clean=clean)
    assert append(again, idempotent(5)).duplicate
    assert append(again, idempotent(6)).base_offset == 6


def test_an_open_transaction_is_known_after_a_restart() -> None:
    files = durable_disk(D)
    log = new_log(files, D)
    append_values(log, b"plain")
    append(log, idempotent(0, transactional=True))
    log.persist_state()
    for clean in (True, False):
        again = reopen(files, D, clean=clean)
        assert again.last_stable_offset(2) == 1
    marker = build_marker_batch(
        commit=False, coordinator_epoch=0, producer_id=7, producer_epoch=0, timestamp=NOW_MS
    )
    append(again, marker, check_sequence=False)
    assert again.aborted_transactions(0, 9) == [(7, 1, 2, 3)]


@pytest.mark.parametrize("lost", [True, False])
def test_a_transaction_index_is_built_anew(lost: bool) -> None:
    files = durable_disk(D)
    log = new_log(files, D)
    append(log, idempotent(0, transactional=True))
    marker = build_marker_batch(
        commit=False, coordinator_epoch=0, producer_id=7, producer_epoch=0, timestamp=NOW_MS
    )
    append(log, marker, check_sequence=False)
    expected = log.aborted_transactions(0, 9)
    assert len(expected) == 1
    if lost:
        replace(files, f"{D}/00000000000000000000.txnindex", b"")
    assert reopen(files, D).aborted_transactions(0, 9) == expected


def test_a_damaged_snapshot_costs_a_replay_only() -> None:
    files = durable_disk(D)
    config = LogConfig(segment_bytes=200)
    log = new_log(files, D, config)
    for sequence in range(6):
        append(log, idempotent(sequence))
    log.persist_state()
    for offset in log._saved.snapshots.offsets[-2:]:
        replace(files, log._saved.snapshots.path(offset), b"damaged")
    again = reopen(files, D, config, clean=True)
    assert append(again, idempotent(6)).base_offset == 6
    assert append(again, idempotent(4)).duplicate


# A log that must be complete


def strict(files: SimulatedFiles, recovery_point: int = 0) -> Log:
    return reopen(files, D, recovery_point=recovery_point, strict=True)


def test_a_strict_opening_cuts_a_torn_last_batch() -> None:
    files = durable_disk(D)
    data, ends = three_batches(files)
    size = ends[3] - ends[2]
    for kept in range(size):
        for tail in (b"", bytes(size - kept)):
            torn = data[: ends[2] + kept] + tail
            if torn == data:
                continue
            replace(files, LOG, torn)
            log = strict(files, recovery_point=4)
            assert (log.end_offset, files.read(LOG)) == (4, data[: ends[2]])
            replace(files, f"{D}/leader-epoch-checkpoint", b"0\n2\n1 0\n2 2\n")


@pytest.mark.parametrize("damaged", [0, 1])
def test_a_strict_opening_refuses_a_flipped_bit_before_the_last_batch(damaged: int) -> None:
    files = durable_disk(D)
    data, ends = three_batches(files)
    for position in range(ends[damaged], ends[damaged + 1]):
        flipped = bytearray(data)
        flipped[position] ^= 1
        replace(files, LOG, flipped)
        with pytest.raises(DamagedData, match=f"{LOG} is damaged at byte {ends[damaged]}"):
            strict(files)
        assert files.read(LOG) == flipped


@pytest.mark.parametrize("recovery_point", [0, 6])
def test_a_strict_opening_refuses_a_damaged_last_batch_that_was_synced(recovery_point: int) -> None:
    files = durable_disk(D)
    data, ends = three_batches(files)
    flipped = bytearray(data)
    flipped[ends[2] + HEADER_SIZE] ^= 1
    replace(files, LOG, flipped)
    if recovery_point:
        with pytest.raises(DamagedData, match=f"damaged at byte {ends[2]}, which had been synced"):
            strict(files, recovery_point)
        assert files.read(LOG) == flipped
    else:
        assert strict(files).end_offset == 4


def test_a_strict_opening_refuses_a_flipped_offset_or_epoch_of_the_last_batch() -> None:
    """A torn batch has no valid CRC, unless the first bytes of its offset alone are missing, and zero."""
    files = durable_disk(D)
    data, ends = three_batches(files)
    for position in (0, 6, 7, 12, 15):
        flipped = bytearray(data)
        flipped[ends[2] + position] ^= 1
        replace(files, LOG, flipped)
        with pytest.raises(DamagedData, match="wrong offset or leader epoch"):
            strict(files)


def test_a_strict_opening_refuses_missing_records() -> None:
    files = durable_disk(D)
    data, ends = three_batches(files)
    replace(files, LOG, data[: ends[2]])
    with pytest.raises(DamagedData, match="ends at offset 4, but it was synced up to offset 6"):
        strict(files, recovery_point=6)
    assert strict(files, recovery_point=4).end_offset == 4
    files.remove(LOG)
    with pytest.raises(DamagedData, match="ends at offset 0"):
        strict(files, recovery_point=4)


def test_a_strict_opening_refuses_a_missing_segment() -> None:
    files = durable_disk(D)
    config = LogConfig(segment_bytes=300)
    log = new_log(files, D, config)
    for number in range(8):
        append_values(log, b"%d" % number * 100)
    third = log.segments[2]
    for missing in (log.segments[1], log.segments[0]):
        files.remove(missing.log.path)
        with pytest.raises(DamagedData, match=f"{third.log.path} begins at offset {third.base_offset}"):
            strict(files)


# Crashes


@pytest.mark.parametrize("seed", range(60))
def test_nothing_synced_is_lost_whenever_the_power_goes(seed: int) -> None:
    """Random work on a disk that forgets; each crash keeps a random part of what was not synced."""
    rng = random.Random(seed)
    files = durable_disk(D)
    config = LogConfig(segment_bytes=rng.choice([400, 1000, 5000]), index_interval_bytes=rng.choice([0, 300]))
    log = new_log(files, D, config)
    written: list[bytes] = []
    recovery_point = 0
    for step in range(60):
        choice = rng.random()
        if choice < 0.6:
            value = b"%d-%d" % (seed, step) * rng.randrange(1, 12)
            append_values(log, value, epoch=step // 20, timestamp=NOW_MS + step)
            written.append(value)
        elif choice < 0.8:
            log.sync()
        elif choice < 0.85:
            offset = rng.randrange(log.end_offset + 1)
            log.truncate_to(offset)
            del written[offset:]
            recovery_point = min(recovery_point, log.synced_offset)
        elif choice < 0.9:
            recovery_point = rng.randint(recovery_point, log.synced_offset)
        else:
            synced = log.synced_offset
            files.crash(rng if rng.random() < 0.8 else None)
            log = reopen(files, D, config, recovery_point=recovery_point)
            assert synced <= log.end_offset <= len(written)
            del written[log.end_offset :]
            log.sync()
        assert values_of(log) == list(enumerate(written))


def test_a_crash_at_every_sync_of_a_run() -> None:
    """The same run, cut short before its first, second, third … sync: what was acknowledged by then is there."""
    total = run_until_sync(None)[0].syncs
    assert total > 20
    for number in range(total):
        for rng in (None, random.Random(number)):
            files, acknowledged = run_until_sync(number, rng)
            log = reopen(files, D, RUN_CONFIG)
            values = [value for _, value in values_of(log)]
            assert values[: len(acknowledged)] == acknowledged
            assert values == RUN_VALUES[: len(values)]


RUN_CONFIG = LogConfig(segment_bytes=500)
RUN_VALUES = [b"%d" % number * 20 for number in range(20)]


class PowerLoss(Exception):
    pass


def run_until_sync(
    number: int | None, rng: random.Random | None = None
) -> tuple[SimulatedFiles, list[bytes]]:
    files = durable_disk(D)
    log = new_log(files, D, RUN_CONFIG)
    files.syncs = 0
    acknowledged: list[bytes] = []

    def lose_power() -> None:
        if number is not None and files.syncs > number:
            files.on_sync = None
            files.crash(rng)
            raise PowerLoss

    files.on_sync = lose_power
    try:
        for slot, value in enumerate(RUN_VALUES):
            append_values(log, value, epoch=slot // 6)
            if slot % 3 == 2:
                log.sync()
                acknowledged = RUN_VALUES[: slot + 1]
    except PowerLoss:
        pass
    files.on_sync = None
    return files, acknowledged


# Interrupted renames

LEFTOVERS = (".cleaned", ".swap", ".deleted")


def several_segments(files: SimulatedFiles, config: LogConfig) -> Log:
    log = new_log(files, D, config)
    for number in range(6):
        append_values(log, b"%d" % number * 100)
    log.persist_state()
    return log


def make_cleaned(files: SimulatedFiles, log: Log, config: LogConfig) -> Segment:
    """Make what a cleaner makes of the first two segments: one that has only their last batch."""
    old = log.segments[:2]
    cleaned = Segment.create(files, D, old[0].base_offset, config, NOW_MS, CLEANED_SUFFIX)
    *_, (position, header) = old[1].batches()
    cleaned.log.write_at(0, old[1].batch_bytes(position, header))
    cleaned.appended(0, header.size, header.last_offset, header.max_timestamp)
    cleaned.finish()
    return cleaned


def test_compacted_segments_take_the_place_of_others() -> None:
    files = durable_disk(D)
    config = LogConfig(segment_bytes=300, compact=True)
    log = several_segments(files, config)
    before = values_of(log)
    cut = log.segments[2].base_offset
    part = log.read(0, 1000, log.end_offset)
    cleaned = make_cleaned(files, log, config)
    log.replace_segments(log.segments[:2], [cleaned], NOW_MS)
    expected = before[cut - 1 :]
    assert values_of(log) == expected
    assert part is not None and len(part.file.read_at(part.position, part.length)) == part.length
    for clean in (False, True):
        assert values_of(reopen(files, D, config, clean=clean)) == expected


@pytest.mark.parametrize("seed", range(20))
def test_a_replacement_interrupted_at_any_moment_is_all_or_nothing(seed: int) -> None:
    """And so is its completion by the next start, interrupted as well."""
    config = LogConfig(segment_bytes=300, compact=True)
    outcomes = set()
    for steps in range(100):
        files = durable_disk(D)
        log = several_segments(files, config)
        log.sync()
        old_values = values_of(log)
        old = log.segments[:2]
        new_values = old_values[log.segments[2].base_offset - 1 :]
        cleaned = make_cleaned(files, log, config)
        is_cut_short = cut_power_within(
            files, partial(log.replace_segments, old, [cleaned], NOW_MS), steps, seed
        )
        cut_power_within(files, partial(reopen, files, D, config), random.Random(steps).randrange(20), seed)
        again = reopen(files, D, config)
        assert values_of(again) in (old_values, new_values)
        outcomes.add(len(values_of(again)) == len(new_values))
        assert not any(entry.name.endswith(LEFTOVERS) for entry in files.list(D))
        if not is_cut_short:
            assert outcomes == {True, False}
            return
    pytest.fail("there are more steps than were tried")


def test_leftovers_are_tidied_up() -> None:
    files = durable_disk(D)
    three_batches(files)
    for name in ("00000000000000000000.log.deleted", "00000000000000000007.log.cleaned"):
        files.create(f"{D}/{name}")
    replace(files, f"{D}/00000000000000000009.log.swap", files.read(LOG))
    log = reopen(files, D)
    assert log.end_offset == 6
    assert not any(entry.name.endswith(LEFTOVERS) for entry in files.list(D))
