"""The background work of the active controller: it fences brokers that do not respond, moves leaderships away from
brokers whose disks are full, returns partitions to their preferred leaders, elects leaders uncleanly where the topic
allows it, and asks brokers for the ends of their logs where all in-sync replicas were killed (`recovery_elections`).

Heartbeats keep a broker's session alive (`controller.sessions`); a process that ended is noticed by its closed sockets
(`broker_watch`). Every node with the controller role runs this, but only the active controller acts.
"""

import asyncio
import logging
from contextlib import suppress

from odradek.config.broker import BrokerConfig
from odradek.controller.balance import balance_leaders
from odradek.controller.brokers import (
    PARTITIONS_AT_ONCE,
    elect_missing_leaders,
    empty_isrs_of_inactive,
    fence_broker,
    leave_full,
)
from odradek.controller.departures import arrived, departed, has_arrived, has_left
from odradek.errors import ErrorCode, KafkaError
from odradek.host.interface import Host
from odradek.metadata.delta import MetadataDelta
from odradek.metadata.image import Broker, MetadataImage
from odradek.metadata.records import MetadataRecord
from odradek.net.network import Dialer
from odradek.services.cluster.broker_watch import BrokerWatch
from odradek.services.cluster.metadata import BrokerMetadata
from odradek.services.cluster.recovery_elections import AskHere, Decision, RecoveryElections
from odradek.wording import count_of

log = logging.getLogger(__name__)

LOOKS_PER_SESSION = 10
STALL_MS = 500  # a timer this late shows that the process was paused


