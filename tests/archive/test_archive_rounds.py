"""Rounds of an archiver on a simulated topic and table: each offset once and in order, whatever crashes."""

import random
from uuid import uuid4

import pytest

from odradek.archive.failures import AnotherArchiver, Final, OtherTopic, RecordsLost
from odradek.archive.layout import ArchivedFile, Range, Snapshot, file_name, range_of
from odradek.archive.planning import MERGED_AT_ONCE, Log, Topic, check_tail, plan_merges, retention_warning
from tests.archive.simulated import Calls, Crashed, SimulatedTable, SimulatedTopic, archived, archiver

TOPIC_ID = uuid4()


def fresh(**changes) -> tuple[SimulatedTopic, SimulatedTable]:
    topic = SimulatedTopic({0: list(range(10)), 1: [0, 2, 5]}, **changes)
    return topic, SimulatedTable(topic.id)


def test_a_round_archives_what_is_new_and_the_next_goes_on_there():
    topic, table = fresh()
    one = archiver(topic, table)
    assert one.round().rows == 13
    topic.logs[0] += [10, 11]
    done = one.round()
    assert (done.rows, done.lag) == (2, 0)
    assert archived(topic, table) == topic.logs
    assert table.ends == {0: 12, 1: 6}


def test_a_round_without_news_commits_nothing():
    topic, table = fresh()
    one = archiver(topic, table)
    one.round()
    version = table.version
    assert one.round().rows == 0
    assert table.version == version


def test_offsets_without_records_are_answered_for_without_a_file():
    topic = SimulatedTopic({0: []}, ends={0: 7})
    table = SimulatedTable(topic.id)
    archiver(topic, table).round()
    assert (table.ends, table.files) == ({0: 7}, {})


def test_an_open_transaction_is_waited_for():
    topic, table = fresh(stable={0: 4})
    one = archiver(topic, table)
    one.round()
    assert archived(topic, table)[0] == [0, 1, 2, 3]
    topic.stable = {}
    one.round()
    assert archived(topic, table) == topic.logs


def test_a_large_range_becomes_several_files():
    topic, table = fresh(most=3)
    one = archiver(topic, table)
    assert one.round().lag == 10 - 3 + 6 - 3
    while one.round().lag:
        pass
    assert archived(topic, table) == topic.logs


def test_new_partitions_begin_where_their_logs_do():
    topic, table = fresh()
    one = archiver(topic, table)
    one.round()
    topic.logs[2], topic.starts[2] = [4, 5], 4
    one.round()
    assert archived(topic, table) == topic.logs


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("number", range(1, 41))
def test_a_crash_at_any_call_loses_and_doubles_nothing(number, after):
    topic, table = fresh(most=1)
    calls = Calls(number, after)
    for _ in range(3):
        one = archiver(topic, table, calls)
        try:
            while one.round().lag:
                pass
            one.merge_files()
        except Crashed:
            topic.logs[1] += [topic.end(1) + 1]
    assert archived(topic, table) == topic.logs
    assert len(table.files) < len(topic.logs[0]), "small files were merged"


@pytest.mark.parametrize("seed", range(60))
def test_two_archivers_at_once_double_nothing(seed):
    """They take turns at any call, as two processes do; whoever is second stops."""
    rng = random.Random(seed)
    topic, table = fresh(most=2)

    class Interrupting(Calls):
        def run(self, work):
            if others and rng.random() < 0.3:
                other = others.pop()
                for _ in range(rng.randrange(1, 4)):
                    other.round()
            return work()

    others = [archiver(topic, table) for _ in range(3)]
    refused = 0
    for _ in range(20):
        one = archiver(topic, table, Interrupting())
        try:
            while one.round().lag:
                pass
            break
        except AnotherArchiver:
            refused += 1
    assert archived(topic, table) == topic.logs
    assert len(others) == 3 or refused or table.version


def test_an_archiver_that_is_overtaken_between_two_rounds_stops():
    topic, table = fresh()
    one, other = archiver(topic, table), archiver(topic, table)
    one.round()
    topic.logs[0].append(10)
    other.round()
    with pytest.raises(AnotherArchiver, match="Run only one for each topic"):
        one.round()
    assert archived(topic, table) == topic.logs


