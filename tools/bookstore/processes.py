"""The broker and the commands, run as a user would type them. Whatever happens, each is gone when its block ends.

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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

STOP_TIMEOUT_S = 60.0
COMMAND_TIMEOUT_S = 120.0
TICK_S = 0.15


class CommandFailed(Exception):
    """A command did not do what it was asked to."""


def environment(bootstrap: str) -> dict[str, str]:
    """For commands: this Python's `odradek` comes first, and knows the broker."""
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


@contextmanager
def broker(data: Path, log: Path) -> Iterator[str]:
    """A broker on a port that the system chooses; where it listens."""
    command = [sys.executable, "-m", "odradek", "up", "--port", "0", "--json", "--log-level", "warning"]
    with _started([*command, "--data-dir", str(data)], log) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise CommandFailed(f"the broker did not start:\n{tail(log)}")
        yield json.loads(line)["bootstrap"]


def run_command(command: str, environ: Mapping[str, str], text: str = "") -> str:
    """A command to its end; what it printed."""
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
    if result.returncode != 0:
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
