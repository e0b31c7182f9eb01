"""The brokers and the commands, run as a user would type them. Whatever happens, each is gone when its block ends.

Each gets a session of its own: Ctrl-C reaches only the demo, which then stops them one after the other, and what a
command has started (Spark's Java) can be ended with it.
"""

import json
import os
import queue
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

STOP_TIMEOUT_S = 60.0
COMMAND_TIMEOUT_S = 120.0
TICK_S = 0.15


class CommandFailed(Exception):
    """A command did not do what it was asked to."""


def environment(bootstrap: str) -> dict[str, str]:
    """Return the environment for commands: this Python's `odradek` comes first, and knows the brokers."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return {**os.environ, "PATH": path, "ODRADEK_BOOTSTRAP_SERVER": bootstrap}


@contextmanager
def _started(
    command: list[str], log: Path, environ: Mapping[str, str] | None = None, directory: Path | None = None
) -> Iterator["subprocess.Popen[str]"]:
    """A process whose standard output is a pipe; what it says otherwise goes to the log."""
    with log.open("a") as errors:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environ,
            cwd=directory,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        _end(process)


def _end(process: "subprocess.Popen[str]") -> None:
    try:
        if process.poll() is None:
            process.terminate()
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        pass
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)  # what is left of its group, if anything
        except (ProcessLookupError, PermissionError):
            pass
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@dataclass(frozen=True)
class Brokers:
    """The brokers of a cluster on this machine. Their ids count from 1."""

    bootstrap: str
    pids: list[int]
    directory: Path

    def settings_of(self, broker: int) -> Path:
        return self.directory / f"{broker}.properties"

    def kill(self, broker: int) -> None:
        os.kill(self.pids[broker - 1], signal.SIGKILL)


@contextmanager
def three_brokers(data: Path, log: Path) -> Iterator[Brokers]:
    """Start three brokers on ports that the system chooses, and yield once all of them serve."""
    command = [sys.executable, "-m", "odradek", "up", "--brokers", "3", "--port", "0", "--json"]
    with _started([*command, "--log-level", "warning", "--data-dir", str(data)], log) as process:
        facts = json.loads(_first_line(process, log, "the brokers"))
        yield Brokers(facts["bootstrap"], facts["pids"], data)


@contextmanager
def broker_again(settings: Path, log: Path) -> Iterator[None]:
    """One of them, after it has died, once it serves."""
    command = [sys.executable, "-m", "odradek", "broker", "--config", str(settings), "--json"]
    with _started([*command, "--log-level", "warning"], log) as process:
        _first_line(process, log, "the broker")
        yield


@contextmanager
def console_of(bootstrap: str, log: Path) -> Iterator[str]:
    """A web console on the brokers; its address."""
    command = [
        sys.executable,
        "-m",
        "odradek",
        "console",
        "-b",
        bootstrap,
        "--port",
        "0",
        "--name",
        "bookstore",
    ]
    with _started(command, log) as process:
        yield _first_line(process, log, "the console").split()[-1]


def _first_line(process: "subprocess.Popen[str]", log: Path, who: str) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise CommandFailed(f"{who} did not start:\n{tail(log)}")
    return line


def run_command(
    command: str, environ: Mapping[str, str], text: str = "", statuses: Collection[int] = (0,)
) -> str:
    """A command to its end, with one of these exit statuses; what it printed."""
    try:
        result = subprocess.run(
            shlex.split(command),
            input=text,
            capture_output=True,
            text=True,
            env=dict(environ),
            timeout=COMMAND_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        raise CommandFailed(f"'{command}' did not end within {COMMAND_TIMEOUT_S:.0f} seconds") from None
    if result.returncode not in statuses:
        raise CommandFailed(f"'{command}' failed:\n{result.stderr.strip()}")
    return result.stdout


def follow_command(
    command: str,
    environ: Mapping[str, str],
    directory: Path,
    log: Path,
    line: Callable[[str], None],
    tick: Callable[[], None],
) -> None:
    """A command that takes its time: every line it prints as it comes, and a tick now and then meanwhile."""
    with _started(shlex.split(command), log, environ, directory) as process:
        lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        reader = threading.Thread(target=_read_into, args=(process, lines), daemon=True)
        reader.start()
        while True:
            try:
                text = lines.get(timeout=TICK_S)
            except queue.Empty:
                tick()
                continue
            if text is None:
                break
            line(text)
        status = process.wait(STOP_TIMEOUT_S)
        reader.join()
    if status != 0:
        raise CommandFailed(f"'{command}' ended with status {status}:\n{tail(log)}")


def _read_into(process: "subprocess.Popen[str]", lines: "queue.SimpleQueue[str | None]") -> None:
    assert process.stdout is not None
    for text in process.stdout:
        lines.put(text)
    lines.put(None)


def tail(log: Path, lines: int = 15) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
