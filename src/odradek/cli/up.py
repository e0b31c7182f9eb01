"""`odradek up` and `odradek broker`: run a broker in this process, and say when and where it can be reached.

`up` is for the person at the terminal: it greets, and an empty group does not wait for more members before its first
rebalance. `broker` is for the service manager: it needs a file, keeps Kafka's default for that wait, and prints one
line.

Only the standard library and the broker itself are imported here; `main` says why. A broker that cannot
start because of something its user can change (a port in use, a data directory that another broker
uses, a damaged file, a bad setting) says so in one line; anything else is a bug and shows its traceback.
"""

import argparse
import errno
import gc
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from odradek import __version__
from odradek.cli.command_parser import BAD_USAGE, CommandParser
from odradek.cli.logs import (
    FORMAT_VARIABLE,
    LEVEL_VARIABLE,
    LEVELS,
    LogLevel,
    configure_logging,
    parse_format,
    parse_levels,
)
from odradek.host.log_lines import NodeIdFilter, node_id

if TYPE_CHECKING:
    from odradek.broker.main import Broker, NewBroker
    from odradek.config.broker import BrokerConfig

HOST = "localhost"
DEFAULT_PORT = 9092
MOST_BROKERS = 9  # on one machine: it is for trying things out
IMPORT_GARBAGE_THRESHOLD = 20_000  # objects; imports leave much behind, and nearly all of it stays
FAILED = 1
NOT_SETTINGS = {  # other ODRADEK_ variables name settings
    "ODRADEK_CLASS_ARCHIVE",
    "ODRADEK_DATA_DIR",
    "ODRADEK_BOOTSTRAP_SERVER",
    "ODRADEK_PROFILE",
    "ODRADEK_TEST_BOOTSTRAP",
    "ODRADEK_WORKER_PYTHON",
    LEVEL_VARIABLE,
    FORMAT_VARIABLE,
}
REBALANCE_DELAY = "group.initial.rebalance.delay.ms"

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
that name), which overrides the file. A setting that asks for access control is refused: this broker has none
yet. docs/SECURITY.md is about TLS and SASL.

The log goes to standard error. --log-level odradek.coordinators=debug shows more of one part of the broker;
the names are those in the log. docs/LOGGING.md says what is logged, and how to read it.

Exit status: 0 stopped on request, 1 could not start or keep running, 2 bad option or setting."""

GREETING = """\
Odradek {version} is up.

  listening on {bootstrap}
  data in {data_dir}

From Python (pip install confluent-kafka):

  from confluent_kafka import Consumer, Producer, TopicPartition
  p = Producer({{"bootstrap.servers": "{bootstrap}"}}); p.produce("greetings", "hello"); p.flush()
  c = Consumer({{"bootstrap.servers": "{bootstrap}", "group.id": "me"}}); \
c.assign([TopicPartition("greetings", 0, 0)]); print(c.poll(10).value())

Or from a terminal:

  echo hello | odradek produce -b {bootstrap} greetings
  odradek consume -b {bootstrap} --from-beginning greetings

Stop with Ctrl-C.
"""
JOINED = """\
Odradek {version} is up. It has joined the cluster of {cluster}.

  listening on {bootstrap}
  data in {data_dir}

Once all new nodes have joined, spread the cluster's partitions over them:

  odradek cluster grow -b {bootstrap}

