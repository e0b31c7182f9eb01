"""A node that runs on a simulated host calls nothing real, whichever way its code might have come to it.

`tests/test_layers.py` reads the modules; here every call of a function of the interpreter's own is looked at while a
node works, crashes and starts again.
"""

import gc
import random
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from tests.simulation.plan import Plan
from tests.simulation.world import World

REAL = {"time", "posix", "_socket", "_thread", "_posixsubprocess", "select", "fcntl", "_ctypes", "resource"}
# A module that is imported late is read from disk, a log line has the time of day, and hypothesis, once it has run in
# this process, measures how long the collector takes: not the node's doing.
ALLOWED_FILES = ("<frozen importlib", "/logging/", "/importlib/", "/hypothesis/")
# Paths as text; and what asyncio's own loop asks, to no effect: how fine a clock is, and which thread it is in.
PURE_CALLS = {"fspath", "_path_normpath", "get_clock_info", "get_ident"}


class Watch:
    """Notes the calls of real functions, and where they come from."""

    def __init__(self) -> None:
        self.found: set[str] = set()
        self.calls = 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "c_call":
            self.calls += 1
            module = getattr(argument, "__module__", None)
            if module in REAL and argument.__name__ not in PURE_CALLS and not is_allowed(frame):
                self.found.add(f"{module}.{argument.__name__} in {frame.f_code.co_filename}:{frame.f_lineno}")


def is_allowed(frame: FrameType | None) -> bool:
    while frame is not None:
        if any(part in frame.f_code.co_filename for part in ALLOWED_FILES):
            return True
        frame = frame.f_back
    return False


def watched(work: Callable[[], object]) -> Watch:
    """Collect before what other tests have left, and not meanwhile: it may close files of its own. Nor is anybody
    told of a collection, as hypothesis would be.
    """
    watch, before, callbacks = Watch(), sys.getprofile(), gc.callbacks[:]
    gc.collect()
    gc.disable()
    gc.callbacks.clear()
    sys.setprofile(watch)
    try:
        work()
    finally:
        sys.setprofile(before)
        gc.callbacks.extend(callbacks)
        gc.enable()
    return watch


def test_a_simulated_node_calls_nothing_real(monkeypatch: pytest.MonkeyPatch) -> None:
    seed = random.Random.seed

    def seeded(rng: random.Random, value: Any = None, *rest: Any) -> None:
        assert value is not None, "chance that does not come from the seed"
        seed(rng, value, *rest)

    monkeypatch.setattr(random.Random, "seed", seeded)

    def run() -> None:
        world = World(seed=3)
        world.run(Plan(world).carry_out())

    watch = watched(run)
    assert watch.calls > 10_000
    assert watch.found == set()


@pytest.mark.parametrize("name", ["time.monotonic", "os.getpid", "os.urandom", "threading.Thread.start"])
def test_the_watch_sees_what_is_hidden_from_readers(name: str) -> None:
    module, *path = name.split(".")

    def hidden() -> None:
        found: Any = __import__(module)
        for part in path:
            found = getattr(found, part)
        if name.startswith("threading"):
            found(__import__(module).Thread(target=len, args=("",)))
        else:
            found(*([4] if name == "os.urandom" else []))

    assert watched(hidden).found
