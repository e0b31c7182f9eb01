"""The shape of the program, as docs/ARCHITECTURE.md draws it: imports point downward, and the cores are pure."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import odradek

ROOT = Path(odradek.__file__).parent

# A package may import from those of a lower number, and from itself.
LAYERS = {
    "errors": -1,
    "model": 0,
    "wire": 1,
    "records": 2,
    "storage": 3,
    "host": 4,
    "client": 3,
    "config": 4,
    "raft": 4,
    "spark": 4,
    "pipeline": 5,
    "metadata": 5,
    "net": 5,
    "controller": 6,
    "replication": 6,
    "coordinators": 6,
    "api": 7,
    "broker": 8,
    "cli": 9,
    "testing": 9,
    "faults": 10,
}
PURE = ("raft", "controller", "replication", "coordinators")
IMPURE_MODULES = {"asyncio", "os", "socket", "subprocess", "threading", "time"}
# A node reaches the world through what it is given. These modules are what it is given on a real machine: the host,
# the sockets, the files; they, and what starts a process, may reach for the real thing.
NODE = ("broker/node.py", "broker/groups.py", "host/simulated.py", "storage/simulated.py")
REAL = {"host/real.py", "net/server.py", "net/connection.py", "net/output.py", "storage/files.py"}
WORLD_MODULES = {
    "concurrent",
    "multiprocessing",
    "secrets",
    "select",
    "selectors",
    "shutil",
    "signal",
    "socket",
    "subprocess",
    "threading",
    "time",
}
WORLD_CALLS = {
    "asyncio.create_subprocess_exec",
    "asyncio.create_subprocess_shell",
    "asyncio.open_connection",
    "asyncio.start_server",
    "asyncio.to_thread",
    "date.today",
    "datetime.now",
    "datetime.utcnow",
    "os.fork",
    "os.getpid",
    "os.getrandom",
    "os.urandom",
    "random.SystemRandom",
    "uuid.uuid1",
    "uuid.uuid4",
    "uuid1",
    "uuid4",
}
WORLD_METHODS = {"run_in_executor", "create_server", "create_connection"}
# Settings files are read alike on both sides; otherwise `cli up` alone touches the broker: it runs one. The other
# commands are clients like any other.
RUNS_A_BROKER = {"cli/up.py"}


def imports(path: Path) -> Iterator[str]:
    """Modules imported anywhere in a file, but for the eyes of the type checker."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for child in node.body:
                child.__class__ = ast.Pass
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(ROOT.rglob("*.py")):
        name = path.relative_to(ROOT).parts[0].removesuffix(".py")
        if name not in ("__init__", "__main__"):
            yield name, path


def test_every_package_has_a_layer() -> None:
    assert {name for name, _ in modules()} == set(LAYERS)


def test_imports_point_downward() -> None:
    upward = []
    for name, path in modules():
        if path.relative_to(ROOT).as_posix() in RUNS_A_BROKER:
            continue
        for module in imports(path):
            other = module.removeprefix("odradek.").split(".")[0]
            if module.startswith("odradek.") and other != name and LAYERS[other] >= LAYERS[name]:
                upward.append(f"{path.relative_to(ROOT)} imports {module}")
    assert upward == []


def test_client_side_knows_no_broker() -> None:
    allowed = {
        "errors",
        "model",
        "wire",
        "records",
        "config",
        "client",
        "spark",
        "pipeline",
        "cli",
        "testing",
    }
    strangers = []
    for name, path in modules():
        if (
            name not in ("cli", "client", "pipeline", "spark", "testing")
            or path.relative_to(ROOT).as_posix() in RUNS_A_BROKER
        ):
            continue
        for module in imports(path):
            if module.startswith("odradek.") and module.split(".")[1] not in allowed:
                strangers.append(f"{path.relative_to(ROOT)} imports {module}")
    assert strangers == []


def test_cores_are_pure() -> None:
    impure = [
        f"{path.relative_to(ROOT)} imports {module}"
        for name, path in modules()
        if name in PURE
        for module in imports(path)
        if module.split(".")[0] in IMPURE_MODULES
    ]
    assert impure == []


# --- one outside world ---


def path_of(module: str) -> Path | None:
    path = ROOT.joinpath(*module.split(".")[1:]).with_suffix(".py")
    return path if path.exists() else None


def imported_files(path: Path) -> Iterator[Path]:
    """The modules of ours that a file imports, whichever way."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            if name.startswith("odradek.") and (found := path_of(name)) is not None:
                yield found


def parts_of_a_node() -> list[Path]:
    """All that a node is built from: what it imports, and what that imports, but not beyond what is real."""
    waiting, found = [ROOT / name for name in NODE], set[Path]()
    while waiting:
        path = waiting.pop()
        if path not in found and path.relative_to(ROOT).as_posix() not in REAL:
            found.add(path)
            waiting += imported_files(path)
    return sorted(found)


def reached(source: str) -> Iterator[str]:
    """What of the real world a module reaches."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] in WORLD_MODULES)
        elif isinstance(node, ast.ImportFrom):
            if (node.module or "").split(".")[0] in WORLD_MODULES:
                yield str(node.module)
            yield from (alias.name for alias in node.names if alias.name in WORLD_CALLS)
        elif (
            isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == "Random" and not node.args
        ):
            yield "a Random without a seed"
        elif isinstance(node, ast.Attribute):
            name = ast.unparse(node)
            if name in WORLD_CALLS or (name.startswith("random.") and name not in ("random.Random",)):
                yield name
            elif node.attr in WORLD_METHODS:
                yield node.attr


def test_a_node_reaches_the_world_through_what_it_is_given() -> None:
    parts = parts_of_a_node()
    assert len(parts) > 100, "most of the package makes up a node"
    around = [f"{path.relative_to(ROOT)}: {name}" for path in parts for name in reached(path.read_text())]
    assert around == []


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "from time import monotonic",
        "from concurrent.futures import ThreadPoolExecutor",
        "import asyncio\nasyncio.to_thread(print)",
        "loop.run_in_executor(None, print)",
        "import uuid\nuuid.uuid4()",
        "from uuid import uuid4",
        "import os\nos.urandom(4)",
        "from random import Random\nRandom()",
        "import random\nrandom.choice([1])",
        "from datetime import datetime\ndatetime.now()",
        "import asyncio\nasyncio.create_subprocess_exec('ls')",
        "import socket",
        "import secrets",
    ],
)
def test_the_rule_sees_each_way_around(source: str) -> None:
    assert list(reached(source))