Stop with Ctrl-C.
"""
SERVICE_LINE = "Odradek {version} is listening on {bootstrap}, data in {data_dir}"


def main(arguments: Sequence[str], command: str = "up", new_broker: "NewBroker | None" = None) -> int:
    """`new_broker` lets `odradek.faults` run another kind of broker."""
    options = parse_arguments(arguments, command)
    try:
        levels, log_format = log_options(options, os.environ)
    except ValueError as error:
        return fail(str(error), BAD_USAGE)
    configure_logging(levels, NodeIdFilter(), log_format)
    if options.console:
        from odradek.cli.up_console import missing_extra

        if reason := missing_extra():
            return fail(reason, FAILED)
    if options.brokers > 1 or options.secure:
        from odradek.cli.up_processes import main as run_cluster

        return run_cluster(options)
    if options.join is not None:
        return run_joining(options, new_broker)
    return run_node(options, new_broker)


def run_joining(options: argparse.Namespace, new_broker: "NewBroker | None") -> int:
    """A node of a cluster that others began."""
    from odradek.cli.up_cluster import BadUsage, CannotJoin
    from odradek.cli.up_join import join
    from odradek.cli.up_ports import PortInUse
    from odradek.config.definition import ConfigError
    from odradek.metadata.properties import WrongDirectory
    from odradek.storage.disk.files import DataDirectoryLocked

    try:
        joining = join(options)
    except (BadUsage, ConfigError) as error:
        return fail(str(error), BAD_USAGE)
    except PortInUse as error:
        return fail(
            f"{error}: stop the process that listens there, or choose another with --port (0: any)", FAILED
        )
    except (CannotJoin, WrongDirectory, DataDirectoryLocked) as error:
        return fail(str(error), FAILED)
    except OSError as error:
        return fail(words_of(error), FAILED)
    try:
        options.config = joining.settings_file
        if joining.ports:
            options.port = None  # the settings have it
        return run_node(options, new_broker)
    finally:
        joining.release()


def run_node(options: argparse.Namespace, new_broker: "NewBroker | None") -> int:
    """Run the node until it is asked to stop or cannot continue, and return the exit status."""
    command = options.command
    gc.set_threshold(IMPORT_GARBAGE_THRESHOLD)
    from odradek.broker.main import run
    from odradek.broker.node import BrokerFailed
    from odradek.config.definition import ConfigError
    from odradek.errors import DamagedData, KafkaError
    from odradek.metadata.formatting import NotFormatted
    from odradek.metadata.properties import WrongDirectory
    from odradek.storage.disk.files import DataDirectoryLocked

    try:
        config = load_config(options, os.environ)
    except ConfigError as error:
        return fail(str(error), BAD_USAGE)
    if command == "up" and (refusal := cluster_instead(config)):
        return fail(refusal, FAILED)
    node_id.set(config.node_id)
    for warning in config.warnings:
        logging.getLogger("odradek.config").warning("%s", warning)
    try:
        check_ports(config)
        lifeline = sys.stdin.fileno() if options.lifeline else None
        with console_beside(options) as start_console:
            run(config, lambda broker: announce(broker, options, start_console), new_broker, lifeline)
    except KeyboardInterrupt:
        pass  # before the broker took over the signal
    except ConfigError as error:
        return fail(of_node(str(error), options, config), BAD_USAGE)
    except (
        DataDirectoryLocked,
        DamagedData,
        NotFormatted,
        WrongDirectory,
        BrokerFailed,
        KafkaError,
    ) as error:
        return fail(of_node(str(error), options, config), FAILED)
    except OSError as error:
        return fail(of_node(reason_of(error, config), options, config), FAILED)
    return 0


def of_node(message: str, options: argparse.Namespace, config: "BrokerConfig") -> str:
    """A prefix that names the broker, if several start together."""
    return f"broker {config.node_id}: {message}" if options.lifeline else message


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
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        type=setting,
        metavar="KEY=VALUE",
        help="One setting; repeatable.",
    )
    add_output_options(parser)
    if command == "up":
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
            help="Its port (0: the system chooses).",
        )
    # Set by 'up --brokers' for its processes: standard input is a pipe, and its end is the end of the broker.
    parser.add_argument("--lifeline", action="store_true", help=argparse.SUPPRESS)
    return parser


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


def port_number(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port between 0 and 65535")
    return int(text)


def setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form KEY=VALUE")
    return name.strip(), value.strip()


def refuse_open_port(config: "BrokerConfig") -> None:
    """Raises ConfigError if --port would replace a listener that is protected by one that is not."""
    from odradek.config.definition import ConfigError
    from odradek.config.listeners import SecurityProtocol

    for listener in config.broker_listeners:
        if listener.protocol is not SecurityProtocol.PLAINTEXT:
            reason = "--port would replace it by one that is open to everybody; name the port there"
            raise ConfigError("listeners", listener.name, reason)


def load_config(options: argparse.Namespace, environ: Mapping[str, str]) -> "BrokerConfig":
    """Options over environment over file; without any of them localhost and the user's own data directory, and
    under `up` no wait for more members before a group's first rebalance."""
    from odradek.broker.settings import check_listeners
    from odradek.config.broker import load_broker_config

    overrides = dict(options.set)
    settings = {name: value for name, value in environ.items() if name not in NOT_SETTINGS}
    if options.data_dir is not None:
        overrides["log.dirs"] = str(options.data_dir.absolute())
    config = load_broker_config(options.config, overrides, settings)
    if options.port is not None:
        check_listeners(config)
        refuse_open_port(config)
        listeners = [f"PLAINTEXT://{HOST}:{options.port}", *controller_listeners(config, "listeners")]
        overrides["listeners"] = ",".join(listeners)
        told = controller_listeners(
            config, "advertised.listeners"
        )  # the file's others would name another port
        overrides["advertised.listeners"] = dict(options.set).get("advertised.listeners", ",".join(told))
        config = load_broker_config(options.config, overrides, settings)
    defaults = {}
    if config.is_broker and "listeners" not in config.static:
        defaults["listeners"] = f"PLAINTEXT://{HOST}:{DEFAULT_PORT}"
    if not {"log.dirs", "log.dir"} & config.static.keys():
        defaults["log.dirs"] = str(default_data_dir(environ).absolute())
    if options.command == "up" and REBALANCE_DELAY not in config.static:
        defaults[REBALANCE_DELAY] = "0"
    return load_broker_config(options.config, overrides | defaults, settings) if defaults else config


