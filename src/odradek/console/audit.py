"""One line for each change that somebody asked for, whether it was made or refused. Values are not in it: they may be
secret."""

import json
import logging
import os
import time
from pathlib import Path

from odradek.wording import one_line, shown

log = logging.getLogger("odradek.console.audit")


class Audit:
    """Lines of the log and, if a file is given, JSON lines there."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file

    def note(self, user: str, address: str, cluster: str, action: str, target: str, outcome: str) -> None:
        log.info(
            "%s from %s: %s %s on %s: %s",
            *(shown(user), address, action, one_line(target, 300), shown(cluster), one_line(outcome, 300)),
        )
        if self._file is None:
            return
        fields = {
            "time_ms": time.time_ns() // 1_000_000,
            "user": user,
            "address": address,
            "cluster": cluster,
            "action": action,
            "target": target,
            "outcome": outcome,
        }
        descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with open(descriptor, "a", encoding="utf-8") as output:
            output.write(json.dumps(fields, ensure_ascii=False) + "\n")
