"""What the active controller does unasked: it fences brokers that are silent, or gone.

Only while this node is the active controller. Sessions are counted by heartbeats (`controller.sessions`); a broker
whose process has ended is noticed by its sockets (`broker_watch`).
"""

import asyncio
import logging

from odradek.controller.brokers import fence_broker
from odradek.controller.sessions import Sessions
from odradek.errors import KafkaError
from odradek.host.interface import Host
from odradek.metadata.image import Broker
from odradek.net.network import Network
from odradek.services.broker_watch import BrokerWatch
from odradek.services.metadata import BrokerMetadata

log = logging.getLogger(__name__)

LOOKS_PER_SESSION = 10


class ControllerDuties:
    def __init__(
        self,
        node_id: int,
        listener: str,
        host: Host,
        network: Network,
        metadata: BrokerMetadata,
        session_timeout_ms: int,
    ) -> None:
        self._host = host
        self._metadata = metadata
        self._sessions = Sessions(session_timeout_ms)
        self._period_seconds = session_timeout_ms / 1000 / LOOKS_PER_SESSION
        self._watch = BrokerWatch(node_id, listener, host, network, self._gone)
        self._active_epoch = -1
        metadata.on_heartbeat = self._heard_from

    async def run(self) -> None:
        """Until cancelled."""
        quorum = self._metadata.quorum
        try:
            while True:
                if quorum.is_active:
                    self._look()
                elif self._active_epoch >= 0:
                    self._active_epoch = -1
                    self._watch.stop()
                try:
                    async with asyncio.timeout(self._period_seconds):
                        await quorum.changed()
                except TimeoutError:
                    pass
        finally:
            self._watch.stop()

    def _look(self) -> None:
        image, now_ms = self._metadata.image, self._host.steady_ms()
        if self._active_epoch != self._metadata.quorum.epoch:
            self._active_epoch = self._metadata.quorum.epoch
            self._sessions.start_over(image.brokers, now_ms)
        self._watch.look_at(image)
        for broker in image.brokers.values():
            if not broker.is_fenced and self._sessions.is_over(broker.id, now_ms):
                self._fence(broker, "it sent no heartbeat in time")

    def _heard_from(self, broker_id: int) -> None:
        self._sessions.heard_from(broker_id, self._host.steady_ms())

    def _gone(self, broker: Broker) -> None:
        """Its process has ended. One that was registered again since is another process."""
        registered = self._metadata.image.brokers.get(broker.id)
        if registered is not None and registered.epoch == broker.epoch and not registered.is_fenced:
            self._sessions.expire_now(broker.id)
            self._fence(registered, "its process has ended")

    def _fence(self, broker: Broker, reason: str) -> None:
        newest = self._metadata.newest.brokers.get(broker.id)
        if (
            newest is None
            or newest.epoch != broker.epoch
            or newest.is_fenced
            or not self._metadata.quorum.is_active
        ):
            return
        log.warning("fencing broker %d, because %s", broker.id, reason)
        try:
            self._metadata.write(fence_broker(self._metadata.newest, broker.id))
        except KafkaError as error:
            log.error("cannot fence broker %d, trying again: %s", broker.id, error)
