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
    python_build,
    rate_numbers,
    ratio_of,
    spread_of,
)
from bench.report import markdown, number_text, print_report, ratio_rows, rows
from bench.runner import LIMIT, Run, load_run
from bench.summary import markdown as summary_markdown
from bench.warmth import Warming


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


def warmed_run() -> Run:
    """Returns a run beside Apache Kafka as it is stored, cut short."""
    run = stored_run()
    run.systems["kafka"]["runtime"] = "a Java machine"
    run.workloads |= {"one-message": "One message a request", "bulk-transactions": "In transactions"}
    for number, ours, theirs, paired in ((0, 300.0, 100.0, 0.9), (1, 500.0, 100.0, 1.0)):
        pair = {"plain_ratio": paired, "plain_ratio_low": paired - 0.1, "plain_ratio_high": paired + 0.1}
        run.add(number, "odradek", "one-message", {"requests_s": ours, **CPU}, others_ms_s=12.0)
        run.add(number, "kafka", "one-message", {"requests_s": theirs, **CPU}, others_ms_s=3.0)
        run.add(number, "odradek", "bulk-transactions", pair, others_ms_s=20.0)
    settled = {"requests_s": [90.0, 100.0, 100.0, 101.0, 100.0, 99.0]}
    run.warmings = [
        Warming("odradek", "one-message", "30,000 requests", 9.0, True, settled).as_stored(),
        Warming(
            "kafka", "one-message", "30,000 requests", 60.0, False, {"requests_s": [50.0] * 4 + [60.0]}
        ).as_stored(),
    ]
    run.seconds = {"one-message": {"warm_up_s": 69.0, "rounds_s": 21.0}}
    return run


CPU = {"request_user_us": 20.0, "request_kernel_us": 1.0}


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


def test_warm_ups_times_and_neighbours_are_told() -> None:
    text = markdown(warmed_run())
    assert "Apache Kafka runs on a Java machine." in text
    assert (
        "| one-message | 6 × 30,000 requests, 9 s<br>last five ±1% | 5 × 30,000 requests, 60 s<br>NOT SETTLED, "
        in text
    )
    assert "used 12 ms of CPU a second (median; 20 at most)" in text
    assert "one-message 69 + 21; 1.5 minutes in all" in text


def test_paired_loads_are_shown_with_the_spread_of_all_pairs() -> None:
    (row,) = [row for row in rows(warmed_run()) if row.figure == "plain_ratio"]
    assert row.cells["odradek"] == "0.95 ±16%"
    assert not any(row.figure == "plain_ratio" for row in ratio_rows(warmed_run(), "odradek"))


def test_the_tables_of_the_docs_come_from_the_stored_run() -> None:
    lines = summary_markdown(warmed_run()).splitlines()
    assert "| Odradek ÷ Apache Kafka (↑ more is better, ↓ less is better) | not synced | budget |" in lines
    assert "| ↑ one-message requests a second | 4.00 (3.00–5.00) | ≥ 3 |" in lines
    assert "| ↑ one-message requests a second | 4.0 |" in lines
    assert "|---|---|---|" in lines
    assert (
        "| One message a request: requests, /s | 400 ±25%<br>20.0 + 1.00 µs each | 100 ±0%<br>20.0 + 1.00 µs each |"
        in lines
    )
    assert "1 of 2 warm-ups never settled: one-message on Apache Kafka (±20 %)." in lines
    comparison = "In transactions, produce ÷ the same without transactions, in turn"
    assert f"{comparison}: Odradek, not synced 0.95 (0.80–1.10)." in lines


def test_a_run_that_was_stored_before_is_still_shown(tmp_path: Path) -> None:
    stored = stored_run().__dict__ | {"warm_ups": [{"round": 0, "system": "kafka", "runs": 12}]}
    del stored["warmings"], stored["seconds"], stored["part"]
    (tmp_path / "peers.json").write_text(json.dumps(stored))
    assert "was not warmed up by the rules" in summary_markdown(load_run(tmp_path / "peers.json"))


def test_the_build_of_python_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"CONFIG_ARGS": "'--enable-optimizations' '--prefix=/usr'", "OPT": "-g -O3 -Wall"}
    monkeypatch.setattr("sysconfig.get_config_var", told.get)
    assert python_build().endswith(", -O3, configured with --enable-optimizations and without --with-lto)")


def test_no_title_runs_into_the_next_panel() -> None:
    plots = pytest.importorskip("bench.plots")
    run = load_run(Path(__file__).parents[2] / "bench" / "results" / "peers.json")
    for workload, figure in plots.PANELS:
        if workload in run.workloads:
            lines = plots.heading(run.workloads[workload], figure).splitlines()
            assert max(map(len, lines)) <= plots.TITLE_WIDTH, lines
            assert lines[-1][-1] in "↑↓" and len(lines[-1]) > 1, lines
