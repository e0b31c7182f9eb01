"""Detects dead brokers by their sockets: a process that ended is noticed at once, not when its session expires.

The active controller keeps an idle connection to every broker that is not fenced. When one closes, the controller
connects again, because connections close for many reasons. If the new connection is refused, no process listens there
any more: the broker is gone, and its session ends at once.

Any other outcome proves nothing. A broker that hangs, or is cut off by the network, keeps its connection open or
leaves the new one unanswered; it has until `broker.session.timeout.ms`. So has a broker behind a proxy that accepts
connections and closes them; the pause between attempts keeps that from becoming a busy loop.
"""

import asyncio
import logging
from collections.abc import Callable

from odradek.host.interface import Host
from odradek.metadata.image import Broker, MetadataImage
from odradek.net.network import Dialer

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_SECONDS = 5.0
RETRY_SECONDS = 1.0


class BrokerWatch:
    def __init__(
        self, node_id: int, listener: str, host: Host, dialer: Dialer, on_gone: Callable[[Broker], None]
    ) -> None:
        """`on_gone` is called with a broker whose process has ended. A node does not watch itself."""
        self._node_id = node_id
        self._listener = listener
        self._host = host
        self._dialer = dialer
        self._on_gone = on_gone
        # For each broker its epoch, and the task that watches it.
        self._tasks: dict[int, tuple[int, asyncio.Task[None]]] = {}

    def look_at(self, image: MetadataImage) -> None:
        """Watch the brokers that are active in this image, and no others."""
        active = {broker.id: broker for broker in image.active_brokers() if broker.id != self._node_id}
        for broker_id, (epoch, task) in list(self._tasks.items()):
            if broker_id not in active or active[broker_id].epoch != epoch:
                del self._tasks[broker_id]
                task.cancel()
        for broker_id, broker in active.items():
            if broker_id not in self._tasks:
                self._tasks[broker_id] = broker.epoch, self._host.create_task(self._watch(broker))

    def stop(self) -> None:
        """This node is no longer the active controller."""
        for _, task in self._tasks.values():
            task.cancel()
        self._tasks.clear()

    async def _watch(self, broker: Broker) -> None:
        endpoint = broker.endpoint(self._listener) or broker.endpoints[0]
        address = endpoint.host, endpoint.port
        while True:
            try:
                channel = await self._dialer.connect(address, CONNECT_TIMEOUT_SECONDS)
            except ConnectionRefusedError:
                log.debug("no process listens at %s:%d: broker %d is gone", *address, broker.id)
                self._on_gone(broker)
                await asyncio.sleep(RETRY_SECONDS)
            except OSError as error:
                log.debug("cannot tell whether broker %d is alive: %s", broker.id, error)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                began = self._host.monotonic()
                try:
                    await channel.closed()
                finally:
                    channel.close()
                if self._host.monotonic() - began < RETRY_SECONDS:
                    await asyncio.sleep(RETRY_SECONDS)
