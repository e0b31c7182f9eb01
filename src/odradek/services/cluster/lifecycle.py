"""A broker's life in the cluster: it registers at start, sends heartbeats, and asks to shut down when it stops.

A broker that registers is fenced at first: it is known, but leads nothing. Its heartbeats say how far it has read the
metadata. Once it has read its own registration, the controller unfences it, and the broker has started. The active
controller's own broker has read everything, so it is registered unfenced.

The only voter of a cluster sends itself no heartbeats.
"""

import asyncio
import logging
import uuid
from random import Random
from typing import Any

from odradek.config.listeners import Listener
from odradek.controller.features import SUPPORTED_FEATURES, can_cordon
from odradek.errors import ErrorCode, KafkaError
from odradek.host.interface import Host
from odradek.host.log_lines import counted
from odradek.metadata.image import MetadataImage
from odradek.metadata.properties import MetaProperties
from odradek.metadata.quorum_settings import RegistrationSettings
from odradek.net.network import Dialer
from odradek.services.cluster.majority import majority_gone
from odradek.services.cluster.metadata import BrokerMetadata
from odradek.wire.messages import broker_registration, controller_registration
from odradek.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse

log = logging.getLogger(__name__)

NO_EPOCH = -1  # the last stop was not clean, or this is the first start
RETRY_SECONDS = 0.1
# A fenced broker sends heartbeats quickly, so that it starts soon.
FENCED_HEARTBEAT_SECONDS = 0.02
RETIRE_SECONDS = 3.0  # how long a stopping broker waits for the controller's consent
TRANSIENT = (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.DUPLICATE_BROKER_REGISTRATION)


def new_registration(
    properties: MetaProperties,
    incarnation_id: uuid.UUID,
    listeners: tuple[Listener, ...],
    rack: str | None,
    previous_epoch: int = NO_EPOCH,
) -> broker_registration.BrokerRegistrationRequest:
    """`previous_epoch`: of the broker's earlier process, if that stopped cleanly."""
    return broker_registration.BrokerRegistrationRequest(
        broker_id=properties.node_id,
        cluster_id=properties.cluster_id,
        incarnation_id=incarnation_id,
        listeners=[
            broker_registration.Listener(item.name, item.host, item.port, item.protocol) for item in listeners
        ],
        features=[broker_registration.Feature(name, *levels) for name, levels in SUPPORTED_FEATURES.items()],
        rack=rack,
        log_dirs=[properties.directory_id],
        previous_broker_epoch=previous_epoch,
    )


