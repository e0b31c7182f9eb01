"""What the commands of `odradek pipeline` share: options, Spark, and how what is wrong is told."""

import contextlib
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from odradek.cli.clients import CommandError, key_value
from odradek.pipeline import document
from odradek.pipeline.definition import Pipeline
from odradek.pipeline.errors import PipelineError, PipelineErrors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FileArgument = Annotated[
    str, typer.Argument(metavar="FILE", help="The pipeline's file, or its name if the file is here.")
]
FilesArgument = Annotated[
    list[str], typer.Argument(metavar="FILE...", help="Pipelines' files, or their names.")
]
Master = Annotated[
    str | None,
    typer.Option("--master", metavar="URL", help="Where Spark runs: local[2], spark://host:7077, yarn …"),
]
Conf = Annotated[
    list[str], typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark's; may be repeated.")
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show what Spark and Java log.")]
Offline = Annotated[
    bool, typer.Option("--offline", help="Look at no cluster, no database and no checkpoint.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@contextlib.contextmanager
def told(as_json: bool = False) -> Iterator[None]:
    """What is wrong with a pipeline, as one message and exit status 1."""
    try:
        yield
    except PipelineError as error:
        if as_json:
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
            typer.echo(json.dumps({"ok": False, "errors": found}))
            raise typer.Exit(1) from None
        raise CommandError(str(error)) from None


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
    conf: list[str],
    verbose: bool,
    *,
    log_file: Path | None = None,
    short_lived: bool = True,
) -> Iterator["SparkSession"]:
    """Spark, quiet unless asked, and stopped at the end."""
    from odradek.pipeline import session

    settings: dict[str, str] = {}
    for pipeline in pipelines:
        settings |= pipeline.spark
    settings |= dict(map(key_value, conf))
    places = [
        place for one in pipelines for place in (one.directory, *map(one.directory.joinpath, one.python_path))
    ]
    with tempfile.TemporaryDirectory(prefix="odradek-pipeline-") as directory:
        log = None if verbose else log_file or Path(directory) / "spark.log"
        path = [str(place.absolute()) for place in places]
        spark = session.start(master, settings, log_file=log, python_path=path, short_lived=short_lived)
        try:
            yield spark
        finally:
            spark.stop()
