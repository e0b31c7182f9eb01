"""The client commands, put together, and the one place where their failures become an exit status."""

from collections.abc import Sequence
from typing import Annotated

import typer

from odradek import __version__
from odradek.cli import consume, group, pipeline, produce, topic
from odradek.cli.clients import CommandError

app = typer.Typer(
    name="odradek",
    help="A Kafka-compatible event-streaming platform that installs with pip.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Every command but 'up' works against any Kafka cluster: name it with -b, or once and for all "
    "in ODRADEK_BOOTSTRAP_SERVER.",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"odradek {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command(
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
def up(context: typer.Context) -> None:
    """Run a broker on this machine, until Ctrl-C."""
    from odradek.cli.up import main as run_broker

    raise typer.Exit(run_broker(context.args))


app.add_typer(topic.app, name="topic")
app.add_typer(group.app, name="group")
app.add_typer(pipeline.app, name="pipeline")
app.command()(produce.produce)
app.command()(consume.consume)


def main(arguments: Sequence[str]) -> int:
    try:
        app(list(arguments), prog_name="odradek")
    except CommandError as error:
        typer.echo(f"error: {error}", err=True)
        return 1
    except SystemExit as exit_:
        return exit_.code if isinstance(exit_.code, int) else 1
    return 0
