"""`odradek scripts install`: Kafka's own scripts, without a JVM (`odradek.scripts`)."""

from pathlib import Path
from typing import Annotated

from odradek.cli.failures import CommandError
from odradek.cli.framework import Argument, Group
from odradek.cli.output import output_told, print_line

app = Group(help="Install Kafka's own scripts, such as kafka-topics.sh, without a JVM.")


@app.command()
def install(directory: Annotated[str, Argument(metavar="DIR", help="Where to write them.")]) -> None:
    """Write kafka-topics.sh and ten others into a directory: the flags of Kafka 4.3's, for any Kafka cluster."""
    from odradek.scripts.install import WouldOverwrite
    from odradek.scripts.install import install as write

    with output_told():
        try:
            files = write(Path(directory))
        except WouldOverwrite as error:
            raise CommandError(str(error)) from None
        for file in files:
            print_line(str(file))
