"""Nodes as their users start them: the first with `odradek up`, the others with `odradek up --join`. And commands that
do not need a process of their own, whose start takes longer than most of them.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from odradek.cli.main import main
from tests.support import RunningBroker


class JoinedBroker(RunningBroker):
    """A node that joins the cluster of another."""

    def __init__(self, data_dir: Path, settings: Mapping[str, str], cluster: str) -> None:
        super().__init__(data_dir, settings)
        self._cluster = cluster

    def command(self, port: str) -> list[str]:
        return [*super().command(port), "--join", self._cluster]


@contextmanager
def running(*nodes: RunningBroker) -> Iterator[None]:
    """Start them one after the other, and end them all."""
    try:
        for node in nodes:
            node.start()
        yield
    finally:
        for node in nodes:
            with closing(node.port):
                if hasattr(node, "process"):
                    node.kill()


def command(*arguments: str) -> CompletedProcess[str]:
    out, errors = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(errors):
        status = main(list(arguments))
    return CompletedProcess(arguments, status, out.getvalue(), errors.getvalue())


def told(*arguments: str) -> Any:
    """Return what the command says, as JSON."""
    done = command(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