class ControllerDuties:
    def __init__(
        self,
        node_id: int,
        listener: str,
        host: Host,
        dialer: Dialer,
        metadata: BrokerMetadata,
        config: BrokerConfig,
        ask_here: AskHere,
    ) -> None:
        """`listener` names the listener of other brokers to which this node connects to watch them. `ask_here` hands a
        request to this node's own broker."""
        self._node_id = node_id
        self._metadata = metadata
        self._sessions = metadata.sessions
        self._host = host
        self._watch = BrokerWatch(node_id, listener, host, dialer, self._gone)
        self._recoveries = RecoveryElections(node_id, listener, host, dialer, metadata, self._write, ask_here)
        self._balances = config["auto.leader.rebalance.enable"]
        self._balance_seconds = config["leader.imbalance.check.interval.seconds"]
        self._unclean_seconds = config["unclean.leader.election.interval.ms"] / 1000
        self._taken_over = -1  # the last epoch in which this node finished its predecessor's work
        self._somebody_is_gone = asyncio.Event()
        self._configs_changed = asyncio.Event()
        self._brokers_changed = asyncio.Event()
        self._config = config
        # Brokers that left, or came back: the last image before that. The log tells of each once, when all of its
        # partitions are settled.
        self._left: dict[int, MetadataImage] = {}
        self._arrived: dict[int, MetadataImage] = {}

    async def run(self) -> None:
        """Until cancelled."""
        try:
            await asyncio.gather(
                self._look_at_sessions(),
                self._fence_gone(),
                self._follow_brokers(),
                self._balance_leaders(),
                self._elect_uncleanly(),
                self._recoveries.run(),
            )
        finally:
            self._watch.stop()
            self._recoveries.stop()

    # Events

    def _gone(self, broker: Broker) -> None:
        """Its process has ended. If it has registered again since, that is another process."""
        registered = self._metadata.newest.brokers.get(broker.id)
        if registered is not None and registered.epoch == broker.epoch and self._metadata.quorum.is_active:
            self._sessions.expire_now(broker.id)
            self._somebody_is_gone.set()

    def metadata_changed(self, delta: MetadataDelta) -> None:
        """A setting may now allow an unclean election. A broker that was fenced or unfenced may have more partitions to
        leave, or to lead, than fitted into the same write."""
        if delta.changed_configs:
            self._configs_changed.set()
        if delta.changed_brokers:
            self._brokers_changed.set()
            self._note_brokers(delta)
        self._recoveries.metadata_changed(delta)

    # What the log tells of brokers

    def _note_brokers(self, delta: MetadataDelta) -> None:
        if not self._metadata.quorum.is_active:
            return
        for broker_id in sorted(delta.changed_brokers):
            before, after = delta.before.brokers.get(broker_id), delta.after.brokers.get(broker_id)
            if has_left(before, after):
                self._left[broker_id] = delta.before
            elif has_arrived(before, after):
                self._arrived[broker_id] = delta.before

    def _tell_of_brokers(self) -> None:
        image = self._metadata.newest
        for broker_id, before in self._left.items():
            departure = departed(before, image, self._config, broker_id)
            log.log(logging.INFO if departure.is_expected else logging.WARNING, "%s", departure)
        for broker_id, before in self._arrived.items():
            log.info("%s", arrived(before, image, self._config, broker_id))
        self._left.clear()
        self._arrived.clear()

    # Sessions

    async def _look_at_sessions(self) -> None:
        quorum = self._metadata.quorum
        period_ms = max(self._sessions.timeout_ms // LOOKS_PER_SESSION, 1)
        while True:
            if quorum.is_active:
                await self._maybe_take_over()
                self._watch.look_at(self._metadata.image)
                await self._fence_silent()
                await self._relieve_full()
            else:
                self._watch.stop()
                self._recoveries.stop()
            began_ms = self._host.steady_ms()
            with suppress(TimeoutError):
                async with asyncio.timeout(period_ms / 1000):
                    await quorum.changed()
            self._forgive_own_stall(self._host.steady_ms() - began_ms - period_ms)

    async def _maybe_take_over(self) -> None:
        """The previous controller may have fenced or unfenced a broker without finishing its partitions."""
        if self._taken_over != self._metadata.quorum.epoch:
            self._taken_over = self._metadata.quorum.epoch
            await self._go_on_fencing()
            await self._go_on_electing()
            self._recoveries.take_over(self._metadata.newest)

    def _forgive_own_stall(self, late_ms: int) -> None:
        if late_ms > STALL_MS:
            log.warning(
                "this controller was paused for %d ms: no broker session expires because of that", late_ms
            )
            self._sessions.stood_still(late_ms)

    async def _fence_gone(self) -> None:
        while True:
            await self._somebody_is_gone.wait()
            self._somebody_is_gone.clear()
            await self._fence_silent()

    async def _fence_silent(self) -> None:
        """One after the other, so that no partition moves to a broker that is fenced next."""
        while self._metadata.quorum.is_active:
            silent = self._silent(self._metadata.newest)
            if not silent or not await self._fence(silent[0]):
                return

    def _silent(self, image: MetadataImage) -> list[int]:
        """The brokers whose sessions have expired. This node's own is alive, whatever its heartbeats say."""
        watched = (broker.id for broker in image.brokers.values() if not broker.is_fenced)
        others = [broker_id for broker_id in watched if broker_id != self._node_id]
        return self._sessions.overdue(others, self._host.steady_ms())

    async def _fence(self, broker_id: int) -> bool:
        def fence(image: MetadataImage, config: BrokerConfig) -> list[MetadataRecord]:
            if broker_id not in self._silent(image):
                return []
            return fence_broker(image, config, broker_id, PARTITIONS_AT_ONCE)

        if not await self._write(fence):
            return False
        await self._go_on_fencing()
        return True

    async def _go_on_fencing(self) -> None:
        await self._in_parts(
            lambda image, config: empty_isrs_of_inactive(image, config, PARTITIONS_AT_ONCE),
            "removed inactive brokers from the ISR of %s",
            is_told_later=bool(self._left),
        )

    async def _follow_brokers(self) -> None:
        while True:
            await self._brokers_changed.wait()
            self._brokers_changed.clear()
            await self._go_on_fencing()
            await self._go_on_electing()
            self._tell_of_brokers()
            await self._relieve_full()

    async def _relieve_full(self) -> None:
        await self._in_parts(
            lambda image, config: leave_full(image, config, PARTITIONS_AT_ONCE),
            "moved leaderships away from brokers whose disks are full, or took them out of the ISR, of %s",
        )

    # Elections

    async def _balance_leaders(self) -> None:
        while self._balances:
            await asyncio.sleep(self._balance_seconds)
            await self._in_parts(
                lambda image, config: balance_leaders(image, config, PARTITIONS_AT_ONCE),
                "returned the leadership of %s to their preferred leaders",
            )

    async def _elect_uncleanly(self) -> None:
        while True:
            await _happens(self._configs_changed, self._unclean_seconds)
            await self._go_on_electing()

    async def _go_on_electing(self) -> None:
        await self._in_parts(
            lambda image, config: _elect_missing(image, config, PARTITIONS_AT_ONCE),
            "elected leaders of %s that had none",
            is_told_later=bool(self._arrived),
        )

    async def _in_parts(self, decision: Decision, message: str, *, is_told_later: bool = False) -> None:
        """Repeat while there is something left to do and the log accepts it; then log all of it in one line, unless
        that of a broker says as much (`_tell_of_brokers`)."""
        total = 0
        while self._metadata.quorum.is_active and (written := await self._write(decision)):
            total += written
            await asyncio.sleep(0)
        if total:
            log.log(logging.DEBUG if is_told_later else logging.INFO, message, count_of(total, "partition"))

    async def _write(self, decision: Decision) -> int:
        """Returns how many records were written and committed."""
        try:
            return await self._metadata.change(decision)
        except KafkaError as error:
            level = logging.DEBUG if error.code is ErrorCode.NOT_CONTROLLER else logging.ERROR
            log.log(level, "the controller could not write, trying again later: %s", error)
        except Exception:
            log.exception("a duty of the controller failed, trying again later: this is a bug")
        return 0


def _elect_missing(image: MetadataImage, config: BrokerConfig, most: int) -> list[MetadataRecord]:
    return elect_missing_leaders(image, config, {broker.id for broker in image.active_brokers()}, most)


async def _happens(event: asyncio.Event, seconds: float) -> bool:
    """True if the event happened within this time."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    event.clear()
    return True
