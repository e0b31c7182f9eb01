"""`odradek up --brokers N`: a cluster of real processes on this machine, started, watched and stopped together.

Every node is `odradek broker` with its own settings file (`up_home`), in its own session: Ctrl-C at the terminal
reaches only this process, which passes it on. Each node has the reading end of a pipe whose other end is here, and
stops when that is closed: no node outlives a parent that was killed.

A node that exits is not restarted: the user is told how to do that, and decides.
"""

import argparse
import asyncio
import json
import logging
import os
import shlex
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from odradek import __version__
from odradek.cli.command_parser import BAD_USAGE
from odradek.cli.up import GREETING, say
from odradek.cli.up_console import ConsoleProcess
from odradek.cli.up_failures import FAILED, fail, words_of
from odradek.cli.up_home import OWN_SETTINGS, CannotStart, Home, Member
from odradek.cli.up_ports import IS_SHARED, PortInUse, Reservation
from odradek.cli.up_settings import DEFAULT_PORT, NOT_SETTINGS, REBALANCE_DELAY, base_data_dir
from odradek.config.broker import load_broker_config
from odradek.config.broker_definitions import BROKER_DEFINITIONS
from odradek.config.definition import ConfigError
from odradek.config.sources import read_environment, read_file, variable_of
from odradek.config.unsupported import WITHOUT_EFFECT
from odradek.metadata.properties import WrongDirectory
from odradek.storage.disk.files import DataDirectoryLocked, DiskFiles

if TYPE_CHECKING:
    from odradek.cli.up_secure import Security

log = logging.getLogger("odradek.up")

HIGHEST_PORT = 65535
STOP_TIMEOUT_SECONDS = 60.0
MOST_REPLICAS = 3
METRICS = "metrics.listener"


class BadUsage(Exception):
    """The options make no sense; the message says why."""


class Child(NamedTuple):
    member: Member
    bootstrap: str
    data_dir: Path
    command: list[str]  # as its user would type it
    process: asyncio.subprocess.Process


def main(options: argparse.Namespace) -> int:
    """Run a cluster, once the log is configured and the options are parsed."""
    directory = home_directory(options, os.environ)
    try:
        refuse_own_settings(options, os.environ)
        load_broker_config(options.config, dict(options.set), setting_variables(os.environ))
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = DiskFiles().lock(str(directory / ".lock"))
        try:
            return start_and_watch(Home(directory), options)
        finally:
            lock.release()
    except (BadUsage, ConfigError) as error:
        return fail(str(error), BAD_USAGE)
    except PortInUse as error:
        return fail(
            f"{error}: stop the process that listens there, or choose another with --port (0: any)", FAILED
        )
    except (CannotStart, WrongDirectory, DataDirectoryLocked) as error:
        return fail(str(error), FAILED)
    except OSError as error:
        return fail(words_of(error), FAILED)


def start_and_watch(home: Home, options: argparse.Namespace) -> int:
    home.check(options.brokers)
    members = home.members()
    held = reserve_ports(options, members)
    try:
        clients, controllers = held[: options.brokers], held[options.brokers :]
        security = security_of(home, options, is_new=not members)
        members = members or home.found(one.port for one in controllers)
        home.format(security.records() if security else ())
        settings = shared_settings(options, os.environ)
        for member, port in zip(members, clients, strict=True):
            own = security.settings_of(member.node_id) if security else {}
            home.write_settings(member, members, port.port, settings, own)
        if not IS_SHARED:
            for port in held:
                port.release()
        nodes = Nodes(home, members, [port.port for port in clients], options, security)
        return asyncio.run(nodes.run())
    finally:
        for port in held:
            port.release()


def security_of(home: Home, options: argparse.Namespace, is_new: bool) -> "Security | None":
    """Return the cluster's security; None if it is open to everybody. A cluster stays what it was founded as."""
    was_secure = (home.directory / "security").exists()
    if was_secure and not options.secure:
        raise CannotStart(
            f"{home.directory} contains a cluster with TLS and passwords: start it with --secure"
        )
    if not options.secure:
        return None
    if not is_new and not was_secure:
        raise CannotStart(
            f"{home.directory} contains a cluster without TLS and passwords: start it without --secure, or give the "
            "new one its own directory with --data-dir"
        )
    from odradek.cli.up_secure import Security

    return Security(home.directory, list(range(1, options.brokers + 1)))


def home_directory(options: argparse.Namespace, environ: Mapping[str, str]) -> Path:
    chosen = options.data_dir or environ.get("ODRADEK_DATA_DIR")
    if chosen:
        return Path(chosen).absolute()
    base = base_data_dir(environ)  # that of a single broker is next to it
    secure = "-secure" if options.secure else ""
    return base.with_name(f"{base.name}{secure}-{options.brokers}-brokers").absolute()


