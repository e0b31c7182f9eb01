"""A small disk that can be filled, where a file system may be mounted; elsewhere the test is skipped."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

BALLAST = "ballast"


@contextmanager
def small_disk(directory: Path, size: str = "4m") -> Iterator[Path]:
    directory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(directory)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("no file system may be mounted here")
    try:
        yield directory
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


def fill_up(disk: Path) -> None:
    with suppress(OSError), (disk / BALLAST).open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 12))


def make_room(disk: Path) -> None:
    (disk / BALLAST).unlink()
