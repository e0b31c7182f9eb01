"""Writes the scripts into a directory: each calls the Python that is running now, with its module."""

import shlex
import sys
from pathlib import Path

from odradek.scripts.running import SCRIPTS

MARK = "# Written by 'odradek scripts install'."
TEXT = """\
#!/bin/sh
{mark}
exec {python} -m odradek.scripts {script} "$@"
"""


class WouldOverwrite(Exception):
    """A file of that name is there, and it is not ours."""


def install(directory: Path) -> list[Path]:
    """Write or renew all of them. Raises WouldOverwrite, before anything is written, and OSError."""
    files = {directory / f"kafka-{script}.sh": script for script in SCRIPTS}
    for file in files:
        if file.exists() and MARK not in file.read_text("utf-8", errors="replace"):
            raise WouldOverwrite(f"{file} is there already, and it is not Odradek's: name another directory")
    directory.mkdir(parents=True, exist_ok=True)
    for file, script in files.items():
        file.write_text(TEXT.format(mark=MARK, python=shlex.quote(sys.executable), script=script))
        file.chmod(0o755)
    return list(files)
