"""A process that is a broker: from a configuration to SIGTERM."""

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable
from contextvars import copy_context
from importlib import import_module
from random import Random
from typing import Protocol

from odradek.broker import descriptors
from odradek.broker.collector import Collector
from odradek.broker.node import GroupsOfNode, Node
from odradek.config.broker import BrokerConfig
from odradek.host.real import RealHost
from odradek.net.sockets import SocketNetwork
from odradek.net.transport import Converse
from odradek.requests.services import Services
from odradek.storage.disk.files import DiskFiles, Files

try:
    from uvloop import new_event_loop
except ImportError:  # where there is no uvloop, asyncio's own loop serves, more slowly
    from asyncio import new_event_loop

log = logging.getLogger(__name__)

GARBAGE_THRESHOLD = 20_000  # objects; requests leave no cycles behind, so there is little to look for
SWITCH_INTERVAL_SECONDS = 0.001  # how long a thread that has synced may wait for a busy event loop
GROUPS_MODULE = "odradek.services.groups"


class NewBroker(Protocol):
    """What `run` makes its broker with."""

    def __call__(
        self, config: BrokerConfig, loop: asyncio.AbstractEventLoop, *, on_failure: Callable[[], None]
    ) -> "Broker": ...


class Broker(Node):
    """A node on this machine: its clocks, threads, processes, sockets and disk."""

    def __init__(
        self,
        config: BrokerConfig,
        loop: asyncio.AbstractEventLoop,
        rng: Random | None = None,
        files: Files | None = None,
        on_failure: Callable[[], None] = lambda: None,
        new_converse: Callable[[Services], Converse] | None = None,
    ) -> None:
        host = RealHost(loop)
        super().__init__(
            config,
            host,
            SocketNetwork(host, descriptors.max_connections()),
            files or DiskFiles(descriptors.max_open_files(), descriptors.reserve()),
            rng or Random(),
            new_groups=new_groups,
            new_converse=new_converse,
            on_failure=on_failure,
            on_long_work=Collector(loop).long_work,
        )


def new_groups(services: Services) -> GroupsOfNode:
    """Imported when they are first needed: their code is half of what a broker imports."""
    from odradek.services.groups import Groups

    return Groups(services)


def run(
    config: BrokerConfig,
    announce: Callable[[Broker], None],
    new_broker: NewBroker | None = None,
    lifeline: int | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT; `announce` is called once connections are accepted. Raises BrokerFailed where
    the broker had to stop by itself.

    `lifeline` is the reading end of a pipe: the broker stops, too, when whoever holds the other end is gone."""
    descriptors.claim_descriptors()
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    loop = new_event_loop()
    try:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(_serve(config, loop, announce, new_broker or Broker, lifeline))
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


async def _serve(
    config: BrokerConfig,
    loop: asyncio.AbstractEventLoop,
    announce: Callable[[Broker], None],
    new_broker: NewBroker,
    lifeline: int | None,
) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    if lifeline is not None:
        loop.add_reader(lifeline, _watch_lifeline, loop, lifeline, stopping)
    broker = new_broker(config, loop, on_failure=stopping.set)
    try:
        if not await _start(broker, stopping):
            return
        loop.run_in_executor(None, copy_context().run, _import_ahead, GROUPS_MODULE)
        gc.collect()
        gc.freeze()  # what is alive now stays: the collector need not look at it again
        gc.set_threshold(GARBAGE_THRESHOLD)
        announce(broker)
        await stopping.wait()
    finally:
        await broker.stop()
        if broker.failure is not None:
            raise broker.failure


async def _start(broker: Broker, stopping: asyncio.Event) -> bool:
    """False if it is to stop before it has started: a node may wait long for its quorum."""
    starting = asyncio.ensure_future(broker.start())
    stop = asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait((starting, stop), return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            return False
        starting.result()
        return True
    finally:
        starting.cancel()
        stop.cancel()
        await asyncio.gather(starting, stop, return_exceptions=True)


def _watch_lifeline(loop: asyncio.AbstractEventLoop, lifeline: int, stopping: asyncio.Event) -> None:
    if not os.read(lifeline, 1024):
        loop.remove_reader(lifeline)
        stopping.set()


def _import_ahead(module: str) -> None:
    """So that the first who needs it does not wait. Without a descriptor to spare it is left to them."""
    try:
        import_module(module)
    except OSError as error:
        log.info("cannot preload %s, which is imported when it is first needed: %s", module, error)