class Lifecycle:
    def __init__(
        self,
        node_id: int,
        metadata: BrokerMetadata,
        host: Host,
        dialer: Dialer,
        rng: Random,
        rack: str | None,
        settings: RegistrationSettings,
        is_cordoned: bool = False,
    ) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._host = host
        self._dialer = dialer
        self._rng = rng
        self._rack = rack
        self._heartbeat_seconds = settings.heartbeat_interval_ms / 1000
        self._timeout_seconds = settings.timeout_ms / 1000
        self._epoch = NO_EPOCH
        self._incarnation_id: uuid.UUID | None = None  # of this process, once it has sent its registration
        self._is_cordoned = is_cordoned
        self._is_full = False
        self._has_news = asyncio.Event()  # for the controller, which should not wait for the next heartbeat

    def is_registered(self, image: MetadataImage) -> bool:
        """True if the image has the registration of this process, not that of an earlier one."""
        broker = image.brokers.get(self._node_id)
        return broker is not None and broker.incarnation_id == self._incarnation_id

    def broker_epoch(self) -> int:
        """The broker epoch of this process; NO_EPOCH until the metadata has its registration."""
        image = self._metadata.image
        return image.brokers[self._node_id].epoch if self.is_registered(image) else NO_EPOCH

    async def register(self, listeners: tuple[Listener, ...], was_clean: bool) -> None:
        """Register this broker's listeners, and whether its last stop was clean. Returns once it is unfenced."""
        request = self._registration(listeners, was_clean)
        deadline = self._host.monotonic() + self._timeout_seconds
        while True:
            response = await self._ask(request)
            if not response.error_code:
                break
            code = ErrorCode(response.error_code)
            if not self._is_transient(code) or self._host.monotonic() > deadline:
                raise KafkaError(
                    code, f"broker {self._node_id} cannot be registered, the log says why: {code.name}"
                )
            await asyncio.sleep(RETRY_SECONDS)
        self._epoch = response.broker_epoch
        while self._is_fenced:
            await self._heartbeat()
            if self._is_fenced:
                await asyncio.sleep(FENCED_HEARTBEAT_SECONDS)

    def _is_transient(self, code: ErrorCode) -> bool:
        """True if a retry may succeed. A storage error is transient if it is another node's."""
        if code is ErrorCode.KAFKA_STORAGE_ERROR:
            return not self._metadata.quorum.is_active
        return code in TRANSIENT

    def _registration(
        self, listeners: tuple[Listener, ...], was_clean: bool
    ) -> broker_registration.BrokerRegistrationRequest:
        registered = self._metadata.image.brokers.get(self._node_id)
        self._incarnation_id = uuid.UUID(int=self._rng.getrandbits(128))
        previous = registered.epoch if registered is not None and was_clean else NO_EPOCH
        return new_registration(
            self._metadata.properties, self._incarnation_id, listeners, self._rack, previous
        )

    async def register_controller(self, listeners: tuple[Listener, ...]) -> None:
        """Register this controller's listeners. It already takes part in the quorum."""
        request = controller_registration.ControllerRegistrationRequest(
            controller_id=self._node_id,
            incarnation_id=uuid.UUID(int=self._rng.getrandbits(128)),
            zk_migration_ready=False,
            listeners=[
                controller_registration.Listener(item.name, item.host, item.port, item.protocol)
                for item in listeners
            ],
            features=[
                controller_registration.Feature(name, *levels) for name, levels in SUPPORTED_FEATURES.items()
            ],
        )
        while (response := await self._ask(request)).error_code:
            code = ErrorCode(response.error_code)
            counted(log, logging.WARNING, "", code.name, "this controller cannot register: %s", code.name)
            await asyncio.sleep(self._heartbeat_seconds)

    @property
    def _is_fenced(self) -> bool:
        broker = self._metadata.image.brokers.get(self._node_id)
        return broker is None or broker.epoch != self._epoch or broker.is_fenced

    def cordon(self, is_cordoned: bool) -> None:
        """Tell the controller that this broker's data directory gets no new logs, or gets them again."""
        if is_cordoned != self._is_cordoned:
            self._is_cordoned = is_cordoned
            self._has_news.set()

    def fill(self, is_full: bool) -> None:
        """Tell the controller at once that this broker's disk is full, or has room again."""
        self._is_full = is_full
        self._has_news.set()

    async def run(self) -> None:
        """Send heartbeats until cancelled."""
        while True:
            try:
                async with asyncio.timeout(self._heartbeat_seconds):
                    await self._has_news.wait()
            except TimeoutError:
                pass
            self._has_news.clear()
            is_alone = self._metadata.quorum.is_only_voter and self._metadata.quorum.is_active
            if not is_alone or not self._are_cordons_known or not self._is_fullness_known:
                await self._heartbeat()

    @property
    def _cordons(self) -> list[uuid.UUID] | None:
        """The cordoned directories, for heartbeats. The records of an older cluster have no place for them."""
        if not can_cordon(self._metadata.image):
            return None
        return [self._metadata.properties.directory_id] if self._is_cordoned else []

    @property
    def _are_cordons_known(self) -> bool:
        broker = self._metadata.image.brokers.get(self._node_id)
        known = broker.cordoned if broker is not None else None
        return set(known or ()) == set(self._cordons or ())

    @property
    def _is_fullness_known(self) -> bool:
        """To those who could lead instead."""
        broker = self._metadata.image.brokers.get(self._node_id)
        return self._is_on_its_own or (broker is not None and broker.is_full == self._is_full)

    async def retire(self) -> None:
        """Controlled shutdown: have the controller move away what this broker leads. Returns once all other brokers
        know, after a timeout, or if too few controllers are left to decide."""
        if self._epoch == NO_EPOCH or self._is_on_its_own:
            return
        over = asyncio.Event()
        tasks = [self._host.create_task(waits(over)) for waits in (self._be_let_go, self._be_left_alone)]
        try:
            async with asyncio.timeout(RETIRE_SECONDS):
                await over.wait()
        except TimeoutError:
            log.warning(
                "stopping without the controller's consent, which did not come within %g s", RETIRE_SECONDS
            )
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _be_let_go(self, over: asyncio.Event) -> None:
        while not (await self._heartbeat(want_shut_down=True)).should_shut_down:
            await asyncio.sleep(FENCED_HEARTBEAT_SECONDS)
        over.set()

    async def _be_left_alone(self, over: asyncio.Event) -> None:
        await majority_gone(self._metadata.quorum, self._dialer)
        if not over.is_set():
            log.info("stopping without the controller's consent: too few controllers are left to give it")
        over.set()

    @property
    def _is_on_its_own(self) -> bool:
        """There is no other broker to take over."""
        quorum, brokers = self._metadata.quorum, self._metadata.image.brokers
        return quorum.is_only_voter and quorum.is_active and set(brokers) <= {self._node_id}

    async def _heartbeat(self, *, want_shut_down: bool = False) -> BrokerHeartbeatResponse:
        request = BrokerHeartbeatRequest(
            broker_id=self._node_id,
            broker_epoch=self._epoch,
            current_metadata_offset=self._metadata.image.offset,
            want_fence=False,
            want_shut_down=want_shut_down,
            cordoned_log_dirs=self._cordons,
            is_full=self._is_full,
        )
        response: BrokerHeartbeatResponse = await self._ask(request)
        if response.error_code:
            code = ErrorCode(response.error_code)
            counted(log, logging.WARNING, "", code.name, "the controller refused a heartbeat: %s", code.name)
        return response

    async def _ask(self, request: Any) -> Any:
        return await self._metadata.ask(request)
