"""The shape of the program, as docs/ARCHITECTURE.md draws it: imports point downward, and the cores are pure."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.apis.table import APIS
from tests.outside_world import (
    ALLOWED,
    PACKAGES_OF_A_NODE,
    ROOT,
    modules_of_a_node,
    reached_by,
    ways_around,
)

# A package may import from those of a lower number, and from itself.
LAYERS = {
    "wording": -2,
    "descriptors": -2,
    "errors": -1,
    "model": 0,
    "exposition": 0,
    "acls": 1,
    "wire": 1,
    "apis": 2,
    "records": 2,
    "security": 2,
    "storage": 3,
    "delta": 3,
    "host": 4,
    "quotas": 4,
    "client": 3,
    "config": 4,
    "raft": 4,
    "ledger": 4,
    "archive": 4,
    "spark": 5,
    "admin": 5,
    "console": 6,
    "pipeline": 6,
    "archiving": 6,
    "sql": 7,
    "mirror": 7,
    "metadata": 5,
    "net": 5,
    "controller": 6,
    "replication": 6,
    "coordinators": 6,
    "serving": 7,
    "services": 8,
    "fetching": 8,
    "api": 9,
    "broker": 10,
    "scripts": 11,
    "cli": 12,
    "testing": 12,
    "faults": 13,
}
# The rooms of storage, from the lowest up.
STORAGE = [
    "config",
    "disk",
    "segments",
    "producers",
    "log",
    "compaction",
    "directories",
    "strays",
    "upkeep",
    "checkpoints",
    "store",
]
# The rooms of services, from the lowest up.
SERVICES = ["cluster", "upkeep", "partitions", "coordination"]
CLIENTS = {
    *(
        "admin",
        "archive",
        "archiving",
        "cli",
        "client",
        "console",
        "delta",
        "ledger",
        "mirror",
        "pipeline",
        "scripts",
        "spark",
        "sql",
    ),
    "testing",
}
PURE = ("acls", "raft", "controller", "replication", "coordinators", "quotas")
IMPURE_MODULES = {"asyncio", "os", "socket", "subprocess", "threading", "time"}
# Settings files are read alike on both sides; otherwise `cli up` alone touches the broker: it runs one or several, and
# `cli format`, which makes its directory, as Kafka's storage script does; its dump script reads the files. The other
# commands are clients like any other.
RUNS_A_BROKER = {
    *("cli/up.py", "cli/up_join.py", "cli/up_claim.py", "cli/up_home.py", "cli/up_processes.py"),
    *("cli/format.py", "cli/scram_option.py", "cli/up_secure.py", "cli/up_settings.py"),
    *("scripts/storage.py", "scripts/dump_log.py"),
}


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


@pytest.mark.parametrize(("package", "rooms"), [("storage", STORAGE), ("services", SERVICES)])
def test_imports_point_downward_within_a_package(package: str, rooms: list[str]) -> None:
    upward = []
    for path in sorted((ROOT / package).rglob("*.py")):
        room = path.relative_to(ROOT / package).parts[0].removesuffix(".py")
        for module in imports(path):
            other = module.removeprefix(f"odradek.{package}.").split(".")[0]
            if module.startswith(f"odradek.{package}.") and rooms.index(other) > rooms.index(room):
                upward.append(f"{path.relative_to(ROOT)} imports {module}")
    assert upward == []


def test_api_holds_one_module_or_package_for_each_api_and_nothing_else() -> None:
    named = {module for api in APIS.values() for module in api.modules.values()}
    found = {path.stem for path in (ROOT / "api").glob("*.py")} - {"__init__"}
    assert found == {module for module in named if "." not in module}
    packages = {path.parent.name for path in (ROOT / "api").glob("*/__init__.py")}
    assert {f"{package}.handler" for package in packages} == {module for module in named if "." in module}


def test_what_an_api_keeps_to_itself_is_used_by_nobody_else() -> None:
    """The modules of `api/produce/` and `api/fetch/` are for these APIs."""
    strangers = [
        f"{path.relative_to(ROOT)} imports {module}"
        for _, path in modules()
        for module in imports(path)
        if (parts := module.split("."))[:2] == ["odradek", "api"]
        and len(parts) > 3
        and ROOT / "api" / parts[2] not in path.parents
    ]
    assert strangers == []


def test_client_side_knows_no_broker() -> None:
    allowed = {
        "wording",
        "descriptors",
        "errors",
        "model",
        "exposition",
        "acls",
        "wire",
        "records",
        "security",
        "config",
        "client",
        "delta",
        "ledger",
        "archive",
        "archiving",
        "sql",
        "admin",
        "console",
        "spark",
        "pipeline",
        "mirror",
        "scripts",
        "cli",
        "testing",
    }
    strangers = []
    for name, path in modules():
        if name not in CLIENTS or path.relative_to(ROOT).as_posix() in RUNS_A_BROKER:
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


def test_a_node_reaches_the_world_through_what_it_is_given() -> None:
    parts = modules_of_a_node()
    assert len(parts) > 200, "most of the package makes up a node"
    assert [way for path in parts for way in ways_around(path)] == []


def test_no_exception_outlives_its_reason() -> None:
    for name, allowed in ALLOWED.items():
        used = list(reached_by((ROOT / name).read_text()))
        unused = {one for one in allowed if not any(f"{way}.".startswith(f"{one}.") for way in used)}
        assert not unused, f"{name} does not need {unused}"


def test_a_node_is_built_from_its_own_packages() -> None:
    strangers = [
        f"{path.relative_to(ROOT)} imports {module}"
        for path in modules_of_a_node()
        for module in imports(path)
        if module.startswith("odradek.") and module.split(".")[1] not in PACKAGES_OF_A_NODE
    ]
    assert strangers == []


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "import time as pure",
        "from time import monotonic",
        "from concurrent.futures import ThreadPoolExecutor",
        "import concurrent.futures as more",
        "import asyncio\nasyncio.to_thread(print)",
        "import asyncio as a\na.to_thread(print)",
        "from asyncio import to_thread",
        "import asyncio\nlater = asyncio.base_events.time.monotonic",
        "import asyncio\nanything = asyncio",
        "import asyncio\ngetattr(asyncio, 'to_thread')(print)",
        "loop.run_in_executor(None, print)",
        "getattr(loop, 'run_in_executor')(None, print)",
        "import uuid\nuuid.uuid4()",
        "from uuid import uuid4",
        "from uuid import uuid4 as new_id",
        "import os\nos.urandom(4)",
        "import os as o\no.getpid()",
        "from os import scandir",
        "from os.path import getmtime",
        "import os.path as paths\npaths.exists('x')",
        "from random import Random\nRandom()",
        "from random import Random\nRandom(None)",
        "import random\nrandom.choice([1])",
        "import random as chance\nchance.random()",
        "rng.seed()",
        "from datetime import datetime\ndatetime.now()",
        "import asyncio\nasyncio.create_subprocess_exec('ls')",
        "import socket",
        "import secrets",
        "import contextlib\ncontextlib.os.urandom(4)",
        "from contextlib import os",
        "from typing import sys",
        "from time import *",
        "from . import log",
        "from odradek.storage.disk.files import os",
        "from odradek.host import real\nreal.time.monotonic()",
        "import odradek.host.real\nodradek.host.real.time.monotonic()",
        "from odradek.broker.descriptors import max_connections",
        "__import__('time')",
        "from importlib import import_module\nimport_module('time')",
        "open('/etc/hostname')",
        "sorted(things, key=id)",
        "sorted(names, key=hash)",
        "def later():\n    import time",
    ],
)
def test_the_rule_sees_each_way_around(source: str) -> None:
    assert list(reached_by(source))


@pytest.mark.parametrize(
    "source",
    [
        "import asyncio\nasyncio.get_running_loop().time()",
        "import os\nos.path.join('a', 'b')",
        "from os.path import dirname",
        "import random\nrng = random.Random(1)",
        "from collections.abc import Callable",
        "from odradek.host.interface import Host",
        "host.monotonic()",
    ],
)
def test_the_rule_lets_pass_what_is_pure(source: str) -> None:
    assert list(reached_by(source)) == []


# --- one road ---


def test_one_module_calls_handlers() -> None:
    """Handlers are found through `serving.registry` alone, and only the road looks there."""
    finders = [
        path.relative_to(ROOT).as_posix()
        for name, path in modules()
        if name in PACKAGES_OF_A_NODE or name == "faults"
        if "odradek.serving.registry" in imports_of_names(path)
    ]
    assert finders == ["serving/road.py"]
    handlers = {f"odradek.api.{module}" for api in APIS.values() for module in api.modules.values()}
    importers = [
        f"{path.relative_to(ROOT)} imports {module}"
        for name, path in modules()
        if name != "api"
        for module in imports(path)
        if module in handlers
    ]
    assert importers == []
    callers = [
        f"{path.relative_to(ROOT)}: {ast.unparse(node)}"
        for name, path in modules()
        if name == "api"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("handle", "handle_all")
    ]
    assert callers == []


def imports_of_names(path: Path) -> set[str]:
    """Modules that are imported as such, and those that names are imported from."""
    found = set(imports(path))
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found
