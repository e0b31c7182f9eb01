"""The process of a node: from its configuration to SIGTERM."""

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
from odradek.broker.node import Node
from odradek.broker.service_manager import ServiceManager
from odradek.config.broker import BrokerConfig
from odradek.descriptors import claim_descriptors
from odradek.host.real import RealHost
from odradek.net.sockets import SocketNetwork
from odradek.net.transport import Converse
from odradek.serving.authorizer import Authorizer
from odradek.serving.coordination import KINDS
from odradek.serving.services import Services
from odradek.storage.disk.files import DiskFiles, Files

try:
    from uvloop import new_event_loop
except ImportError:  # asyncio's own loop works too, more slowly
    from asyncio import new_event_loop

log = logging.getLogger(__name__)

GARBAGE_THRESHOLD = 20_000  # objects; requests leave no cycles behind, so there is little to collect
SWITCH_INTERVAL_SECONDS = 0.001  # how long a thread that has synced waits for a busy event loop to yield


class NewBroker(Protocol):
    """The function by which `run` makes its broker."""

    def __call__(
        self, config: BrokerConfig, loop: asyncio.AbstractEventLoop, *, on_failure: Callable[[], None]
    ) -> "Broker": ...


class Broker(Node):
    """A node on this machine, with its real clocks, threads, processes, sockets and disk."""

    def __init__(
        self,
        config: BrokerConfig,
        loop: asyncio.AbstractEventLoop,
        rng: Random | None = None,
        files: Files | None = None,
        on_failure: Callable[[], None] = lambda: None,
        new_converse: Callable[[Services], Converse] | None = None,
        new_network: Callable[[RealHost, int], SocketNetwork] = SocketNetwork,
        authorizer: Authorizer | None = None,
    ) -> None:
        host = RealHost(loop)
        super().__init__(
            config,
            host,
            new_network(host, descriptors.max_connections()),
            files or DiskFiles(descriptors.max_open_files(), descriptors.reserve()),
            rng or Random(),
            new_converse=new_converse,
            on_failure=on_failure,
            on_long_work=Collector(loop).long_work,
            authorizer=authorizer,
            random_bytes=os.urandom,
        )


def run(
    config: BrokerConfig,
    announce: Callable[[Broker], None],
    new_broker: NewBroker | None = None,
    lifeline: int | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT; `announce` is called once connections are accepted. Raises BrokerFailed if the
    broker had to stop by itself.

    `lifeline` is the reading end of a pipe: the broker also stops when the process at the other end is gone."""
    claim_descriptors()
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
    manager = ServiceManager()
    manager.starting("Starting: opening logs, waiting for the cluster")
    broker = new_broker(config, loop, on_failure=stopping.set)
    try:
        if not await _start(broker, stopping):
            return
        gc.collect()
        gc.freeze()  # what is alive now stays alive: the collector need not visit it again
        gc.set_threshold(GARBAGE_THRESHOLD)
        announce(broker)
        manager.ready(loop, _status_of(broker))
        loop.run_in_executor(None, copy_context().run, _import_coordinators)
        await stopping.wait()
    finally:
        manager.stopping()
        await broker.stop()
        if broker.failure is not None:
            raise broker.failure


def _status_of(broker: Broker) -> str:
    places = [f"{each.host}:{each.port}" for each in (*broker.listeners, *broker.controller_listeners)]
    return f"Node {broker.node_id} is listening on {', '.join(places)}"


async def _start(broker: Broker, stopping: asyncio.Event) -> bool:
    """Returns False if it was told to stop before it had started: a node may wait long for its quorum."""
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


def _import_coordinators() -> None:
    """So that the first request that needs one does not wait. Without a free descriptor, that request imports it."""
    for kind in KINDS.values():
        module, _, _ = kind.service.partition(":")
        try:
            import_module(module)
        except (OSError, ImportError) as error:  # the latter from a library that is not Python
            log.info("cannot preload %s, which is imported when it is first needed: %s", module, error)
