"""The console of `odradek up --console`: a process of its own, so that the broker's memory and latency stay what they
are. It says itself where it is. Its standard input is a pipe from here, and ends with us."""

import subprocess
import sys
from pathlib import Path

STOP_TIMEOUT_S = 10


class ConsoleProcess:
    def __init__(self, port: int) -> None:
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, bootstrap: str, client_file: Path | None = None) -> None:
        command = [sys.executable, "-m", "odradek", "console", "-b", bootstrap, "--lifeline"]
        command += ["--port", str(self._port), "--name", "local"]
        if client_file is not None:
            command += ["--command-config", str(client_file)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)

    def stop(self) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
