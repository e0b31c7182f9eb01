"""The shape of the program, as docs/ARCHITECTURE.md draws it: imports point downward, and the cores are pure."""

import ast
from collections.abc import Iterator
from pathlib import Path

import odradek

ROOT = Path(odradek.__file__).parent

# A package may import from those of a lower number, and from itself.
LAYERS = {
    "errors": -1,
    "model": 0,
    "wire": 1,
    "records": 2,
    "storage": 3,
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
}
PURE = ("raft", "controller", "replication", "coordinators")
IMPURE_MODULES = {"asyncio", "os", "socket", "subprocess", "threading", "time"}
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