def reserve_ports(options: argparse.Namespace, members: list[Member]) -> list[Reservation]:
    """Reserve ports for clients, then those of the controllers, which never change."""
    first = DEFAULT_PORT if options.port is None else options.port
    if first + options.brokers - 1 > HIGHEST_PORT:
        raise BadUsage(
            f"--port {first} leaves no room for {options.brokers} ports: the highest is {HIGHEST_PORT}"
        )
    wanted = [first + number if first else 0 for number in range(options.brokers)]
    held: list[Reservation] = []
    try:
        for port in wanted:
            held.append(Reservation(port))
        for node_id in range(1, options.brokers + 1):
            held.append(reserve_controller_port(members[node_id - 1] if members else None, node_id))
    except BaseException:
        for each in held:
            each.release()
        raise
    return held


def reserve_controller_port(member: Member | None, node_id: int) -> Reservation:
    try:
        return Reservation(member.controller_port if member else 0)
    except PortInUse as error:
        raise CannotStart(
            f"port {error.port} of controller {node_id} is in use: stop the process that listens there"
        ) from None


# Settings


def small_cluster_defaults(brokers: int) -> dict[str, str]:
    """Defaults for new topics in a cluster of this size: as many replicas as make sense, and with three of them, one
    may fail while records are written."""
    replicas = str(min(MOST_REPLICAS, brokers))
    in_sync = "2" if brokers >= MOST_REPLICAS else "1"
    return {
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        REBALANCE_DELAY: "0",
    }


def shared_settings(options: argparse.Namespace, environ: Mapping[str, str]) -> dict[str, str]:
    """The file's settings, and our defaults for those it leaves out. The environment and --set reach the nodes
    unchanged. Defaults without effect are left out, because every node would warn about them."""
    given = read_file(options.config) if options.config else {}
    elsewhere = (
        read_environment(setting_variables(environ), BROKER_DEFINITIONS).keys() | dict(options.set).keys()
    )
    defaults = {
        key: text
        for key, text in small_cluster_defaults(options.brokers).items()
        if key not in elsewhere and key not in WITHOUT_EFFECT
    }
    return defaults | given


def setting_variables(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name not in NOT_SETTINGS}


def refuse_own_settings(options: argparse.Namespace, environ: Mapping[str, str]) -> None:
    """Refuse settings that must differ between nodes: nobody can set them for all. In a file, they are ignored."""
    found = [f"--set {key}" for key, _ in options.set if key in OWN_SETTINGS]
    variables = read_environment(setting_variables(environ), BROKER_DEFINITIONS)
    found += [variable_of(key) for key in variables if key in OWN_SETTINGS]
    if found:
        raise BadUsage(
            f"{', '.join(found)}: with --brokers, every broker gets its own; use --port and --data-dir instead"
        )


# Processes


