"""The commands of `odradek pipeline` share this: options, Spark, and how problems are reported."""

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from odradek.cli.arguments import key_value
from odradek.cli.failures import CommandError
from odradek.cli.framework import Argument, Exit, Option
from odradek.cli.output import print_json_line
from odradek.pipeline.file import document
from odradek.pipeline.file.definition import Pipeline
from odradek.pipeline.file.errors import PipelineError, PipelineErrors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FileArgument = Annotated[
    str, Argument(metavar="FILE", help="The pipeline's file, or its name if the file is in this directory.")
]
FilesArgument = Annotated[list[str], Argument(metavar="FILE...", help="Pipelines' files, or their names.")]
Master = Annotated[
    str | None,
    Option("--master", metavar="URL", help="Where Spark runs: local[2], spark://host:7077, yarn …"),
]
Conf = Annotated[list[str] | None, Option("--conf", metavar="KEY=VALUE", help="A Spark setting; repeatable.")]
Verbose = Annotated[bool, Option("--verbose", "-v", help="Show the log of Spark and Java.")]
Offline = Annotated[
    bool, Option("--offline", help="Do not look at the cluster, databases or the checkpoint.")
]

JAVA_END_S = 5.0  # how long a process may take to end after its connections are gone
# What the extra `spark` installs and these commands import.
PACKAGES = {"pandas": "pandas", "pyarrow": "PyArrow", "pyspark": "PySpark", "rich": "rich"}


@contextlib.contextmanager
def told(as_json: bool = False) -> Iterator[None]:
    """Report a problem with a pipeline, or that a package is missing, in one message with exit status 1.

    Modules that import Spark are imported inside this block.
    """
    try:
        with _missing_packages_told():
            yield
    except PipelineError as error:
        if not as_json:
            raise CommandError(str(error)) from None
        errors = error.errors if isinstance(error, PipelineErrors) else [error]
        found = [
            {
                "file": str(one.file) if one.file else None,
                "line": one.line,
                "key": one.key,
                "problem": one.problem,
            }
            for one in errors
        ]
        print_json_line({"ok": False, "errors": found})
        raise Exit(1) from None


@contextlib.contextmanager
def _missing_packages_told() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in PACKAGES:
            raise
        raise PipelineError(
            f"{PACKAGES[package]} is not installed: pip install '.[spark]' in a clone of Odradek"
        ) from None


def find_file(text: str) -> Path:
    """A file, or that of the pipeline with this name in the current directory."""
    path = Path(text)
    if path.suffix == ".toml" or path.exists():
        return path
    if path.with_name(f"{path.name}.toml").exists():
        return path.with_name(f"{path.name}.toml")
    for candidate in sorted(Path().glob("*.toml")):
        with contextlib.suppress(PipelineError):
            table = document.read(candidate).values.get("pipeline")
            if isinstance(table, dict) and table.get("name") == text:
                return candidate
    raise CommandError(f"there is no file {text}, and no pipeline of that name in this directory")


@contextlib.contextmanager
def spark_for(
    pipelines: Sequence[Pipeline],
    master: str | None,
    conf: Sequence[str] | None,
    verbose: bool,
    *,
    log_file: Path | None = None,
    small: bool = True,
    stores_classes: bool = False,
) -> Iterator["SparkSession"]:
    """Spark, quiet unless asked, and stopped at the end. `small`: by that profile, for commands that see few rows.
    `stores_classes`: commands that process rows load the classes that are worth an archive."""
    from odradek.pipeline import session

    settings: dict[str, str] = {}
    for pipeline in pipelines:
        settings |= pipeline.spark
    settings |= dict(map(key_value, conf or ()))
    places = [
        place for one in pipelines for place in (one.directory, *map(one.directory.joinpath, one.python_path))
    ]
    with tempfile.TemporaryDirectory(prefix="odradek-pipeline-") as directory:
        log = None if verbose else log_file or Path(directory) / "spark.log"
        path = [str(place.absolute()) for place in places]
        spark = session.start(
            master, settings, log_file=log, python_path=path, small=small, stores_classes=stores_classes
        )
        try:
            yield spark
        except Exception as error:
            ended = session.java_ended(JAVA_END_S) if session.connection_lost(error) else None
            if ended is None:
                raise
            raise PipelineError(ended) from None
        finally:
            if session.java_ended() is None:
                spark.stop()
