"""Build and run the load generators, which are C and Go so that the client is not what is measured.

The librdkafka that comes with confluent-kafka is taken where there is one. Debian's 2.0.2 waits for the last
millisecond of a timer in a busy loop, and has such a timer in every transaction: 1.5 ms of CPU that the broker
beside it lacks.

Each takes `MODE key=value …` and prints one line of JSON, perhaps after a line `ready`. They are built when
first needed and when their source has changed.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
BUILD = HERE / "build"
LIBRARIES = {"load": ["-lrdkafka"], "redis_load": ["-lhiredis"], "replay": [], "limit": []}
PACKAGES = {"load": "librdkafka-dev", "redis_load": "libhiredis-dev"}
RUN_TIMEOUT_S = 600


class Unavailable(Exception):
    """A system, or the client for it, cannot be had on this machine; the message says why."""


class LoadFailed(Exception):
    """A load generator ended with an error; the message is what it said."""


def tool(name: str) -> Path:
    """The program, built anew if its source is younger."""
    if name == "streams":
        sources = [*HERE.glob("streams/*.go")]
    else:
        sources = [HERE / f"{name}.c", HERE / "common.h", Path(__file__)]
    target = BUILD / name
    if not target.exists() or any(source.stat().st_mtime > target.stat().st_mtime for source in sources):
        BUILD.mkdir(exist_ok=True)
        unfinished = BUILD / f"{name}.{os.getpid()}"  # another process may be building the same
        _build_go(unfinished) if name == "streams" else _build_c(name, unfinished)
        unfinished.replace(target)
    return target


def _build_c(name: str, target: Path) -> None:
    if shutil.which("cc") is None:
        raise Unavailable("there is no C compiler (Debian: apt-get install gcc libc6-dev)")
    source = str(HERE / f"{name}.c")
    libraries = (bundled_librdkafka() if name == "load" else []) or LIBRARIES[name]
    command = ["cc", "-O2", "-Wall", "-o", str(target), source, *libraries, "-lpthread"]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        hint = f" (Debian: apt-get install {PACKAGES[name]})" if name in PACKAGES else ""
        raise Unavailable(f"{name}.c does not compile{hint}: {_first_line(result.stderr)}")


def bundled_librdkafka() -> list[str]:
    """Find librdkafka in the wheel of confluent-kafka. It is newer than most systems' own, whose headers fit it.
    Empty if there is none."""
    package = find_spec("confluent_kafka")
    origin = package.origin if package is not None else None
    directory = Path(origin or "").parent.parent / "confluent_kafka.libs"
    found = sorted(directory.glob("librdkafka-*.so*")) if origin else []
    return [str(found[0]), f"-Wl,-rpath,{directory}"] if found else []


def _build_go(target: Path) -> None:
    if shutil.which("go") is None:
        raise Unavailable("its client is written in Go, which is not installed")
    command = ["go", "build", "-o", str(target), "."]
    result = subprocess.run(command, cwd=HERE / "streams", capture_output=True, text=True)
    if result.returncode != 0:
        raise Unavailable(f"its Go client could not be built: {_first_line(result.stderr)}")


def _first_line(output: str) -> str:
    return next((line for line in output.splitlines() if line.strip()), "no reason given")


def _command(name: str, mode: str, arguments: Mapping[str, object]) -> list[str]:
    return [str(tool(name)), mode, *(f"{key}={value}" for key, value in arguments.items())]


def run(name: str, mode: str, arguments: Mapping[str, object]) -> dict[str, Any]:
    """Run it to its end and return what it printed."""
    command = _command(name, mode, arguments)
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=RUN_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise LoadFailed(f"{name} {mode} took longer than {RUN_TIMEOUT_S} s") from None
    return _parse(f"{name} {mode}", result.returncode, result.stdout, result.stderr)


@contextmanager
def running(name: str, mode: str, arguments: Mapping[str, object]) -> Iterator[dict[str, Any]]:
    """Wait until it says `ready`, let the block work beside it, then end its input, wait for its end and fill the
    dict."""
    output: dict[str, Any] = {}
    command = _command(name, mode, arguments)
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    try:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise LoadFailed(f"{name} {mode}: {_first_line(process.communicate()[1])}")
        yield output
        stdout, stderr = process.communicate(timeout=RUN_TIMEOUT_S)
        output |= _parse(f"{name} {mode}", process.returncode, stdout, stderr)
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def _parse(what: str, status: int, stdout: str, stderr: str) -> dict[str, Any]:
    if status != 0:
        reason = stderr.strip().rpartition("\n")[2]  # before it, libraries may have said things
        raise LoadFailed(f"{what}: {reason or 'no reason given'}")
    parsed: dict[str, Any] = json.loads(stdout.splitlines()[-1])
    return parsed
