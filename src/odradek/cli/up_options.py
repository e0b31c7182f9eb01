"""The options of `odradek up` and `odradek broker`, and their help.

Only the standard library is imported here; `main` says why.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from odradek.cli.command_parser import CommandParser
from odradek.cli.logs import FORMAT_VARIABLE, LEVEL_VARIABLE, LEVELS, LogLevel, parse_format, parse_levels

MOST_BROKERS = 9  # on one machine: it is for trying things out

DESCRIPTIONS = {
    "up": """\
Run a broker on this machine, until Ctrl-C or SIGTERM. It speaks Kafka's protocol: any Kafka client,
and the other odradek commands, can use it as soon as it says where it listens. Unlike Kafka, it does not
make the first member of a group wait 3 s for others: 'odradek broker' does, and so does
--set group.initial.rebalance.delay.ms=3000.""",
    "broker": """\
Run a broker as a service, from a settings file such as Kafka's own server.properties, until SIGTERM or
Ctrl-C. Settings that the file leaves out have Kafka's defaults, except two: without 'listeners' it
listens on localhost only, and without 'log.dirs' it keeps its data where 'odradek up' does.""",
}
EPILOG = """\
Settings have Kafka's names (log.retention.ms, num.partitions …). Options override the environment
(ODRADEK_LOG_RETENTION_MS; ODRADEK_DATA_DIR, ODRADEK_LOG_LEVEL and ODRADEK_LOG_FORMAT for the options of
that name), which overrides the file. docs/SECURITY.md is about TLS, logins and access control.

The log goes to standard error. --log-level odradek.coordinators=debug shows more of one part of the broker;
the names are those in the log. docs/LOGGING.md says what is logged, and how to read it.

Exit status: 0 stopped on request, 1 could not start or keep running, 2 bad option or setting."""


def parse_arguments(arguments: Sequence[str], command: str = "up") -> argparse.Namespace:
    options = argument_parser(command).parse_args(arguments)
    options.command = command
    options.brokers = getattr(options, "brokers", 1)
    options.join = getattr(options, "join", None)
    options.secure = getattr(options, "secure", False)
    options.console = getattr(options, "console", False)
    return options


def argument_parser(command: str) -> argparse.ArgumentParser:
    parser = CommandParser(command, DESCRIPTIONS[command], EPILOG)
    parser.add_argument(
        "--port",
        type=port_number,
        metavar="N",
        help="Port on localhost (default: 9092; 0: the system chooses).",
    )
    parser.add_argument(
        "--data-dir", type=Path, metavar="DIR", help="Where to keep topics (default: ~/.local/share/odradek)."
    )
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        required=command == "broker",
        help="Settings, as .properties or .toml.",
    )
    add_setting_option(parser)
    add_output_options(parser)
    if command == "up":
        add_options_of_up(parser)
    # Set by 'up --brokers' for its processes: standard input is a pipe, and its end is the end of the broker.
    parser.add_argument("--lifeline", action="store_true", help=argparse.SUPPRESS)
    return parser


def add_options_of_up(parser: argparse.ArgumentParser) -> None:
    size = parser.add_mutually_exclusive_group()
    size.add_argument(
        "--brokers",
        type=broker_count,
        default=1,
        metavar="N",
        help="Run a cluster of N brokers, one process each: ports from --port upward, data in DIR/1 to DIR/N.",
    )
    size.add_argument(
        "--join",
        metavar="HOST:PORT",
        help="Join the cluster that this broker belongs to, with the data in --data-dir; then "
        "'odradek cluster grow' spreads the cluster's partitions over its nodes.",
    )
    parser.add_argument(
        "--secure",
        action="store_true",
        help="TLS, passwords (SCRAM), a user 'admin', and a settings file for clients; the data is that of a new "
        "cluster, in DIR/1 to DIR/N.",
    )
    parser.add_argument(
        "--console",
        action="store_true",
        help="Run a web console beside it, in a process of its own, on localhost:8090 "
        "(needs pip install '.[console]' in a clone of Odradek; 'odradek console' has more options).",
    )
    parser.add_argument(
        "--console-port",
        type=port_number,
        metavar="N",
        default=8090,
        help="The port of the console (0: the system chooses).",
    )


def add_output_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--log-level",
        action="append",
        default=[],
        metavar="[LOGGER=]LEVEL",
        help=f"What to log: {', '.join(LEVELS)} (default: info); LOGGER=LEVEL: of one logger; repeatable.",
    )
    parser.add_argument(
        "--log-format",
        metavar="FORMAT",
        help="How to log: text (the default), or json, one object per line.",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="Announce in one JSON line: bootstrap, data_dir, pid (--brokers: data_dirs, pids).",
    )


def broker_count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MOST_BROKERS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of brokers between 1 and {MOST_BROKERS}")
    return int(text)


def port_number(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port between 0 and 65535")
    return int(text)


def add_setting_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        type=setting,
        metavar="KEY=VALUE",
        help="One setting; repeatable.",
    )


def setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form KEY=VALUE")
    return name.strip(), value.strip()


def log_options(options: argparse.Namespace, environ: Mapping[str, str]) -> tuple[list[LogLevel], str]:
    """Levels of the environment first, then those of the options: for each logger the last one counts. Raises
    ValueError."""
    levels: list[LogLevel] = []
    for source, text in (
        (LEVEL_VARIABLE, environ.get(LEVEL_VARIABLE)),
        *(("--log-level", text) for text in options.log_level),
    ):
        if text:
            try:
                levels += parse_levels(text)
            except ValueError as error:
                raise ValueError(f"{source} {text}: {error}") from None
    source = "--log-format" if options.log_format is not None else FORMAT_VARIABLE
    log_format = options.log_format or environ.get(FORMAT_VARIABLE) or "text"
    try:
        return levels, parse_format(log_format)
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from None
