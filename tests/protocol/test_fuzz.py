"""A hundred thousand damaged requests, and some over sockets: nothing breaks, nothing grows, others are served."""

import os
from contextlib import suppress
from pathlib import Path

import pytest

from odradek.apis.table import BROKER, SERVED
from tests.protocol.raw import Raw, batch
from tests.support import RunningBroker
from tools.fuzz.fuzzer import HEALTH_INTERVAL, fuzz_in_process
from tools.fuzz.sockets import fuzz_over_sockets

FRAMES, MORE_FRAMES = 30_000, 100_000
FRAMES_OVER_SOCKETS = 4_000
SEED = 20_261_115


@pytest.mark.parametrize("frames", [FRAMES, pytest.param(MORE_FRAMES, marks=pytest.mark.long)])
def test_damaged_frames_reach_handlers_and_break_nothing(
    frames: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = fuzz_in_process(frames, SEED, str(tmp_path))
    with capsys.disabled():
        print(f"\n{outcome.report()[:3000]}")
    assert not outcome.findings
    assert outcome.frames == frames
    assert set(outcome.handled) == set(SERVED[BROKER]), "an API was never reached"
    assert outcome.reached > frames / 4
    assert outcome.health_checks >= frames / HEALTH_INTERVAL
    assert outcome.grown_bytes < 60 << 20
    assert outcome.grown_descriptors < 50
    assert outcome.grown_tasks < 10


def open_sockets(broker: RunningBroker) -> int:
    """Files may be opened: a damaged frame can still ask for a coordinator, whose topic is then created."""
    count = 0
    for descriptor in Path(f"/proc/{broker.process.pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            count += os.readlink(descriptor).startswith("socket:")
    return count


def test_damaged_frames_over_sockets_do_not_disturb_others(
    broker: RunningBroker, raw: Raw, topic: str
) -> None:
    raw.create(topic)
    before = open_sockets(broker)

    def check_health() -> None:
        assert raw.produce(topic, batch(b"healthy")).error_code == 0

    errors_before = broker.log.count(" ERROR ")
    closed = fuzz_over_sockets(broker.bootstrap, FRAMES_OVER_SOCKETS, SEED, check_health)
    assert closed > 0
    assert broker.process.poll() is None
    assert broker.log.count(" ERROR ") == errors_before
    assert open_sockets(broker) < before + 100
