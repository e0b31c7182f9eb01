"""The order of a run: systems take turns in every round, each is warmed once by the same kind of work before it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench import runner as runner_module
from bench.measure import Numbers
from bench.runner import BY_NAME, Run, Runner
from bench.systems import System
from bench.warmth import WarmUp
from bench.workloads import CLUSTER, OWN, PRODUCERS, WORKLOADS, Workload, bulk_transactions


class FakeSystem(System):
    durability = "not synced"
    runs = True

    def version(self) -> str:
        return "1.0"

    def start(self) -> None:
        self.home.mkdir()

    @property
    def is_running(self) -> bool:
        return self.runs


class One(FakeSystem):
    name = title = "one"


class Two(FakeSystem):
    name = title = "two"


class Three(FakeSystem):
    name = title = "three"


class Log:
    """Workloads that only note that they were run: warm-ups are a tenth of the work."""

    def __init__(self) -> None:
        self.entries: list[str] = []
        self.trouble: Callable[[System, str], None] = lambda system, entry: None

    def workload(self, name: str, after: str = "", **changes: Any) -> Workload:
        def work(system: System, scale: float) -> Numbers:
            entry = f"{system.name} {name}" + (" warm-up" if scale < 1 else "")
            self.entries.append(entry)
            self.trouble(system, entry)
            return {"requests_s": 1.0}

        plan = WarmUp("a piece", 0.1, ("requests_s",), after=after)
        return Workload(name, name, work, warm_up=plan, **changes)

    def deduplicated(self) -> list[str]:
        """Return the entries with the pieces of a warm-up counted as one."""
        return [entry for at, entry in enumerate(self.entries) if self.entries[at - 1 : at] != [entry]]


def measured(
    workloads: list[Workload], tmp_path: Path, rounds: int = 3, kinds: Any = (One, Two, Three)
) -> Run:
    run = Run("peers", rounds, 1.0)
    Runner(run, workloads, tmp_path, tmp_path / "results").measure(kinds)
    return run


@pytest.fixture(autouse=True)
def at_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.runner.await_rest", lambda pids, timeout_s: None)
    monkeypatch.setattr("os.sync", lambda: None)


def test_systems_are_warmed_and_then_take_turns(tmp_path: Path) -> None:
    log = Log()
    run = measured([log.workload("small"), log.workload("large", once=True)], tmp_path)
    assert log.deduplicated() == [
        *("one small warm-up", "two small warm-up", "three small warm-up"),
        *("one small", "two small", "three small"),
        *("two small", "three small", "one small"),
        *("three small", "one small", "two small"),
        *("one large warm-up", "two large warm-up", "three large warm-up"),
        *("one large", "two large", "three large"),
    ]
    assert log.entries.count("one small warm-up") == 5
    assert [(each["system"], each["settled"]) for each in run.warmings[:2]] == [("one", True), ("two", True)]
    assert run.values("two", "small", "requests_s") == {0: 1.0, 1: 1.0, 2: 1.0}
    assert all(sample["others_ms_s"] == 0.0 for sample in run.samples)
    assert list(run.seconds) == ["(all systems start)", "small", "large"]


def test_a_kind_of_work_that_builds_on_another_is_warmed_by_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log()
    small, lone = log.workload("small"), log.workload("lone", after="small")
    monkeypatch.setattr(runner_module, "BY_NAME", {"small": small})
    measured([lone], tmp_path, rounds=1, kinds=[One])
    assert log.deduplicated() == ["one small warm-up", "one lone warm-up", "one lone"]
    log.entries.clear()
    measured([small, lone], tmp_path, rounds=1, kinds=[One])
    assert log.deduplicated() == ["one small warm-up", "one small", "one lone warm-up", "one lone"]


def test_a_failure_costs_one_sample_and_a_death_one_system(tmp_path: Path) -> None:
    log = Log()

    def trouble(system: System, entry: str) -> None:
        if entry == "two small" and log.entries.count(entry) == 2:
            raise RuntimeError("a hiccup")
        if entry == "three large warm-up" and isinstance(system, FakeSystem):
            system.runs = False
            raise RuntimeError("it is dead")

    log.trouble = trouble
    run = measured([log.workload("small"), log.workload("large"), log.workload("last")], tmp_path, rounds=2)
    assert run.values("two", "small", "requests_s") == {0: 1.0}
    assert run.values("three", "small", "requests_s") == {0: 1.0, 1: 1.0}
    assert run.values("one", "last", "requests_s") == {0: 1.0, 1: 1.0}
    assert not any(entry.startswith("three last") for entry in log.entries)
    assert [(each["system"], each["workload"], each["reason"]) for each in run.failures] == [
        ("two", "small", "RuntimeError: a hiccup"),
        ("three", "large, warm-up", "RuntimeError: it is dead"),
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


def test_every_load_has_a_warm_up_of_its_kind() -> None:
    cold = {each.name for each in (*WORKLOADS, *OWN, *CLUSTER) if each.warm_up is None}
    assert cold == {"start", "memory", "loaded-memory", "reopen-1000", "idle-1", "idle-10000"}
    plans = [each.warm_up for each in (*WORKLOADS, *CLUSTER) if each.warm_up]
    assert {plan.after for plan in plans} <= {"", *BY_NAME}
    small = BY_NAME["one-message"].warm_up
    assert small is not None
    assert small.least * 30_000 >= 300_000


def test_loads_with_and_without_transactions_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    order, rates = [], iter([100.0, 90.0, 80.0, 110.0, 100.0, 100.0])
    kinds = {str(settings): kind for kind, settings in PRODUCERS.items()}

    def bulk(system: object, scale: float, *, producer: dict[str, object], reads: bool) -> Numbers:
        order.append(kinds[str(producer)])
        return {"produce_mb_s": next(rates)} | ({"consume_mb_s": 700.0} if reads else {})

    monkeypatch.setattr("bench.workloads.bulk", bulk)
    numbers = bulk_transactions(One(Path("/nowhere")), 1.0)
    assert order == ["plain", "idempotent", "transactional", "transactional", "idempotent", "plain"]
    assert numbers == {
        "produce_mb_s": 95.0,
        "consume_mb_s": 700.0,
        "plain_ratio": pytest.approx(0.95),
        "plain_ratio_low": 0.8,
        "plain_ratio_high": 1.1,
        "idempotent_ratio": pytest.approx((8 / 9 + 1.1) / 2),
        "idempotent_ratio_low": 80 / 90,
        "idempotent_ratio_high": 1.1,
    }
