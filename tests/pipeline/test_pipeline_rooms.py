"""The shape of the package: imports between its rooms point downward, and only `kinds/` knows the kinds."""

import ast
from pathlib import Path

import odradek.pipeline
from tests.test_layers import imports

ROOT = Path(odradek.pipeline.__file__).parent
ROOMS = ["file", "checkpoint", "session", "rows", "kinds", "check", "run"]
KINDS = {
    "TopicSource",
    "FileSource",
    "StaticFile",
    "JdbcTable",
    "TopicSink",
    "FileSink",
    "DeltaSink",
    "IcebergSink",
    "TableSink",
    "JdbcSink",
    "DatabaseTable",
    "DataSource",
    "DatabaseSink",
    "FunctionSink",
    "ConsoleSink",
}
COMMANDS = ROOT.parent / "cli"


def test_imports_point_downward_between_rooms() -> None:
    upward = []
    for path in sorted(ROOT.rglob("*.py")):
        room = path.relative_to(ROOT).parts[0].removesuffix(".py")
        for module in imports(path):
            if module.startswith("odradek.pipeline."):
                other = module.split(".")[2]
                if ROOMS.index(other) > ROOMS.index(room):
                    upward.append(f"{path.relative_to(ROOT)} imports {module}")
    assert upward == []


def test_reading_the_file_and_the_checkpoint_needs_no_spark() -> None:
    users = [
        str(path.relative_to(ROOT))
        for path in [*(ROOT / "file").glob("*.py"), ROOT / "checkpoint.py"]
        if any(module.split(".")[0] in ("pyspark", "pyarrow") for module in imports(path))
    ]
    assert users == []


def test_only_the_kinds_ask_of_which_kind_something_is() -> None:
    askers = []
    for path in [*ROOT.rglob("*.py"), *COMMANDS.glob("pipeline*.py")]:
        if (ROOT / "kinds") in path.parents:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
                asked = {name.id for name in ast.walk(node.args[1]) if isinstance(name, ast.Name)}
                if asked & KINDS:
                    askers.append(f"{path.name}:{node.lineno}: {ast.unparse(node)}")
    assert askers == []
