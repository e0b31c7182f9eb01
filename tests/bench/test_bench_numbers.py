"""The arithmetic of the benchmarks: medians, spreads, ratios, and the tables made of stored numbers."""

import io
import json
import os
import time
from pathlib import Path

import pytest
from rich.console import Console

from bench.measure import (
    Cpu,
    Spread,
    await_rest,
    cpu_of,
    metered,
    process_tree,
    rate_numbers,
    ratio_of,
    spread_of,
)
from bench.report import markdown, number_text, print_report, ratio_rows, rows
from bench.runner import LIMIT, Run, load_run


def stored_run() -> Run:
    """Two systems, two rounds; Kafka failed once."""
    run = Run("peers", rounds=2, scale=1.0, machine={"cpu": "abacus"}, workloads={"bulk-1k": "1 KB"})
    for name, title in (("odradek", "Odradek"), ("kafka", "Apache Kafka")):
        run.systems[name] = {"title": title, "version": "1.0", "durability": "not synced"}
    for number, ours, theirs in ((0, 300.0, 200.0), (1, 500.0, 200.0)):
        for system, rate in (("odradek", ours), ("kafka", theirs)):
            cpu = {"produce_user_s_gb": 0.25, "produce_kernel_s_gb": 1.5}
            run.add(number, system, "bulk-1k", {"produce_mb_s": rate, **cpu})
    run.left_out["nats"] = "it is not installed"
    run.failures.append({"round": 1, "system": "kafka", "workload": "start", "reason": "too [cold]"})
    return run


def test_a_spread_is_median_lowest_and_highest() -> None:
    assert spread_of([3.0, 1.0, 2.0]) == Spread(2.0, 1.0, 3.0)
    assert spread_of([3.0, 1.0, 2.0]).percent == 50.0
    assert spread_of([0.0]).percent == 0.0


def test_a_ratio_is_of_medians_and_its_spread_of_rounds() -> None:
    ratio = ratio_of({0: 300.0, 1: 500.0, 2: 400.0}, {0: 200.0, 1: 200.0, 2: 100.0})
    assert ratio == Spread(2.0, 1.5, 4.0)


def test_a_ratio_spreads_over_rounds_that_both_have() -> None:
    assert ratio_of({0: 2.0, 1: 4.0}, {1: 1.0}) == Spread(3.0, 4.0, 4.0)


def test_rates_leave_out_the_time_to_the_first_message() -> None:
    output = {"seconds": 3.0, "first_seconds": 1.0, "bytes": 4e9, "user_s": 2.0, "kernel_s": 8.0}
    assert rate_numbers("consume", output) == {
        "consume_mb_s": 2000.0,
        "consume_user_s_gb": 0.5,
        "consume_kernel_s_gb": 2.0,
    }


@pytest.mark.parametrize(
    ("value", "text"), [(12345.6, "12,346"), (99.94, "99.9"), (9.876, "9.88"), (0.0, "0.00")]
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert number_text(value) == text


def test_the_cpu_of_a_process_is_metered() -> None:
    with metered([os.getpid()]) as cpu:
        before = time.process_time()
        while time.process_time() - before < 0.1:
            pass
    assert cpu.user_s + cpu.kernel_s >= 0.05
    assert os.getpid() in process_tree([os.getpid()])
    assert cpu_of([2**22 + 1]).user_s == 0.0


def test_a_server_is_awaited_until_it_is_at_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    used = iter([0.0, 0.4, 0.4, 0.45, 0.9, 0.91])  # before and after each look
    monkeypatch.setattr("bench.measure.cpu_of", lambda pids: Cpu(kernel_s=next(used)))
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    await_rest([1])
    assert list(used) == [0.9, 0.91]


def test_a_table_shows_medians_spread_and_cpu() -> None:
    (row,) = rows(stored_run())
    assert row.title == "1 KB: produce, MB/s"
    assert row.cells["odradek"] == "400 ±25%\n0.25 + 1.50 s/GB"
    assert row.cells["kafka"] == "200 ±0%\n0.25 + 1.50 s/GB"
    assert row.cells[LIMIT] == ""


def test_ratios_come_from_the_samples() -> None:
    (row,) = ratio_rows(stored_run(), "odradek")
    assert row.cells == {"kafka": "2.00 (1.50–2.50)"}


def test_a_stored_run_gives_the_same_report(tmp_path: Path) -> None:
    run = stored_run()
    path = run.store(tmp_path)
    assert json.loads(path.read_text())["samples"] == run.samples
    assert markdown(load_run(path)) == markdown(run)


def test_what_is_missing_is_said() -> None:
    console = Console(record=True, width=200, file=io.StringIO())
    print_report(stored_run(), console)
    text = console.export_text()
    assert "left out: nats: it is not installed" in text
    assert "failed: kafka start, round 1: too [cold]" in text
    assert "Odradek divided by" in text
