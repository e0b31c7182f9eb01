"""franz-go, which speaks the protocol of `transaction.version` 2: every transaction has an epoch of its own.

`make franz-go` builds the program; where it was not built, these tests are skipped: frame-level clients test the same
protocol (`tests/broker`, `tests/transactions`).
"""

import subprocess
from pathlib import Path

import pytest

from odradek.client.connection import Connection
from odradek.client.settings import ClientSettings
from odradek.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from tests.real_clients.test_transactions import read
from tests.support import RunningBroker

PROGRAM = Path(__file__).parent / "go" / "franz"
TIMEOUT_S = 90


@pytest.fixture(autouse=True)
def _is_built() -> None:
    if not PROGRAM.exists():
        pytest.skip("franz-go is not built: make franz-go")


def run(*arguments: str) -> None:
    subprocess.run([PROGRAM, *arguments], check=True, timeout=TIMEOUT_S)


def producer_epoch(broker: RunningBroker, transactional_id: str) -> int:
    host, _, port = broker.bootstrap.rpartition(":")
    connection = Connection(host, int(port), ClientSettings(((host, int(port)),)))
    try:
        response = connection.call(
            DescribeTransactionsRequest([transactional_id]), DescribeTransactionsResponse
        )
    finally:
        connection.close()
    (state,) = response.transaction_states
    assert state.error_code == 0
    return state.producer_epoch


def test_every_transaction_has_an_epoch_of_its_own(broker: RunningBroker, topic: str) -> None:
    run("transactions", broker.bootstrap, topic, "a:commit", "b:abort", "c:commit", "d:commit")
    assert read(broker.bootstrap, topic, "read_committed", 9) == sorted([b"a", b"c", b"d"] * 3)
    assert read(broker.bootstrap, topic, "read_uncommitted", 12) == sorted([b"a", b"b", b"c", b"d"] * 3)
    assert producer_epoch(broker, f"tx-{topic}") >= 4  # one more at each end


def test_consume_transform_produce(broker: RunningBroker, topic: str, group: str) -> None:
    run("transactions", broker.bootstrap, topic, "x:commit", "y:abort", "z:commit")
    run("transform", broker.bootstrap, topic, f"{topic}-out", group, "6")
    written = read(broker.bootstrap, f"{topic}-out", "read_committed", 6)
    assert written == sorted([b"got x", b"got z"] * 3)