class Nodes:
    def __init__(
        self,
        home: Home,
        members: list[Member],
        ports: list[int],
        options: argparse.Namespace,
        security: "Security | None" = None,
    ) -> None:
        self._home = home
        self._security = security
        self._members = members
        self._ports = ports
        self._options = options
        config = load_broker_config(options.config, dict(options.set), setting_variables(os.environ))
        self._metrics = config.metrics_listener  # of the first; the others have the ports after it
        self._children: list[Child] = []

    async def run(self) -> int:
        """Run until a signal, and return the exit status."""
        self._stopping = asyncio.Event()
        self._hurry = asyncio.Event()  # the second signal
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._asked_to_stop)
        console = ConsoleProcess(self._options.console_port) if self._options.console else None
        try:
            for member, port in zip(self._members, self._ports, strict=True):
                self._children.append(await self._start(member, port))
            status = await self._wait_until_ready()
            if status is None:
                client_file = self._announce()
                if console is not None:
                    console.start(self._bootstrap(), client_file)
                status = await self._watch()
            return status
        finally:
            if console is not None:
                console.stop()
            await self._stop_all()

    def _bootstrap(self) -> str:
        return ",".join(child.bootstrap for child in self._children)

    def _asked_to_stop(self) -> None:
        if self._stopping.is_set():
            self._hurry.set()
        self._stopping.set()

    async def _start(self, member: Member, port: int) -> Child:
        command = [
            "broker",
            "--config",
            str(self._home.settings_file(member.node_id)),
            *self.options_for(member),
        ]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "odradek", *command, "--json", "--lifeline"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        data_dir = self._home.data_dir(member.node_id)
        return Child(member, f"localhost:{port}", data_dir, ["odradek", *command], process)

    def options_for(self, member: Member) -> list[str]:
        options = self._options
        settings = dict(options.set)
        if self._metrics is not None:
            port = self._metrics.port and self._metrics.port + member.node_id - 1
            settings[METRICS] = f"{self._metrics.host}:{port}"
        given = [item for key, text in settings.items() for item in ("--set", f"{key}={text}")]
        given += [item for level in options.log_level for item in ("--log-level", level)]
        return given + (["--log-format", options.log_format] if options.log_format else [])

    async def _wait_until_ready(self) -> int | None:
        """Return None once all nodes serve, else the exit status. A node that cannot start has said why."""
        ready = asyncio.gather(*(_first_line(child) for child in self._children))
        asked = asyncio.ensure_future(self._stopping.wait())
        exits = [asyncio.ensure_future(child.process.wait()) for child in self._children]
        tasks: list[asyncio.Future[Any]] = [ready, asked, *exits]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for child, exited in zip(self._children, exits, strict=True):
                if exited.done() and not asked.done():
                    return self._failed_to_start(child, exited.result())
            return 0 if asked.done() else None
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _failed_to_start(self, child: Child, status: int) -> int:
        if status in (FAILED, BAD_USAGE):
            return status
        return fail(f"broker {child.member.node_id} {ending(status)} before it was ready", FAILED)

    def _announce(self) -> Path | None:
        """The settings file for clients, if they need one."""
        bootstrap = self._bootstrap()
        client_file = self._security.write_client_file(bootstrap) if self._security else None
        if self._options.json:
            facts: dict[str, Any] = {
                "bootstrap": bootstrap,
                "data_dirs": [str(child.data_dir) for child in self._children],
                "pids": [child.process.pid for child in self._children],
            }
            if client_file is not None:
                facts["client_file"] = str(client_file)
            say(json.dumps(facts), bootstrap)
            return client_file
        first, last = self._children[0].data_dir, self._children[-1].data_dir
        where = str(first) if first == last else f"{first} to {last}, one for each broker"
        if client_file is not None:
            from odradek.cli.up_secure import GREETING as SECURE_GREETING

            text = SECURE_GREETING.format(
                version=__version__, bootstrap=bootstrap, data_dir=where, client_file=client_file
            )
        else:
            text = GREETING.format(version=__version__, bootstrap=bootstrap, data_dir=where)
        say(text, bootstrap)
        return client_file

    async def _watch(self) -> int:
        """Tell of every node that ends. Returns 0 when asked to stop, FAILED when none is left."""
        asked = asyncio.ensure_future(self._stopping.wait())
        waiting = {asyncio.ensure_future(child.process.wait()): child for child in self._children}
        while waiting:
            done, _ = await asyncio.wait((asked, *waiting), return_when=asyncio.FIRST_COMPLETED)
            if asked in done:
                return 0
            for exited in [task for task in waiting if task in done]:
                self._tell_of_end(waiting.pop(exited), exited.result(), len(waiting))
        return fail("no broker is left", FAILED)

    def _tell_of_end(self, child: Child, status: int, left: int) -> None:
        log.error(
            "broker %d %s, %d of %d are left. To start it again, in another terminal: %s",
            child.member.node_id,
            ending(status),
            left,
            len(self._children),
            shlex.join(child.command),
        )

    async def _stop_all(self) -> None:
        """Stop all nodes cleanly; those that take too long, and all at a second signal, are killed."""
        running = [child for child in self._children if child.process.returncode is None]
        for child in running:
            child.process.terminate()
        exits = [asyncio.ensure_future(child.process.wait()) for child in running]
        hurry = asyncio.ensure_future(self._hurry.wait())
        everybody = asyncio.gather(*exits)
        await asyncio.wait(
            (everybody, hurry), timeout=STOP_TIMEOUT_SECONDS, return_when=asyncio.FIRST_COMPLETED
        )
        for child in running:
            if child.process.returncode is None:
                log.warning("broker %d does not stop: killing it", child.member.node_id)
                child.process.kill()
        await everybody
        hurry.cancel()


async def _first_line(child: Child) -> bytes:
    """Return the line that says that the node serves. A node that ends first has none; its end is noticed elsewhere."""
    assert child.process.stdout is not None
    line = await child.process.stdout.readline()
    if not line:
        await asyncio.Event().wait()
    return line


def ending(status: int) -> str:
    """Say how a process ended, by its exit status."""
    if status >= 0:
        return "has stopped" if status == 0 else f"has failed with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"
