"""Kernels are compiled by one process at a time, and once per machine."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from odradek.spark import kernels

READY = """
from odradek.spark import kernels
kernels.ready("reading")
from odradek.spark import decoding_kernel
print(sum(decoding_kernel.decode_records.stats.cache_misses.values()))
"""


def environ(directory: Path) -> dict[str, str]:
    return {**os.environ, "XDG_CACHE_HOME": str(directory), "NUMBA_CACHE_DIR": str(directory / "numba")}


def test_of_two_processes_that_need_a_kernel_one_compiles_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", READY]
    both = [
        subprocess.Popen(command, env=environ(tmp_path), stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    assert sorted(int(one.communicate()[0]) for one in both) == [0, 1]


def test_nothing_is_prepared_that_has_been_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    done: list[str] = []
    monkeypatch.setattr(kernels, "SAMPLES", {kind: lambda: done.append("") for kind in kernels.SAMPLES})
    monkeypatch.setattr(kernels, "ready", kernels.ready.__wrapped__)
    kernels.main()
    assert len(done) == len(kernels.SAMPLES)
    assert kernels.prepare() is None
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setattr(sys, "executable", "/bin/true")
    process = kernels.prepare()
    assert process is not None, "another place for compiled code has none yet"
    assert process.wait(30) == 0


@pytest.mark.parametrize("kind", kernels.SAMPLES)
def test_samples_use_the_types_that_tasks_use(kind: str) -> None:
    kernels.ready(kind)


def test_without_a_place_for_locks_each_process_compiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    done: list[str] = []
    monkeypatch.setitem(kernels.SAMPLES, "reading", lambda: done.append("compiled"))
    kernels.ready.__wrapped__("reading")
    assert done == ["compiled"]
