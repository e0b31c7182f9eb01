"""`odradek up --brokers 3`, as a user starts it: a cluster of real processes.

with cluster_in(tmp_path / "home") as cluster:
    run_command("topic", "list", "-b", cluster.addresses[0])
    os.kill(cluster.pids[1], signal.SIGKILL)
    cluster.log_line("broker 2 was killed")
"""

import json
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support import odradek_command

PATIENCE_S = 60


class Cluster:
    """`odradek up --brokers 3`, once it has said that it is ready."""

    def __init__(self, process: subprocess.Popen[str], directory: Path) -> None:
        assert process.stdout is not None
        self.process = process
        self.directory = directory
        line = process.stdout.readline()
        assert line, "it did not start"
        self.facts: dict[str, Any] = json.loads(line)
        self.addresses: list[str] = self.facts["bootstrap"].split(",")
        self.pids: list[int] = self.facts["pids"]

    def log_line(self, words: str) -> str:
        """The next one with these words in it."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if words in line:
                return line
        raise AssertionError(f"it ended without {words!r}")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, errors

    def members(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads((self.directory / "cluster.json").read_text())["brokers"]
        return found


@contextmanager
def launched(directory: Path, *arguments: str, port: int = 0) -> Iterator[subprocess.Popen[str]]:
    command = odradek_command("up", "--brokers", "3", "--port", str(port), "--data-dir", str(directory))
    process = subprocess.Popen(
        [*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    watchdog = threading.Timer(2 * PATIENCE_S, process.kill)
    watchdog.start()
    try:
        yield process
    finally:
        process.kill()
        process.communicate()  # ends with the last of the children, which hold the log
        watchdog.cancel()


@contextmanager
def cluster_in(directory: Path, *arguments: str, port: int = 0) -> Iterator[Cluster]:
    with launched(directory, "--json", *arguments, port=port) as process:
        yield Cluster(process, directory)
