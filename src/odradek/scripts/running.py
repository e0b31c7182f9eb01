"""Run a script: from its command line to its exit status."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module

from odradek.admin.access import Access, read_settings
from odradek.admin.failures import AdminError, Refused
from odradek.scripts.options import Exit, Flag, Given

SCRIPTS = (
    "topics",
    "console-producer",
    "console-consumer",
    "consumer-groups",
    "configs",
    "get-offsets",
    "reassign-partitions",
    "metadata-quorum",
    "transactions",
    "storage",
    "dump-log",
)
FAILED = 1
INTERRUPTED = 130
BOOTSTRAP = Flag("bootstrap-server", "REQUIRED: The Kafka server to connect to.", "server to connect to")
COMMAND_CONFIG = Flag(
    "command-config",
    "Property file containing configs to be passed to Admin Client.",
    "command config property file",
)


def main(script: str, arguments: Sequence[str]) -> int:
    """Run a script, by its name without `kafka-` and `.sh`, and return its exit status."""
    module = import_module(f"odradek.scripts.{script.replace('-', '_')}")
    try:
        status: int = module.main(list(arguments))
        sys.stdout.flush()
        return status
    except Exit as exit_:
        if str(exit_):
            sys.stderr.write(f"{exit_}\n")
        return exit_.status
    except AdminError as error:
        sys.stderr.write(f"{error}\n")
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader has exited, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def cluster_of(
    given: Given, *, bootstrap: str = "bootstrap-server", config: str = "command-config"
) -> Access:
    from pathlib import Path

    file = given.text(config)
    settings = read_settings(Path(file)) if file else {}
    return Access(given.text(bootstrap) or "", settings, client_id="odradek-scripts", warn=warn)


def run_action(given: Given, actions: Mapping[str, Callable[[Access, Given], object]]) -> None:
    """Run the action whose flag is given. Raises AdminError."""
    action = next(action for name, action in actions.items() if given.has(name))
    action(cluster_of(given), given)


def warn(text: str) -> None:
    sys.stderr.write(f"WARN {text}\n")


def said(error: AdminError) -> str:
    """Returns the text of Kafka's exceptions: the broker's message, without our advice."""
    if isinstance(error, Refused):
        text = error.said or error.code.name.replace("_", " ").capitalize()
        return f"{text[:1].upper()}{text[1:]}"
    return str(error)


def print_line(text: str = "") -> None:
    sys.stdout.write(f"{text}\n")
