"""Tests of what `odradek produce` says when the cluster does not acknowledge a message in time."""

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from odradek.admin import status
from odradek.admin.produce_cause import Copies, Quotas, State, Throttling, causes
from odradek.testing import Broker

Odradek = Callable[..., CompletedProcess[str]]
WELL = Copies(0, 1, [1, 2, 3], [1, 2, 3])


@pytest.fixture
def impatient(tmp_path: Path) -> tuple[str, str]:
    """Options with which a message times out soon."""
    file = tmp_path / "client.properties"
    file.write_text("message.timeout.ms=500\n")
    return "--command-config", str(file)


@pytest.mark.parametrize(
    ("is_full", "cause"),
    [
        (True, "the disk of broker 1, which leads {topic}-0, is full ("),
        (False, "the cluster looks well now, so try again (see 'odradek cluster status')"),
    ],
)
def test_the_cluster_is_asked_for_the_cause(
    run_here: Odradek,
    topic: str,
    impatient: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
    is_full: bool,
    cause: str,
) -> None:
    if is_full:  # by the rule for brokers that do not say so
        monkeypatch.setattr(status, "little_room", lambda total_bytes: 1 << 60)
    with Broker() as broker:
        broker.create_topic(topic)
        with broker.faults.answer("Produce", error="KAFKA_STORAGE_ERROR", times=1000):
            result = run_here("produce", topic, "-b", broker.bootstrap, *impatient, stdin="x\n")
        told = f"error: {topic}: {broker.bootstrap} did not acknowledge the messages in time: "
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1].startswith(told + cause.format(topic=topic))


@pytest.mark.parametrize(
    ("partitions", "brokers", "throttling", "found"),
    [
        ([WELL], {1: State()}, None, []),
        (
            [Copies(0, None, [1, 2], [2])],
            {},
            None,
            ["t-0 has no leader: all of its in-sync replicas (2) are down (see 'odradek cluster status')"],
        ),
        (
            [WELL],
            {1: State("h:9092: refused")},
            None,
            ["broker 1, which leads t-0, does not respond: h:9092: refused"],
        ),
        (
            [Copies(0, 1, [1, 2, 3], [1]), WELL],
            {1: State()},
            None,
            [
                "t-0 has 1 in-sync replica of 3, and min.insync.replicas is 2: start brokers 2,3 "
                "(see 'odradek cluster status')"
            ],
        ),
        ([Copies(0, 1, [1], [1])], {1: State()}, None, []),  # it has all the replicas that it can have
        (  # a follower that nobody takes out of the ISR: most of the metadata quorum is down, too
            [WELL, Copies(1, 3, [1, 2, 3], [1, 3])],
            {1: State(), 2: State("h:9093: silent"), 3: State()},
            None,
            ["broker 2, an in-sync replica of t-0, does not respond: h:9093: silent"],
        ),
        (
            [WELL],
            {1: State()},
            Throttling(1, 2.5),
            ["a quota: broker 1 made this client wait up to 2.5 s for a request"],
        ),
    ],
)
def test_causes(
    partitions: list[Copies], brokers: dict[int, State], throttling: Throttling | None, found: list[str]
) -> None:
    assert list(causes("t", partitions, brokers, 2, throttling)) == found


def test_the_worst_throttling_is_remembered() -> None:
    quotas = Quotas()
    for event in (Event(1, 0.5), Event(2, 3.0), Event(1, 1.0)):
        quotas.note(event)
    assert quotas.worst == Throttling(2, 3.0)


class Event:
    def __init__(self, broker_id: int, throttle_time: float) -> None:
        self.broker_id, self.throttle_time = broker_id, throttle_time
