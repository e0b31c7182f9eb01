"""A cluster for the client commands. ODRADEK_TEST_BOOTSTRAP names another: they must work on any Kafka.

The commands run in this process, which saves a start each; what is about processes (signals, pipes, exit) uses
`tests.support.run_command`.
"""

import io
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from subprocess import CompletedProcess

import pytest

from odradek.cli.main import main
from tests.support import given_or_running

Odradek = Callable[..., CompletedProcess[str]]


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with given_or_running(tmp_path_factory.mktemp("broker")) as bootstrap:
        yield bootstrap


@pytest.fixture
def run_here(monkeypatch: pytest.MonkeyPatch) -> Odradek:
    """The command, in this process, with an environment of its own."""

    def run(
        *arguments: str, stdin: str | bytes = "", environ: Mapping[str, str] | None = None
    ) -> CompletedProcess[str]:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        streams = {
            name: io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for name in ("stdout", "stderr")
        }
        with monkeypatch.context() as patch:
            for name, value in {"NO_COLOR": "1", "COLUMNS": "200", **(environ or {})}.items():
                patch.setenv(name, value)
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), "utf-8"))
            for name, stream in streams.items():
                patch.setattr(sys, name, stream)
            status = main(list(arguments))
        texts = [stream.buffer.getvalue().decode(errors="replace") for stream in streams.values()]
        return CompletedProcess(arguments, status, *texts)

    return run


@pytest.fixture
def odradek(bootstrap: str, run_here: Odradek) -> Odradek:
    """The command, told of the cluster by its environment."""
    return partial(run_here, environ={"ODRADEK_BOOTSTRAP_SERVER": bootstrap})


@pytest.fixture
def topic() -> str:
    """A name no other test uses."""
    return f"topic-{uuid.uuid4().hex[:12]}"
