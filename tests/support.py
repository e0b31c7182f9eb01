"""The common parts of tests of the whole product: a real broker in its own process, and the real command.

    with running_broker(tmp_path, auto_create_topics_enable="false") as broker:
        run_command("topic", "list", "-b", broker.bootstrap)

Nothing here reaches into the broker: it is started as a user starts it, and asked through its port.
"""

import json
import os
import resource
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from odradek.testing.port import KeptPort

START_TIMEOUT_S = 120
STOP_TIMEOUT_S = 120
COMMAND_TIMEOUT_S = 120
TURNED_AWAY_WITHIN_S = 120
TRACEBACK = "Traceback (most recent call last)"


class RunningBroker:
    """A broker process on a port of the system's choice, which it keeps over restarts."""

    known: "list[RunningBroker]" = []  # that may have written to their logs since these were searched

    def __init__(self, data_dir: Path, settings: Mapping[str, str], prefix: Sequence[str] = ()) -> None:
        self.data_dir = data_dir
        self.settings = settings
        self._prefix = prefix  # a command that runs the rest of its arguments as one
        self.bootstrap = ""
        self.port = KeptPort()
        self.process: subprocess.Popen[str]
        self._log = data_dir.with_name(f"{data_dir.name}.log")
        self._searched = 0  # bytes of the log, for tracebacks
        self.known.append(self)

    @property
    def log(self) -> str:
        """All the broker has written to its log, over all its lives."""
        return self._log.read_text()

    @property
    def has_ended(self) -> bool:
        """False if it has not been started yet."""
        return hasattr(self, "process") and self.process.poll() is not None

    @classmethod
    def all_new_tracebacks(cls) -> list[str]:
        """Search the logs of all brokers (see conftest.py), and those of brokers that have ended for the last time."""
        ended = [broker for broker in cls.known if broker.has_ended]
        found = [text for broker in cls.known if (text := broker.new_tracebacks())]
        cls.known[:] = [broker for broker in cls.known if broker not in ended]
        return found

    def new_tracebacks(self) -> str:
        """Return what was logged since the last call, if there is a traceback in it: the broker did not expect
        something.
        """
        try:
            with self._log.open(errors="replace") as log:
                log.seek(self._searched)
                written = log.read()
                self._searched = log.tell()
        except FileNotFoundError:
            return ""
        return written if TRACEBACK in written else ""

    def start(self) -> None:
        """Start it, and wait until its port is open."""
        self.launch()
        self.bootstrap = json.loads(self._first_line())["bootstrap"]

    def launch(self) -> None:
        """Start it, and do not wait."""
        self._spawn(self.command(self.bootstrap.rpartition(":")[2] or str(self.port.number)))

    def _spawn(self, command: Sequence[str]) -> None:
        with self._log.open("a") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        if self not in self.known:
            self.known.append(self)

    def command(self, port: str) -> list[str]:
        command = [*self._prefix, sys.executable, "-m", "odradek", "up", "--json", "--port", port]
        command += ["--data-dir", str(self.data_dir)]
        for name, value in self.settings.items():
            command += ["--set", f"{name}={value}"]
        return command

    def _first_line(self) -> str:
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            ready = selector.select(START_TIMEOUT_S)
        line = self.process.stdout.readline() if ready else ""
        if not line:
            self.kill()
            raise AssertionError(f"the broker did not start:\n{self.log}")
        return line

    def stop(self) -> int:
        """Ask it to stop, as a service manager does; its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_TIMEOUT_S)
        finally:
            self.kill()

    def kill(self) -> None:
        """End it with SIGKILL: no goodbye, no last sync."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def restart(self) -> None:
        """Stop it, unless it is dead already, and start it on the same data and port."""
        if self.process.poll() is None:
            status = self.stop()
            assert status == 0, f"the broker stopped with {status}:\n{self.log}"
        self.start()


@contextmanager
def running_broker(tmp_path: Path, *, prefix: Sequence[str] = (), **settings: str) -> Iterator[RunningBroker]:
    """A broker for the length of a block. `settings` are Kafka's names, with '_' for '.'."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    broker = RunningBroker(tmp_path / "data", named, prefix)
    with closing(broker.port):
        broker.start()
        try:
            yield broker
        finally:
            broker.kill()


@contextmanager
def given_or_running(directory: Path) -> Iterator[str]:
    """The cluster that ODRADEK_TEST_BOOTSTRAP names, or else a broker for the length of a block."""
    if given := os.environ.get("ODRADEK_TEST_BOOTSTRAP"):
        yield given
        return
    with running_broker(directory, group_initial_rebalance_delay_ms="0") as broker:
        yield broker.bootstrap


def turn_away(broker: RunningBroker, times: int) -> None:
    """In the place of a broker that is down: close connections as they come, until so many have been tried."""
    with socket.create_server(("127.0.0.1", int(broker.bootstrap.rpartition(":")[2]))) as server:
        server.settimeout(TURNED_AWAY_WITHIN_S)
        for _ in range(times):
            server.accept()[0].close()


@contextmanager
def no_descriptors_at_all(pid: int = 0) -> Iterator[None]:
    """A process, this one unless told, can open nothing, whatever it closes; what is open stays so."""
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        yield
    finally:
        with suppress(ProcessLookupError):  # it has ended meanwhile
            resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)


def await_end(process: "subprocess.Popen[str]", wait_s: float = 120) -> tuple[int, str]:
    """Exit status, and what it wrote to standard error since. A hang fails the test; if the process was started with
    PYTHONFAULTHANDLER, the failure shows what its threads do."""
    try:
        return process.wait(wait_s), process.stderr.read() if process.stderr else ""
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)
        _, errors = process.communicate(timeout=STOP_TIMEOUT_S)
        raise AssertionError(f"it has not ended after {wait_s} s:\n{errors}") from None


def odradek_command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "odradek", *arguments]


def run_command(
    *arguments: str, stdin: str | bytes = "", environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `odradek …` to its end; a hang or a traceback fails the test. Output is text, bad bytes replaced."""
    data = stdin.encode() if isinstance(stdin, str) else stdin
    result = subprocess.run(
        odradek_command(*arguments),
        input=data,
        capture_output=True,
        timeout=COMMAND_TIMEOUT_S,
        env={**os.environ, "NO_COLOR": "1", "COLUMNS": "200", **(environ or {})},
    )
    errors = result.stderr.decode()
    assert TRACEBACK not in errors, errors
    return subprocess.CompletedProcess(
        result.args, result.returncode, result.stdout.decode(errors="replace"), errors
    )