def test_a_topic_that_was_created_again_is_refused_before_and_while_it_is_read():
    topic, table = fresh()
    archiver(topic, table).round()
    topic.logs[0].append(10)

    class Recreating(Calls):
        def run(self, work):
            if self.count == 3:  # the table was read, a file is to be written
                topic.id = uuid4()
            return super().run(work)

    with pytest.raises(OtherTopic):
        archiver(topic, table, Recreating()).round()
    with pytest.raises(OtherTopic, match=r"was deleted and created again.*--to"):
        archiver(topic, table).round()
    assert 10 not in archived(topic, table)[0]


def test_records_that_were_deleted_before_they_were_archived_are_not_skipped_in_silence():
    topic, table = fresh()
    archiver(topic, table).round()
    topic.logs[0], topic.starts[0] = [14, 15], 13
    with pytest.raises(RecordsLost, match=r"offsets 10 to 12 of orders-0 .*--skip-lost"):
        archiver(topic, table).round()
    done = archiver(topic, table, skip_lost=True).round()
    assert [(one.partition, one.start, one.end) for one in done.losses] == [(0, 10, 13)]
    assert table.ends[0] == 16


def test_a_log_that_ends_before_the_archive_is_refused():
    topic, table = fresh()
    archiver(topic, table).round()
    topic.logs[0] = [0, 1]
    with pytest.raises(Final, match="its log has lost what was at offset 2 and after it"):
        archiver(topic, table).round()


def test_a_tail_that_does_not_go_on_where_the_archive_ends_is_refused():
    def check(start: int, end: int) -> None:
        topic = Topic("orders", TOPIC_ID, {0: Log(start, end, end)})
        check_tail(topic, Snapshot(1, "orders", TOPIC_ID, {0: 10}))

    for start, end in ((0, 10), (10, 10), (3, 12)):
        check(start, end)
    with pytest.raises(RecordsLost, match="offsets 10 to 11 of orders-0 are neither in the archive"):
        check(12, 15)
    with pytest.raises(RecordsLost, match="orders-0 ends before offset 10, up to which it is archived"):
        check(0, 9)


def test_an_archive_with_more_partitions_than_the_topic_is_refused():
    topic, table = fresh()
    archiver(topic, table).round()
    del topic.logs[1]
    with pytest.raises(Final, match="its archive has partition 1"):
        archiver(topic, table).round()


def small(partition: int, start: int, size: int = 1000) -> ArchivedFile:
    range_ = Range(partition, start, start + 10)
    return ArchivedFile(file_name(range_), *range_, 10, size)


def test_neighbours_are_merged_ten_at_a_time():
    files = [small(0, 10 * number) for number in range(25)]
    assert [len(one) for one in plan_merges(files[::-1])] == [10, 10]
    assert plan_merges(files[: MERGED_AT_ONCE - 1]) == []
    assert plan_merges([small(number, 0) for number in range(20)]) == [], "a partition each"


def test_a_large_neighbour_is_not_written_again_for_a_few_small_ones():
    large = small(0, 0, size=100_000)
    few = [small(0, 10 * number) for number in range(1, 10)]
    assert plan_merges([large, *few]) == []
    more = [small(0, 10 * number) for number in range(1, 12)]
    assert [one[0].start for one in plan_merges([large, *more])] == [10]


def test_a_row_is_rewritten_a_few_times_however_many_commits_there_are():
    files, rewritten = [], 0
    for number in range(3000):
        files.append(small(0, 10 * number))
        for run in plan_merges(files):
            rewritten += len(run) and sum(one.size for one in run) // 1000
            range_ = Range(0, run[0].start, run[-1].end)
            files = [one for one in files if one not in run]
            files.append(ArchivedFile(file_name(range_), *range_, 1, sum(one.size for one in run)))
    assert len(files) < 60
    assert rewritten < 5 * 3000


def test_a_name_says_which_offsets_a_file_covers():
    range_ = Range(3, 17, 2**62)
    assert range_of(file_name(range_)) == range_
    assert file_name(range_) != file_name(range_), "two processes never write to one file"
    assert range_of("part-00000-something.parquet") is None


def test_a_retention_that_is_too_short_is_warned_of():
    day_ms = 86_400_000
    assert retention_warning("orders", day_ms, None) is None
    assert retention_warning("orders", day_ms, -1) is None
    assert retention_warning("orders", day_ms, 7 * day_ms) is None
    warning = retention_warning("orders", 4 * day_ms, 7 * day_ms)
    assert "deletes records after 7 days" in warning and "4 days old" in warning and "retention.ms" in warning
