"""Compile the kernels once per machine, early, and in one process at a time.

numba compiles a kernel when it is first called, and stores the code on disk: about 13 s of CPU on a new machine.
Left to themselves, all workers of a first run compile the same code side by side when their first task is due. Instead:

- `ready` calls a kernel with a small sample. Between processes there is a lock for each kind: the first one compiles,
  and those that come meanwhile wait and load what it stored.
- `prepare` starts a process that does so for every kind, while Java starts. A stamp, named by all that decides whether
  stored code fits, says that it was done; then there is nothing to start.

Locks and stamps are in the user's cache directory. Where it cannot be written, each process compiles by itself.
"""

import atexit
import hashlib
import importlib.metadata
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from odradek.spark.class_archive import cache_directory

OF_NUMBA = "NUMBA_CACHE_DIR"
END_S = 10.0


@cache
def ready(kind: str) -> None:
    """Return once the kernels of a kind are compiled and loaded; only a process's first call does something."""
    if (sample := SAMPLES.get(kind)) is not None:
        with _lock(kind):
            sample()


def prepare() -> "subprocess.Popen[bytes] | None":
    """Compile in a process of its own what this machine has not compiled yet. It ends with this process."""
    try:
        if _stamp().exists():
            return None
        process = subprocess.Popen(
            [sys.executable, "-m", "odradek.spark.kernels"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    except (OSError, importlib.metadata.PackageNotFoundError):
        return None
    atexit.register(_end, process)
    return process


def main() -> None:
    for kind in SAMPLES:
        ready(kind)
    stamp = _stamp()
    stamp.parent.mkdir(parents=True, exist_ok=True)
    stamp.touch()


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()


def _directory() -> Path:
    return cache_directory() / "kernels"


def _stamp() -> Path:
    """numba looks at the time of a source file, too, before it uses what it stored for it."""
    facts = [sys.version, importlib.metadata.version("numba"), os.environ.get(OF_NUMBA, "")]
    for source in sorted(Path(__file__).parent.rglob("*.py")):
        facts.append(f"{source} {source.stat().st_size} {source.stat().st_mtime_ns}")
    return _directory() / f"compiled-{hashlib.sha256(chr(10).join(facts).encode()).hexdigest()[:16]}"


@contextmanager
def _lock(kind: str) -> Iterator[None]:
    import fcntl

    try:
        _directory().mkdir(parents=True, exist_ok=True)
        file = (_directory() / f"{kind}.lock").open("wb")
    except OSError:
        yield
        return
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _read_records() -> None:
    import numpy as np

    from odradek.records.batch import BatchHeader
    from odradek.spark.compiled import read_only
    from odradek.spark.decoding import DecodedRows

    record = read_only(np.array([14, 0, 0, 0, 1, 2, 65, 0], np.uint8))  # no key, the value "A", no headers
    header = BatchHeader(**dict.fromkeys(BatchHeader._fields, 0))._replace(record_count=1)
    assert DecodedRows(1, record.size, with_headers=False).append(header, record, 0, 1)


def _write_records() -> None:
    import pyarrow as pa

    from odradek.spark.encoding import Encoder

    rows = pa.table({"key": pa.array([b"key"]), "value": pa.array([b"value"])})
    encoder = Encoder("sample", 1 << 16, lambda _: 1, random.Random(0))
    assert len(list(encoder.encode(rows, 0))) == 1


def _read_json() -> None:
    import numpy as np
    import pyarrow as pa

    from odradek.spark.typed.columns import Values
    from odradek.spark.typed.decoders import JsonDecoder
    from odradek.spark.typed.program import STRING, STRUCT, Field, Shape, compile_shape

    text = b'{"a":"b"}'
    values = Values(
        np.frombuffer(text, np.uint8).copy(), np.array([0, len(text)], np.int32), np.ones(1, np.uint8)
    )
    shape = Shape(STRUCT, below=(Field("a", False, Shape(STRING)),))
    decoder = JsonDecoder(compile_shape(shape), "UTC")
    found, _ = decoder.decode(values, pa.struct([pa.field("a", pa.string())]), pa.binary())
    assert found.to_pylist() == [{"a": "b"}]


SAMPLES: dict[str, Callable[[], None]] = {
    "reading": _read_records,
    "json": _read_json,
    "writing": _write_records,
}

if __name__ == "__main__":
    main()
