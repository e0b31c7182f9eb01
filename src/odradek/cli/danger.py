"""What cannot be undone wants a second word: --yes or a yes at the terminal; --force where a topic is internal."""

import sys
from collections.abc import Iterable
from typing import Annotated

from odradek.cli import framework
from odradek.cli.failures import CommandError
from odradek.cli.framework import BadParameter, Option
from odradek.model import INTERNAL_TOPICS, METADATA_TOPIC

INTERNAL = INTERNAL_TOPICS | {METADATA_TOPIC, "__share_group_state", "__remote_log_metadata"}

Yes = Annotated[bool, Option("--yes", "-y", help="Do not ask.")]
Force = Annotated[
    bool, Option("--force", help="Do it to an internal topic, such as __consumer_offsets, too.")
]


def confirm(question: str, yes: bool) -> None:
    """Go on only with --yes, or a yes at the terminal."""
    if yes:
        return
    if not sys.stdin or not sys.stdin.isatty():
        raise BadParameter("there is no terminal to ask at: give --yes to go on without asking")
    framework.confirm(question, abort=True, err=True)


def is_internal(topic: str) -> bool:
    return topic in INTERNAL


def check_internal(topics: Iterable[str], force: bool) -> None:
    internal = [topic for topic in topics if is_internal(topic)]
    if internal and not force:
        raise CommandError(
            f"{', '.join(internal)}: an internal topic, in which the cluster keeps its own state; "
            "--force does it all the same"
        )
