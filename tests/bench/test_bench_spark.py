"""Tests of what `make bench-spark` stores: a run of some parts does not replace the whole one, and says what it
measured.
"""

import argparse
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from bench.once import LOADS, once_lines
from bench.runner import Run, load_run
from bench.spark import CPU, PARTS, RATE, markdown, new_run, parts_of


def run_of(parts: set[str]) -> Run:
    run = new_run(1_000_000, "odradek", has_jvm_connector=True, parts=parts)
    run.machine = {"date": "today"}
    return run


def test_parts_have_names_of_their_own() -> None:
    assert run_of(set(PARTS)).name == "spark"
    assert run_of(parts_of("typed")).name == "spark-typed"
    assert run_of(parts_of("small,pipeline")).name == "spark-pipeline-small"


def test_a_part_that_does_not_exist_is_refused() -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="there is no part sinks"):
        parts_of("typed,sinks")


def test_a_table_has_what_was_compared(tmp_path: Path) -> None:
    run = run_of({"typed"})
    run.workloads["typed JSON"] = "typed JSON"
    for number, factor in enumerate((1.0, 1.2, 1.1)):
        for system, rate in (("odradek", 1.0), ("jvm", 0.25), ("jvm-tuned", 0.5)):
            run.add(number, system, "typed JSON", {RATE: rate * factor, CPU: 1.0})
    found = markdown(load_run(run.store(tmp_path)))
    assert "| typed JSON | 1.10 ±9%<br>1.00 |" in found and "4.00 (4.00–4.00) | 2.00 (2.00–2.00) |" in found


def test_what_exactly_once_costs_is_shown_by_its_passes() -> None:
    run = run_of({"once"})
    assert once_lines(run) == []
    load = LOADS[0]
    run.workloads[load.title] = load.title
    for number, before in enumerate((90.0, 100.0, 110.0)):
        run.add(number, "odradek", load.title, {"at_least_once_ms": before, "exactly_once_ms": 125.0})
    assert once_lines(run)[-1] == (
        f"| {load.title} | 100 (90–110) | 125 (125–125) | 0.80 of the rate, +25 ms |"
    )
    assert markdown(run) == "\n".join(["date today; passes 5.", "", *once_lines(run), ""])
