"""Commands of the demo: what they print, how they fail, and that they are gone afterwards."""

import os
import shlex
import sys
import time
from pathlib import Path

import pytest

from tools.bookstore import processes
from tools.bookstore.processes import CommandFailed, follow_command, run_command

# Starts a process of its own, which says who it is; both would stay for long, and do not mind SIGTERM.
STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
time.sleep(600)
"""


def python(code: str) -> str:
    return shlex.join([sys.executable, "-c", code])


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_command_that_fails_says_why() -> None:
    assert run_command(python("print(input())"), os.environ, "hello") == "hello\n"
    with pytest.raises(CommandFailed, match="no such topic"):
        run_command(python("import sys; sys.exit('no such topic')"), os.environ)


def test_every_line_of_a_command_is_followed(tmp_path: Path) -> None:
    lines: list[str] = []
    command = python("print(1); print(2)")
    follow_command(command, os.environ, tmp_path, tmp_path / "log", lines.append, lambda: None)
    assert lines == ["1\n", "2\n"]


def test_a_followed_command_that_fails_shows_the_end_of_its_log(tmp_path: Path) -> None:
    command = python("import sys; sys.exit('the broker is away')")
    with pytest.raises(CommandFailed, match="status 1:\nthe broker is away"):
        follow_command(command, os.environ, tmp_path, tmp_path / "log", print, lambda: None)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at /proc")
def test_what_a_command_started_ends_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "STOP_TIMEOUT_S", 0.1)
    children: list[int] = []

    def interrupt(line: str) -> None:
        children.append(int(line))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        follow_command(python(STUBBORN), os.environ, tmp_path, tmp_path / "log", interrupt, lambda: None)
    assert children
    while is_running(children[0]):  # SIGKILL was sent; the system takes its time
        time.sleep(0.01)
