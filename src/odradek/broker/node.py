"""A node, which is a broker, a controller, or both: its parts, built in order and stopped in reverse order.

Everything outside the node is a parameter: a host (clocks, timers, threads, processes), a network, a file system, a
source of randomness. `broker.main` passes this machine; simulations pass a simulated one.

All parts are built in the constructor. A part that has news for another tells the node, which passes it on, so no part
needs one that is built after it.

Start: lock the data directory, take part in the metadata quorum until everything committed is known here, open the logs
that the metadata names, bind, register, accept connections. A node that is only a controller has no logs, and serves
only other nodes. Stop: move partitions to other brokers, hand over the leadership of the quorum, accept no more
connections, sync everything, answer those who wait, unlock the directory. Thousands of logs take seconds to close, so
that is done in turns of the event loop, and most of it before anything else stops.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any

from odradek.broker.binding import bind, bind_again, names_address
from odradek.broker.coordinators import NodeCoordinators
from odradek.broker.protection import Protection
from odradek.broker.settings import bounds, check_supported
from odradek.config.authorizer import access_control
from odradek.config.broker import BrokerConfig
from odradek.config.listeners import Listener
from odradek.errors import ErrorCode, KafkaError
from odradek.host import log_lines, metrics
from odradek.host.interface import Host
from odradek.host.metrics import Metrics
from odradek.metadata.delta import MetadataDelta
from odradek.metadata.formatting import make_data_directory
from odradek.metadata.quorum_settings import registration_settings
from odradek.model import Caller
from odradek.net.bounds import Bounds
from odradek.net.deadlines import Deadlines
from odradek.net.network import Network
from odradek.net.transport import Converse
from odradek.raft.voters import Endpoint
from odradek.replication.quota import new_quota
from odradek.replication.replica import Replica
from odradek.services.cluster.controller_duties import ControllerDuties
from odradek.services.cluster.lifecycle import Lifecycle
from odradek.services.cluster.metadata import BrokerMetadata
from odradek.services.coordination.peers import Peers
from odradek.services.coordination.producer_ids import ProducerIds
from odradek.services.partitions.damaged_logs import DamagedLogs
from odradek.services.partitions.flusher import Flusher
from odradek.services.partitions.integrity import IntegrityCheck
from odradek.services.partitions.isr import InSyncReplicas
from odradek.services.partitions.local_partitions import LocalPartitions
from odradek.services.partitions.lost_replicas import LostReplicas
from odradek.services.partitions.replication import Replication, fetch_settings
from odradek.services.upkeep.compactor import Compactor
from odradek.services.upkeep.disk_watch import DiskWatch
from odradek.services.upkeep.maintenance import Maintenance
from odradek.serving.authorizer import AllowAll, Authorizer
from odradek.serving.cluster import Cluster
from odradek.serving.conversation import Conversations
from odradek.serving.coordination import Coordination
from odradek.serving.dispatch import Dispatcher, controller_handlers
from odradek.serving.partitions import Partitions
from odradek.serving.quotas import ClientQuotas
from odradek.serving.services import Services, ThisNode
from odradek.serving.turns import Turns
from odradek.serving.watch import Watch
from odradek.storage.disk.files import Files
from odradek.storage.store import LogStore
from odradek.wire.codec import Message
from odradek.wording import duration

if TYPE_CHECKING:
    from odradek.services.upkeep.monitoring import Monitoring
    from odradek.serving.standard_authorizer import StandardAuthorizer

log = logging.getLogger(__name__)


class BrokerFailed(Exception):
    """Why a broker stopped by itself."""


class Node:
    def __init__(
        self,
        config: BrokerConfig,
        host: Host,
        network: Network,
        files: Files,
        rng: Random,
        *,
        new_converse: Callable[[Services], Converse] | None = None,
        on_failure: Callable[[], None] = lambda: None,
        on_long_work: Callable[[], None] = lambda: None,
        authorizer: Authorizer | None = None,
        random_bytes: Callable[[int], bytes] | None = None,
    ) -> None:
        """Build the node. If this raises, the data directory is unlocked again.

        `new_converse` replaces `answer_requests`.
        `on_failure` is called if the node cannot continue: it must then be stopped, and `failure` says why.
        `on_long_work` is called whenever a large request yields to the event loop.
        `authorizer` says who may do what: by default, the one that the settings name, or everybody may do everything.
        `random_bytes` cannot be predicted, and are for logins; by default, `rng` makes them."""
        self._repeats = log_lines.enter(config.node_id, host)
        self.metrics = Metrics()
        metrics.enter(self.metrics)
        check_supported(config)
        self.failure: BrokerFailed | None = None
        self._on_failure = on_failure
        self.config = config
        self.node_id = config.node_id
        self.data_dir = config.log_dirs[0]
        self._host = host
        self._network = network
        self._protection = Protection(config, host, network, random_bytes or rng.randbytes)
        self._rng = rng
        self._files = files
        self._acls = self._new_authorizer()
        self._authorizer: Authorizer = authorizer or self._acls or AllowAll()
        self._coordinators = NodeCoordinators(lambda: self.services)
        self._new_converse = new_converse or answer_requests
        make_data_directory(files, str(self.data_dir))
        self._store = LogStore(
            self._files,
            str(self.data_dir),
            rng=self._rng,
            producer_expiration_ms=config["producer.id.expiration.ms"],
        )
        try:
            self._build(on_long_work)
        except BaseException:
            self._store.release()
            raise

    def _new_authorizer(self) -> "StandardAuthorizer | None":
        """The authorizer; None if everybody may do everything. Its code is imported only where it is needed."""
        access = access_control(self.config)
        if access is None:
            return None
        from odradek.serving.standard_authorizer import StandardAuthorizer

        return StandardAuthorizer(access.super_users, access.allows_unlisted)

    def _build(self, on_long_work: Callable[[], None]) -> None:
        self._is_loaded = False  # the logs are open
        turns = self._turns = Turns(self._host.monotonic, on_long_work)
        self._build_metadata(turns)
        self._build_partitions()
        self._build_upkeep()
        self.services = self._new_services(turns)
        if self.metadata.quorum.is_caught_up:
            self._load()
        self._server = self._network.serve(self._new_converse(self.services), self._bounds())
        self._monitoring = None if self.config.metrics_listener is None else self._new_monitoring(turns)
        self._is_started = False
        self._tasks: list[asyncio.Task[None]] = []
        self.metrics_port = 0
        self.listeners: tuple[Listener, ...] = ()  # that serve clients
        self.controller_listeners: tuple[Listener, ...] = ()

    def _build_metadata(self, turns: Turns) -> None:
        """The metadata, and what depends on it alone. From here on, the configuration includes dynamic settings."""
        self.metadata = BrokerMetadata(
            self._files,
            self.config,
            self._rng,
            self._host,
            self._protection.to_controllers,
            turns,
            self._listeners(),
            self._failed,
            self.metrics.metadata_sync_time,
            self._ask,
        )
        config = self.config = self.metadata.effective_config(self.config)
        self._lifecycle = Lifecycle(
            self.node_id,
            self.metadata,
            self._host,
            self._protection.to_controllers,
            self._rng,
            config["broker.rack"],
            registration_settings(config),
            is_cordoned=bool(config.cordoned_log_dirs),
        )
        self._duties = ControllerDuties(
            self.node_id,
            self._inter_broker_listener,
            self._host,
            self._protection.to_brokers,
            self.metadata,
            config,
            lambda message, version, timeout: self._peers.ask(self.node_id, message, version, timeout),
        )

    async def _ask(self, request: Message, version: int, caller: Caller) -> Any:
        """A request of this node itself takes the road of all requests."""
        return await self.services.ask(request, version, caller)

    @property
    def _inter_broker_listener(self) -> str:
        return self.config.inter_broker_listener_name if self.config.is_broker else ""

    def _build_partitions(self) -> None:
        """The replicas on this node, and their replication."""
        config, host = self.config, self._host
        self._disk = DiskWatch(
            str(self.data_dir),
            config["disk.reserve.bytes"],
            host,
            self._files,
            lambda: sum(replica.leader is not None for replica in self.replicas),
            self._disk_filled,
        )
        self._leader_quota, self._follower_quota = new_quota(config), new_quota(config)
        self._limit_replication(config)
        self._partitions = LocalPartitions(
            self.node_id,
            host,
            self._store,
            config,
            self._appended,
            self._new_role,
            self._removed,
            self._lifecycle.is_registered,
        )
        self.replicas = self._partitions.replicas
        self._replication = Replication(
            self.node_id,
            self._inter_broker_listener,
            host,
            self._protection.to_brokers,
            self.metadata,
            fetch_settings(config),
            self._follower_quota,
            self._store.delete_records,
            self._disk,
        )
        self._lost = LostReplicas(self.node_id, self.metadata)
        self._damaged = DamagedLogs(
            self.node_id, host, self._store, lambda: self.metadata.image, self._lost.report
        )
        self._in_sync = InSyncReplicas(
            self.node_id, self.metadata, self.replicas, host, config["replica.lag.time.max.ms"]
        )

    def _limit_replication(self, config: BrokerConfig) -> None:
        self._leader_quota.bytes_per_second = config["leader.replication.throttled.rate"]
        self._follower_quota.bytes_per_second = config["follower.replication.throttled.rate"]

    def _build_upkeep(self) -> None:
        """Syncing, retention and compaction."""
        config, host = self.config, self._host
        self._flusher = Flusher(host, self._files, config["slow.sync.ms"], self.metrics.sync_time)
        self._maintenance = Maintenance(
            self._store, self.metadata, self.replicas, config, host.now_ms, self._retry_failed
        )
        self._compactor = Compactor(host, self._files, self.replicas, config, str(self.data_dir))
        self._integrity = IntegrityCheck(host, self._store, config, self._rng, self.metrics)

    def _new_services(self, turns: Turns) -> Services:
        config, host = self.config, self._host
        self._peers = Peers(
            self.node_id,
            self._inter_broker_listener,
            host,
            self._protection.to_brokers,
            lambda: self.services,
        )
        self._quotas = ClientQuotas(config, host.steady_ms, self.metrics)
        self._quotas.apply(self.metadata.image)
        return Services(
            Cluster(
                self.node_id,
                config.controller_listener_names,
                self.metadata,
                self.metadata.quorum,
                self._disk,
            ),
            Partitions(
                self.replicas,
                self._disk,
                self._store.delete_records,
                self._in_sync.fetched,
                self._leader_quota,
            ),
            self._new_coordination(),
            ThisNode(
                self.node_id,
                self.data_dir,
                lambda: self.config,
                self._rng,
                host,
                turns,
                Deadlines(host),
                self.metrics,
                self._lifecycle.broker_epoch,
            ),
            self._authorizer,
            self._protection.new_session_of(config, lambda: self.metadata.image),
            self._quotas,
        )

    def _new_coordination(self) -> Coordination:
        coordinators = self._coordinators
        return Coordination(
            coordinators.get,
            coordinators.get_verifier,
            ProducerIds(self.node_id, self.metadata).next,
            self._peers,
        )

    def _load(self) -> None:
        """Open the logs that the metadata names. The image must have everything committed: a log that it does not name
        counts as that of a deleted topic."""
        image, config, began = self.metadata.image, self.config, self._host.monotonic()
        if self._acls is not None:
            self._acls.load(image.acls.values())
        self._store.expire_producers_after(config["producer.id.expiration.ms"])
        self._store.load(
            self._host.now_ms(),
            self._partitions.log_config_for(image),
            self._partitions.expected_in(image),
            self.metadata.quorum.log.take_removed_topic_ids(),
        )
        took = duration(self._host.monotonic() - began)
        log.info("%s, in %s (%s)", self._store.report, took, self.data_dir)
        self._is_loaded = True
        self._partitions.open_all(image)
        self._coordinators.load(image)
        self._damaged.look_again()

    def _new_monitoring(self, turns: Turns) -> "Monitoring":
        """Imported only where somebody can read what it says."""
        from odradek.services.upkeep.monitoring import Monitoring, Parts

        parts = Parts(
            node_id=self.node_id,
            is_broker=self.config.is_broker,
            metadata=self.metadata,
            replicas=self.replicas,
            metrics=self.metrics,
            traffic={"clients": self._server.traffic, "nodes": self._network.traffic},
            disk=self._disk,
            throttled={"leader": self._leader_quota, "follower": self._follower_quota},
            connection_count=lambda: self._server.connection_count,
            group_count=lambda: self._coordinators.group_count,
            failure=lambda: "" if self.failure is None else str(self.failure),
            is_started=lambda: self._is_started,
        )
        return Monitoring(parts, turns)

    # --- news of one part for the others ---

    def _listeners(self) -> tuple[Callable[[MetadataDelta], None], ...]:
        """Called for every change of the metadata, in this order: logs first, then the parts that use them."""
        return (
            self._change_acls,
            self._apply,
            self._tell_coordinators,
            self._maybe_reconfigure,
            self._tell_quotas,
            self._tell_compactor,
            self._tell_duties,
            self._count,
        )

    def _change_acls(self, delta: MetadataDelta) -> None:
        """First of all, so that nothing that follows from a change is seen by those whom it excludes."""
        if self._acls is not None:
            self._acls.apply(delta)

    def _apply(self, delta: MetadataDelta) -> None:
        if self._is_loaded:
            self._partitions.apply(delta)
            self._store.topics_deleted(delta.removed_topic_ids, self._host.now_ms())
            self._lost.metadata_changed(delta.after)

    def _tell_compactor(self, delta: MetadataDelta) -> None:
        if self._is_loaded:
            self._compactor.configured(delta)

    def _tell_duties(self, delta: MetadataDelta) -> None:
        self._duties.metadata_changed(delta)

    def _count(self, delta: MetadataDelta) -> None:
        if self._is_loaded and self._monitoring is not None:
            self._monitoring.apply(delta)

    def _appended(self, replica: Replica) -> None:
        self._flusher.appended(replica)
        if not replica.is_touched:
            replica.is_touched = True
            self._maintenance.appended(replica)
            self._compactor.appended(replica)

    def _new_role(self, replica: Replica) -> None:
        self._replication.new_role(replica)
        self._compactor.appended(replica)  # maybe before a restart, and not since
        self._coordinators.new_role(replica)

    def _removed(self, replica: Replica) -> None:
        self._replication.removed(replica)
        self._compactor.removed(replica)
        self._coordinators.removed(replica)

    def _disk_filled(self, is_full: bool) -> None:
        self._lifecycle.fill(is_full)
        if not is_full:
            self._replication.has_room()

    def _failed(self, reason: str) -> None:
        if self.failure is None:
            self.failure = BrokerFailed(reason)
            self._on_failure()

    def _retry_failed(self) -> None:
        """Retry what failed earlier."""
        self._partitions.retry_failed()
        self._damaged.look_again()
        with suppress(KafkaError):  # logged
            self.metadata.settle()

    def _tell_coordinators(self, delta: MetadataDelta) -> None:
        self._coordinators.metadata_changed(delta)

    def _tell_quotas(self, delta: MetadataDelta) -> None:
        if delta.changed_quotas:
            self._quotas.apply(delta.after)
            self._server.reconfigure(self._bounds())

    def _bounds(self) -> Bounds:
        return bounds(self.config, self.metadata.image.quotas)

    def _maybe_reconfigure(self, delta: MetadataDelta) -> None:
        config = self.metadata.effective_config(self.config)
        if config is not self.config:
            self.config = config
            for reconfigure in (
                self._partitions.reconfigure,
                self._limit_replication,
                lambda config: self._store.expire_producers_after(config["producer.id.expiration.ms"]),
                self._compactor.reconfigure,
                self._integrity.reconfigure,
                lambda config: self._lifecycle.cordon(bool(config.cordoned_log_dirs)),
                lambda config: self._disk.reconfigure(config["disk.reserve.bytes"]),
                lambda config: self._server.reconfigure(self._bounds()),
                self._protection.reconfigure,
            ):
                try:
                    reconfigure(config)
                except Exception:
                    log.exception("a part of the broker failed to apply new settings: this is a bug")

    # --- life ---

    async def start(self) -> None:
        """Take part in the quorum; then, as a broker, bind, register and accept. When this returns, clients are
        served."""
        await self._serve_pages()
        if (authentication := await self._protection.start()) is not None:
            self._tasks.append(self._host.create_task(authentication.run()))
        controllers = bind_again(
            self._server,
            self.config.controller_listeners,
            self.metadata.quorum.recorded_ports,
            self._protection.of_listener,
        )
        self.controller_listeners = self.config.advertised_listeners(controllers, self._host.hostname())
        self.metadata.quorum.start(
            tuple(Endpoint(item.name, item.host, item.port) for item in self.controller_listeners)
        )
        if not self.metadata.quorum.is_caught_up:
            log.info("waiting for the metadata quorum")
            await self.metadata.quorum.caught_up()
        if not self._is_loaded:
            self._load()
        if self.config.is_controller:
            self._tasks.append(self._host.create_task(self._duties.run()))
            registering = self._lifecycle.register_controller(self.controller_listeners)
            self._tasks.append(self._host.create_task(registering))
        if self.config.is_broker:
            bound = bind(self._server, self.config.broker_listeners, self._protection.of_listener)
            self.listeners = self.config.advertised_listeners(bound, self._host.hostname())
            self._tasks.append(self._host.create_task(self._disk.run()))
            was_clean = self._store.was_clean and not self._store.has_damaged_logs
            await self._lifecycle.register(self.listeners, was_clean)
            self._tasks.append(self._host.create_task(self._lifecycle.run()))
            self._tasks.append(self._host.create_task(self._in_sync.run()))
            self._tasks.append(self._host.create_task(self._lost.run()))
            self._tasks.append(self._host.create_task(self._integrity.run()))
        self._tasks.append(self._host.create_task(self._maintenance.run()))
        if self.config["log.cleaner.enable"] and self.config.is_broker:
            self._tasks.append(self._host.create_task(self._compactor.run()))
        self._is_started = True
        log.info(
            "%s %d of cluster %s started: %s",
            "broker" if self.config.is_broker else "controller",
            self.node_id,
            self.metadata.image.cluster_id,
            ", ".join(
                f"{item.name}://{item.host}:{item.port}"
                for item in (*self.listeners, *self.controller_listeners)
            ),
        )

    async def _serve_pages(self) -> None:
        """Before anything else, so that /readyz says what the node waits for."""
        listener = self.config.metrics_listener
        if listener is not None and self._monitoring is not None:
            with names_address(listener.host, listener.port):
                self.metrics_port = await self._network.serve_pages(*listener, self._monitoring.page)
            log.info("metrics: http://%s:%d/metrics", listener.host or "localhost", self.metrics_port)

    async def stop(self) -> None:
        """Stop cleanly: the next start has nothing to recover."""
        if self.failure is None and self.config["controlled.shutdown.enable"]:
            await self._lifecycle.retire()
        if self.failure is None and self._is_loaded:
            await self._turns.finish(self._store.persisting())
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._replication.stop()
        await self.metadata.stop()  # while other nodes can still reach this one
        self._server.stop_listening()
        await self._flusher.close()  # everything appended is synced, and its waiters are told
        self._coordinators.close()
        self._peers.close()
        for replica in self.replicas:
            replica.close(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._server.flush_connections()
        self._server.close_connections()
        self._network.close()
        self._partitions.stop_opening()
        await self._close_store()
        self.metadata.close()
        self._repeats.close()
        log.info("node %d stopped", self.node_id)

    async def _close_store(self) -> None:
        try:
            if self._is_loaded:
                await self._turns.finish(self._store.closing(self.replicas.high_watermarks()))
            else:
                self._store.release()
        except (OSError, KafkaError) as error:
            log.error("this stop is not clean, so the next start recovers the logs: %s", error)
            self._store.release()


def answer_requests(services: Services) -> Converse:
    host, config = services.node.host, services.node.config
    lateness = services.node.metrics.event_loop_lag
    watch = Watch(host, config["slow.request.ms"], config["slow.event.loop.ms"], lateness)
    return Conversations(
        Dispatcher(services),
        host.create_task,
        services.new_session,
        watch,
        controller_handlers(services),
        services.quotas,
        host.call_later,
    ).begin
