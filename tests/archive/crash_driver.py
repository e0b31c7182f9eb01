"""Archives a topic, and kills itself with -9 at one step: `crash_driver.py STEP BOOTSTRAP TOPIC ARCHIVE`."""

import os
import signal
import sys
from typing import Any

from odradek.archive.rows import FileWriter
from odradek.archive.tables import Table
from odradek.archiving import archiver
from odradek.cli.main import main

STEPS = {  # the object, the name of the function, and whether it is killed after it, or before
    "after the table is created": (Table, "create", True),
    "while a file is written": (FileWriter, "_write_group", True),
    "after a file is written": (FileWriter, "finish", True),
    "before the commit": (Table, "commit", False),
    "after the commit": (Table, "commit", True),
    "after a merged file is written": (archiver, "merge", True),
    "before a merge is committed": (Table, "replace", False),
    "after a merge is committed": (Table, "replace", True),
    "before the vacuum after a merge": (Table, "vacuum", False),
}


def plant(step: str) -> None:
    owner, name, after = STEPS[step]
    original = getattr(owner, name)

    def last(*arguments: Any) -> None:
        if after:
            original(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, name, last)


if __name__ == "__main__":
    step, bootstrap, topic, archive = sys.argv[1:]
    plant(step)
    sys.exit(main(["-b", bootstrap, "archive", topic, "--to", archive, "--quiet"]))
