"""Tests that the lines of a log say which node wrote them."""

from pathlib import Path

from tests.support import running_broker


def test_the_log_lines_of_a_broker_carry_its_id(tmp_path: Path) -> None:
    with running_broker(tmp_path, node_id="7") as broker:
        assert broker.stop() == 0
    lines = [line for line in broker.log.splitlines() if "odradek.broker" in line]
    assert len(lines) >= 2 and all("[node 7] odradek.broker" in line for line in lines), lines
