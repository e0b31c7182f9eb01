"""Which planted bugs `make test-due` looks for: those whose module, or whose simulation, has changed.

What has changed is what a branch has beyond `main`; on `main` itself, what the last commits have changed. Where git
cannot tell, all bugs are due.
"""

import subprocess
from pathlib import Path

from tests.planting.changes import CannotPlant
from tests.planting.loading import module_of, source_path
from tests.planting.planted import Planted
from tests.planting.suites import Suite

ROOT = Path(__file__).parents[2]
MAIN = ("main", "origin/main")
LAST_COMMITS = 20  # of main, which may be as many as one submission has


def changed_paths() -> set[str] | None:
    """Paths within the repository, of files that may not be committed yet; None if git cannot tell."""
    base = _base()
    if base is None:
        return None
    changed = _git("diff", "--name-only", base)
    new = _git("ls-files", "--others", "--exclude-standard")
    return None if changed is None or new is None else {*changed, *new}


def _base() -> str | None:
    head = _git("rev-parse", "HEAD")
    for branch in MAIN:
        base = _git("merge-base", "HEAD", branch)
        if base and base != head:
            return base[0]
    ancestors = _git("rev-list", "--first-parent", f"--max-count={LAST_COMMITS + 1}", "HEAD")
    return ancestors[-1] if ancestors and len(ancestors) > 1 else None


def _git(*arguments: str) -> list[str] | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    except FileNotFoundError:
        return None
    return done.stdout.splitlines() if done.returncode == 0 else None


def is_due(suite: Suite, bug: Planted, changed: set[str] | None) -> bool:
    if changed is None:
        return True
    try:
        modules = {str(source_path(module_of(change)).relative_to(ROOT)) for change in bug.changes}
    except CannotPlant:
        return True  # and will say so
    folders = () if bug.script else suite.folders
    tests = {bug.script.partition("::")[0]} if bug.script else set()
    return not changed.isdisjoint(modules | tests) or any(
        f"{path}/".startswith(f"{folder}/") and not Path(path).name.startswith("test_")
        for path in changed
        for folder in ("tests/planting", *folders)
    )