def controller_listeners(config: "BrokerConfig", key: str) -> list[str]:
    """The part of a setting that concerns the controllers' listeners."""
    items = (item.strip() for item in config.static.get(key, "").split(","))
    return [item for item in items if item.partition("://")[0].upper() in config.controller_listener_names]


def default_data_dir(environ: Mapping[str, str]) -> Path:
    if chosen := environ.get("ODRADEK_DATA_DIR"):
        return Path(chosen)
    return base_data_dir(environ)


def base_data_dir(environ: Mapping[str, str]) -> Path:
    """The default data directory of the user."""
    base = environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "odradek"


def cluster_instead(config: "BrokerConfig") -> str:
    """Why one broker cannot use a directory that belongs to several; empty if it does not."""
    directory = config.log_dirs[0]
    if not (directory / "cluster.json").exists():
        return ""
    from odradek.cli.up_home import CannotStart, Home

    try:
        count = len(Home(directory).members())
    except CannotStart as error:
        return str(error)
    secure = " --secure" if (directory / "security").exists() else ""
    return f"{directory} contains a cluster of {count} brokers: start it with --brokers {count}{secure}"


@contextmanager
def console_beside(options: argparse.Namespace) -> Iterator[Callable[[str], None]]:
    """A function that starts a console for these addresses, if there is to be one; it ends with the block."""
    if not options.console:
        yield lambda bootstrap: None
        return
    from odradek.cli.up_console import ConsoleProcess

    console = ConsoleProcess(options.console_port)
    try:
        yield console.start
    finally:
        console.stop()


def announce(
    broker: "Broker",
    options: argparse.Namespace,
    start_console: Callable[[str], None] = lambda bootstrap: None,
) -> None:
    """Called once connections are accepted."""
    listener = (*broker.listeners, *broker.controller_listeners)[0]  # a controller alone serves no clients
    bootstrap = f"{listener.host}:{listener.port}"
    if options.json:
        import json

        text = json.dumps({"bootstrap": bootstrap, "data_dir": str(broker.data_dir), "pid": os.getpid()})
    else:
        greeting = GREETING if options.command == "up" else SERVICE_LINE
        if options.join is not None:
            greeting = JOINED
        text = greeting.format(
            version=__version__, bootstrap=bootstrap, data_dir=broker.data_dir, cluster=options.join
        )
    say(text, bootstrap)
    start_console(bootstrap)


def say(text: str, bootstrap: str) -> None:
    """Print to standard output, if it is open."""
    try:
        if sys.stdout is None:
            raise OSError("it is closed")
        print(text, flush=True)
    except OSError as error:  # that is no reason to stop serving
        logging.getLogger("odradek").warning(
            "listening on %s, but standard output cannot be written: %s", bootstrap, error
        )
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - what is buffered must not be flushed once more


def reason_of(error: OSError, config: "BrokerConfig") -> str:
    if error.errno == errno.EADDRINUSE:
        return port_in_use(error, config)
    if error.errno == errno.ENOSPC:
        return f"no space left on the disk of {config.log_dirs[0]}: make room, and start the broker again"
    return words_of(error)


def words_of(error: OSError) -> str:
    """A failure of the file system, in words."""
    if not error.filename:
        return error.strerror or str(error)
    path = Path(os.fsdecode(error.filename))
    if error.errno in (errno.EEXIST, errno.ENOTDIR):
        in_the_way = next((one for one in (path, *path.parents) if one.is_file()), None)
        if in_the_way is not None:
            return f"{in_the_way} is a file, not a directory: name a directory with --data-dir"
    return f"{path}: {error.strerror}"


def check_ports(config: "BrokerConfig") -> None:
    """Raise OSError if a port is in use, before a new data directory is formatted for a broker that cannot start."""
    if (config.log_dirs[0] / "meta.properties").exists():
        return
    from odradek.cli.up_ports import is_in_use

    places = [(one.host, one.port) for one in config.listeners]
    if config.metrics_listener is not None:
        places.append((config.metrics_listener.host, config.metrics_listener.port))
    for host, port in places:
        if port and is_in_use(host, port):
            raise OSError(errno.EADDRINUSE, f"{host}:{port}: in use")


def port_in_use(error: OSError, config: "BrokerConfig") -> str:
    """The listener that the error names in its text."""
    ports = [listener.port for listener in config.listeners]
    if config.metrics_listener is not None:
        ports.append(config.metrics_listener.port)
    port = next((port for port in ports if f":{port}:" in str(error)), ports[0])
    is_controllers = port in [listener.port for listener in config.controller_listeners]
    choice = "another in listeners" if is_controllers else "another with --port (0: any)"
    if config.metrics_listener is not None and port == config.metrics_listener.port:
        choice = "another in metrics.listener"
    from odradek.cli.up_ports import by_process

    return f"port {port} is in use{by_process(port)}: stop the process that listens there, or choose {choice}"


def fail(message: str, status: int) -> int:
    print(f"error: {message}", file=sys.stderr)
    return status
