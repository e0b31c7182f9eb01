"""A process that is a broker: from a configuration to SIGTERM."""

import asyncio
import gc
import signal
import sys
from collections.abc import Callable

from odradek.broker.broker import Broker
from odradek.broker.collector import Collector
from odradek.broker.descriptors import claim_descriptors
from odradek.config.broker import BrokerConfig

try:
    from uvloop import new_event_loop
except ImportError:  # where there is no uvloop, asyncio's own loop serves, more slowly
    from asyncio import new_event_loop

GARBAGE_THRESHOLD = 20_000  # objects; requests leave no cycles behind, so there is little to look for
SWITCH_INTERVAL_SECONDS = 0.001  # how long a thread that has synced may wait for a busy event loop


def run(config: BrokerConfig, announce: Callable[[Broker], None]) -> None:
    """Serve until SIGTERM or SIGINT; `announce` is called once connections are accepted. Raises BrokerFailed where
    the broker had to stop by itself."""
    claim_descriptors()
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    loop = new_event_loop()
    try:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(_serve(config, loop, announce))
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


async def _serve(
    config: BrokerConfig, loop: asyncio.AbstractEventLoop, announce: Callable[[Broker], None]
) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    broker = Broker(config, loop, on_failure=stopping.set)
    try:
        await broker.start()
        gc.collect()
        gc.freeze()  # what is alive now stays: the collector need not look at it again
        gc.set_threshold(GARBAGE_THRESHOLD)
        broker.services.turns.on_long_work = Collector(loop).long_work
        announce(broker)
        await stopping.wait()
    finally:
        await broker.stop()
    if broker.failure is not None:
        raise broker.failure
