"""`odradek up` and `odradek broker`: run a broker in this process, and say when and where it can be reached.

`up` is for the person at the terminal: it greets, and an empty group does not wait for more members before its first
rebalance. `broker` is for the service manager: it needs a file, keeps Kafka's default for that wait, and prints one
line.

Only the standard library and the broker itself are imported here; `main` says why. A broker that cannot
start because of something its user can change (a port in use, a data directory that another broker
uses, a damaged file, a bad setting) says so in one line; anything else is a bug and shows its traceback.
"""

import argparse
import gc
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from odradek import __version__
from odradek.cli.command_parser import BAD_USAGE
from odradek.cli.logs import configure_logging
from odradek.cli.up_failures import FAILED, check_ports, fail, reason_of, words_of
from odradek.cli.up_options import log_options, parse_arguments
from odradek.cli.up_settings import load_config
from odradek.host.log_lines import NodeIdFilter, node_id

if TYPE_CHECKING:
    from odradek.broker.main import Broker, NewBroker
    from odradek.config.broker import BrokerConfig

IMPORT_GARBAGE_THRESHOLD = 20_000  # objects; imports leave much behind, and nearly all of it stays

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
    if reason := missing_packages(options):
        return fail(reason, FAILED)
    if options.brokers > 1 or options.secure:
        from odradek.cli.up_processes import main as run_cluster

        return run_cluster(options)
    if options.join is not None:
        return run_joining(options, new_broker)
    return run_node(options, new_broker)


def missing_packages(options: argparse.Namespace) -> str:
    """Say which packages the options need that are not installed; empty if there are none."""
    if not options.console and not options.secure:
        return ""
    from odradek.cli.up_packages import missing

    return missing(console=options.console, secure=options.secure)


def run_joining(options: argparse.Namespace, new_broker: "NewBroker | None") -> int:
    """Run a node of a cluster that others began."""
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
    """Name the broker in front of the message, if several start together."""
    return f"broker {config.node_id}: {message}" if options.lifeline else message


def cluster_instead(config: "BrokerConfig") -> str:
    """Say why one broker cannot use a directory that belongs to several; empty if it can."""
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
    """Yield a function that starts a console for an address, if one is wanted; it ends with the block."""
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
    """Say where the broker listens, once it accepts connections."""
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
