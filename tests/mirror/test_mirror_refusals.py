"""A target that refuses, is full, or loses responses: what it may not have is said, all else is waited for."""

from collections.abc import Iterator

import pytest

from odradek.testing import Broker, broker
from tests.mirror.lab import Inside, client, fill, ledger, run_once, running, write_file
from tests.processes.nodes import until
from tests.spark.spark_topics import Topics


@pytest.fixture(scope="module")
def faulty() -> Iterator[Broker]:
    with broker() as faulty:
        yield faulty


@pytest.fixture
def topic(request, west) -> str:
    name = f"refused-{request.node.callspec.id if hasattr(request.node, 'callspec') else 'full'}"
    Topics(west.bootstrap).create(1, name)
    fill(west.bootstrap, name, 60, partitions=1)
    return name


@pytest.fixture
def file(west, faulty, tmp_path, topic):
    return write_file(
        tmp_path, west.bootstrap, faulty.bootstrap, f'names = ["{topic}"]', names=(topic, "east")
    )


@pytest.mark.parametrize(
    ("api", "error"),
    [
        pytest.param("Produce", "NOT_ENOUGH_REPLICAS", id="replicas"),
        pytest.param("Produce", "NOT_LEADER_OR_FOLLOWER", id="leader"),
        pytest.param("EndTxn", "COORDINATOR_NOT_AVAILABLE", id="coordinator"),
        pytest.param("AddPartitionsToTxn", "CONCURRENT_TRANSACTIONS", id="concurrent"),
    ],
)
def test_what_passes_is_waited_for(west, faulty, file, topic, api, error):
    with faulty.faults.answer(api, error=error, times=3) as fault:
        run_once(file)
        assert fault.fired == 3
    assert ledger(faulty.bootstrap, f"{topic}.{topic}") == ledger(west.bootstrap, topic)


@pytest.mark.parametrize("api", [pytest.param("EndTxn", id="end"), pytest.param("Produce", id="produce")])
def test_a_response_that_is_lost(west, faulty, file, topic, api):
    with faulty.faults.cut(api, after_handling=True, times=1) as fault:
        run_once(file)
        assert fault.fired == 1
    assert ledger(faulty.bootstrap, f"{topic}.{topic}") == ledger(west.bootstrap, topic)


@pytest.mark.parametrize(
    ("api", "error", "advice"),
    [
        pytest.param(
            "Produce", "TOPIC_AUTHORIZATION_FAILED", "grant WRITE on the topic at the target", id="topic"
        ),
        pytest.param(
            "InitProducerId",
            "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
            "grant WRITE on transactional ids that begin with odradek-mirror.",
            id="id",
        ),
        pytest.param("Produce", "INVALID_RECORD", "the copy is compacted", id="record"),
    ],
)
def test_what_is_refused_is_said(west, faulty, file, topic, api, error, advice):
    """Nothing stays open, and the next run goes on."""
    with faulty.faults.answer(api, error=error, times=1):
        why = run_once(file, ok=False)["not_copying"][f"{topic}-0"]
    assert error in why and advice in why
    assert ledger(faulty.bootstrap, f"{topic}.{topic}") == {0: []}
    run_once(file)
    assert ledger(faulty.bootstrap, f"{topic}.{topic}") == ledger(west.bootstrap, topic)


def test_a_target_whose_disk_is_full(west, faulty, file, topic):
    process = Inside(file)
    with running(process):
        until(lambda: f"{topic}.{topic}" in client(faulty.bootstrap).topic_names(), "the copy is there")
        with faulty.faults.fill_disk() as full:
            fill(west.bootstrap, topic, 60, partitions=1)
            full.wait()
        until(
            lambda: ledger(faulty.bootstrap, f"{topic}.{topic}") == ledger(west.bootstrap, topic),
            "everything is copied once there is room",
        )
        assert process.end()
