"""A PostgreSQL server for tests and measurements, from Debian's packages (`make postgresql`).

If this process is root's, the server is the user `postgres`'s, because it refuses to be root's. It listens on 127.0.0.1
alone, and its files are gone afterwards.
"""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from odradek.testing.port import KeptPort

PASSWORD = "zu/geheim:für@argv"
WAIT_S = 60.0
SETTINGS = ("unix_socket_directories=", "listen_addresses=127.0.0.1", "max_connections=20")


class Missing(Exception):
    """PostgreSQL is not installed."""


def programs() -> Path | None:
    """The newest installed version's."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if found:
        return found[-1].parent
    initdb = shutil.which("initdb")
    return None if initdb is None else Path(initdb).parent


class PostgreSQL:
    def __init__(self, binaries: Path, directory: Path, user: str | None, settings: Sequence[str]) -> None:
        self._binaries, self.directory, self._user = binaries, directory, user
        self._settings = (*SETTINGS, *settings)
        self._kept = KeptPort(must_be_known=True)  # also while the server is down
        self.data, self.port = directory / "data", self._kept.number
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Without the password."""
        return f"postgresql://shop@127.0.0.1:{self.port}/postgres"

    def initialize(self) -> None:
        secret = self.directory / "password"
        secret.write_text(PASSWORD)
        options = (
            "--username=shop",
            "--auth=scram-sha-256",
            f"--pwfile={secret}",
            "--no-sync",
            "--encoding=UTF8",
        )
        self._run("initdb", f"--pgdata={self.data}", *options)

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._binaries / program), *arguments]
        done = subprocess.run(command, user=self._user, capture_output=True, text=True, cwd=self.directory)
        assert done.returncode == 0, done.stderr

    def start(self) -> None:
        assert self._process is None
        command = [str(self._binaries / "postgres"), f"-D{self.data}", f"-p{self.port}"]
        command += [part for setting in self._settings for part in ("-c", setting)]
        with (self.directory / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                user=self._user,
                cwd=self.directory,
                stdout=log,
                stderr=log,
                env={"LC_ALL": "C.UTF-8"},
            )
        self._await()

    def _await(self) -> None:
        import psycopg

        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                self.connect().close()
                return
            except psycopg.OperationalError:
                assert time.monotonic() < deadline, (self.directory / "server.log").read_text()
                time.sleep(0.05)

    def crash(self) -> None:
        """Every process ends at once, without a checkpoint; the next start recovers."""
        self._end(signal.SIGQUIT)

    def stop(self) -> None:
        if self._process is not None:
            self._end(signal.SIGINT)

    def close(self) -> None:
        self.stop()
        self._kept.close()

    def _end(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        self._process.wait(60)
        self._process = None

    # What tests ask

    def connect(self) -> Any:
        import psycopg

        return psycopg.connect(
            host="127.0.0.1",
            port=self.port,
            user="shop",
            password=PASSWORD,
            dbname="postgres",
            autocommit=True,
        )

    def run(self, *statements: str) -> None:
        with self.connect() as connection:
            for statement in statements:
                connection.execute(statement)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with self.connect() as connection:
            return list(connection.execute(query).fetchall())


@contextmanager
def running_postgresql(*settings: str) -> Iterator[PostgreSQL]:
    """A new server, empty. `Missing` if there is none here."""
    binaries = programs()
    if binaries is None:
        raise Missing("PostgreSQL is not installed: run 'make postgresql'")
    is_root = os.getuid() == 0
    directory = Path(tempfile.mkdtemp(prefix="odradek-postgresql-"))  # pytest's own are closed to other users
    if is_root:
        owner = pwd.getpwnam("postgres")
        os.chown(directory, owner.pw_uid, owner.pw_gid)
    server = PostgreSQL(binaries, directory, "postgres" if is_root else None, settings)
    try:
        server.initialize()
        server.start()
        yield server
    finally:
        server.close()
        shutil.rmtree(directory, ignore_errors=True)
