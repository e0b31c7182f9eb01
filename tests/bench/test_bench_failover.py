"""The arithmetic of fail-over: which silence belongs to which kill, what was lost, what a table says of it."""

import io
import json
from pathlib import Path

from rich.console import Console

from bench.calm import Busy, longest_stall
from bench.failover import (
    Gap,
    Outcome,
    Report,
    in_turn,
    lost_and_doubled,
    markdown,
    parse_arguments,
    print_report,
    silences,
    store,
    times_text,
)


def a_report() -> Report:
    report = Report("full", 1_000, {"cpu": "abacus"})
    report.outcomes["odradek-cluster"] = Outcome("Odradek", "1.0", {"leader_killed_s": [0.25, 0.5]})
    report.outcomes["kafka-3"] = Outcome("Apache Kafka", "4.3", {"leader_killed_s": [8.5, 8.75]})
    report.left_out["kafka-9"] = "it is not [installed]"
    report.busy.append(Busy("60 s of load", 60.1, 0, 0, 0, 2, "0.25"))
    return report


def test_a_silence_belongs_to_the_time_in_which_it_began() -> None:
    gaps = [Gap(0, 1.0, 1.1), Gap(0, 9.9, 10.4), Gap(1, 9.8, 10.2), Gap(2, 11.0, 11.7), Gap(0, 19.9, 20.9)]
    found = silences(gaps, [(10.0, 11.5), (11.5, 20.0), (20.0, 30.0)])
    assert [round(one, 3) for one in found] == [0.5, 0.7, 1.0]
    assert silences([], [(1.0, 2.0)]) == [0.0]


def test_each_node_is_the_first_replica_of_a_partition() -> None:
    assert in_turn(range(1, 4)) == [[1, 2, 3], [2, 3, 1], [3, 1, 2]]


def test_what_is_missing_and_what_came_twice_is_counted() -> None:
    assert lost_and_doubled([0, 1, 2, 3], 4) == (0, 0)
    assert lost_and_doubled([0, 1, 3], 4) == (1, 0)
    assert lost_and_doubled([0, 1, 1, 2, 3], 4) == (0, 1)
    assert lost_and_doubled([0, 2, 1, 3], 4) == (0, 1)
    assert lost_and_doubled([], 2) == (2, 0)


def test_the_worst_stands_before_all() -> None:
    assert times_text([]) == ""
    assert times_text([0.254]) == "0.25"
    assert times_text([0.25, 1.5, 0.5]) == "1.50 (0.25, 1.50, 0.50)"


def test_the_longest_stall_is_bounded_by_the_histogram() -> None:
    before = {"0.1": 5, "0.25": 6, "+Inf": 7}
    assert longest_stall(before, {"0.1": 8, "0.25": 9, "+Inf": 10}) == "0.1"
    assert longest_stall(before, {"0.1": 8, "0.25": 10, "+Inf": 11}) == "0.25"
    assert longest_stall(before, {"0.1": 5, "0.25": 6, "+Inf": 8}) == "+Inf"


def test_a_report_is_stored_and_printed(tmp_path: Path) -> None:
    report = a_report()
    store(report, tmp_path)
    assert json.loads((tmp_path / "failover.json").read_text())["outcomes"]["kafka-3"]["seconds"] == {
        "leader_killed_s": [8.5, 8.75]
    }
    assert (tmp_path / "failover.md").read_text() == markdown(report)
    assert "| 0.50 (0.25, 0.50) | 8.75 (8.50, 8.75) |" in markdown(report)
    console = Console(record=True, width=200, file=io.StringIO())
    print_report(report, console)
    text = console.export_text()
    assert "left out: kafka-9: it is not [installed]" in text
    assert "60 s of load" in text


def test_a_run_is_good_only_if_nothing_was_lost_and_nobody_lost_its_place() -> None:
    assert a_report().is_good
    for spoil in (
        lambda report: report.outcomes["kafka-3"].counts.update(lost=1),
        lambda report: report.outcomes["kafka-3"].counts.update(failed=1),
        lambda report: setattr(report.outcomes["kafka-3"], "failure", "it did not come back"),
        lambda report: report.busy.append(Busy("load", 1.0, 1, 0, 0, 0, "1")),
        lambda report: report.busy.append(Busy("load", 1.0, 0, 0, 1, 0, "1")),
    ):
        report = a_report()
        spoil(report)
        assert not report.is_good


def test_the_whole_is_ten_kills_of_each_kind() -> None:
    options = parse_arguments([])
    assert (options.kills, options.quick, options.only) == (10, False, [])
