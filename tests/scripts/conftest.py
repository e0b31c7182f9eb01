"""One broker for all tests of the scripts, which run in this process: that saves a start each."""

import io
import sys
import uuid
from collections.abc import Callable, Iterator
from subprocess import CompletedProcess

import pytest

from odradek.scripts.running import main
from tests.support import running_broker

Script = Callable[..., CompletedProcess[str]]


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("broker")
    with running_broker(directory, group_initial_rebalance_delay_ms="0") as broker:
        yield broker.bootstrap


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Script:
    """A script by its name without `kafka-` and `.sh`."""

    def run_script(script: str, *arguments: str, stdin: str = "") -> CompletedProcess[str]:
        streams = {
            name: io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for name in ("stdout", "stderr")
        }
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()), "utf-8"))
            for name, stream in streams.items():
                patch.setattr(sys, name, stream)
            try:
                status = main(script, list(arguments))
            except SystemExit as exit_:  # argparse
                status = exit_.code if isinstance(exit_.code, int) else 1
        return CompletedProcess(
            arguments, status, *(one.buffer.getvalue().decode() for one in streams.values())
        )

    return run_script


@pytest.fixture
def script(run: Script, bootstrap: str) -> Script:
    """The same, with the cluster in front of the other arguments."""
    return lambda name, *arguments, stdin="": run(
        name, "--bootstrap-server", bootstrap, *arguments, stdin=stdin
    )


@pytest.fixture
def topic() -> str:
    """A name no other test uses."""
    return f"topic-{uuid.uuid4().hex[:12]}"
