"""A real schema registry on this machine: Apicurio Registry, fetched by Maven once, kept in the user's cache.

It speaks the protocol of Confluent's registry, below `CONFLUENT_API`. 2.5.11 is the newest version of which Maven
Central has the whole program. It keeps its schemas in memory.
"""

import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.peer.kafka import PeerUnavailable
from tools.spark_jars import fetch

VERSION = "2.5.11.Final"
ARTIFACT = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
PROGRAM = f"apicurio-registry-app-{VERSION}-runner.jar"
OPTIONS = ("-Xmx512m", "-Dquarkus.http.host=127.0.0.1", "-Dquarkus.http.port=0")
CONFLUENT_API = "/apis/ccompat/v7"
START_TIMEOUT_S = 180.0
LISTENING = re.compile(r"Listening on: (http://[\d.:]+)")


def installed() -> Path:
    """The directory of the program, filled on first use; 140 MB."""
    if shutil.which("java") is None:
        raise PeerUnavailable("Java is not installed (Debian: apt-get install openjdk-17-jre-headless)")
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    directory = Path(base) / "odradek" / f"apicurio-registry-{VERSION}"
    if not directory.exists():
        directory.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory.parent) as scratch:
            archive = Path(scratch) / f"apicurio-registry-app-{VERSION}-all.tar.gz"
            fetch(ARTIFACT, archive)
            with tarfile.open(archive) as packed:
                packed.extractall(Path(scratch) / "program", filter="data")
            (Path(scratch) / "program").rename(directory)
    return directory


@contextmanager
def running_registry() -> Iterator[str]:
    """Yields its URL, as clients of Confluent's registry take it."""
    directory = installed()
    process = subprocess.Popen(
        ["java", *OPTIONS, "-jar", PROGRAM],
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    impatient = threading.Timer(START_TIMEOUT_S, process.kill)
    impatient.start()
    assert process.stdout is not None
    try:
        said = []
        for line in process.stdout:
            said.append(line)
            if found := LISTENING.search(line):
                break
        else:
            raise PeerUnavailable(f"the registry did not start: {''.join(said[-5:])}")
        impatient.cancel()
        threading.Thread(
            target=process.stdout.read, daemon=True
        ).start()  # or it would stop when the pipe is full
        yield found[1] + CONFLUENT_API
    finally:
        impatient.cancel()
        process.kill()
        process.wait()
