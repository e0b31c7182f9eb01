"""Names of topics, groups and transactional ids that completion in the shell has seen a moment ago.

Who presses TAB once presses it again: the second time, no cluster is asked. A cache is only good for a few seconds, and
only if it has a name that fits: a topic that was created meanwhile is found.
"""

import hashlib
import json
import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

SECONDS = 10.0


def cache_file(kind: str, bootstrap: str, settings: Mapping[str, str], environ: Mapping[str, str]) -> Path:
    """One for each cluster, and for each user of it: who may see less must not be shown more. Settings may be secret,
    so the file's name is a hash of them."""
    base = environ.get("XDG_CACHE_HOME")
    directory = (Path(base) if base else Path.home() / ".cache") / "odradek"
    facts = json.dumps([kind, bootstrap, sorted(settings.items())])
    return directory / f"completion-{hashlib.sha256(facts.encode()).hexdigest()[:32]}.json"


def read(file: Path) -> list[str]:
    """The names in it; none if it is missing or old."""
    try:
        if not 0 <= time.time() - file.stat().st_mtime <= SECONDS:
            return []
        return [str(name) for name in json.loads(file.read_text("utf-8"))]
    except (OSError, ValueError, TypeError):
        return []


def write(file: Path, names: Iterable[str]) -> None:
    """Write the file whole, or not at all: two shells may complete at the same moment."""
    with suppress(OSError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = file.with_suffix(f".{os.getpid()}")
        with open(part, "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as opened:
            json.dump(list(names), opened)
        os.replace(part, file)
