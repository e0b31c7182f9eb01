"""This node's copy of the cluster's metadata, and how it is changed.

The quorum (`services.cluster.quorum`) orders the changes and says what is committed. Each commit publishes the next
image, and listeners act on the difference. On the active controller a request is decided on the newest image, its
records are appended to the metadata log, and the response is given once they are committed and applied here. Any other
node forwards the request (`services.cluster.forwarding`). Requests are messages (see `controller.controller`), so it
makes no difference where one is decided.

Every request gets a response, with error codes if it is refused. Four failures can keep a decision from being
committed:

- The records cannot be appended, as on a full disk. Nothing has changed: the request is refused, the next may succeed.
  If there are other voters, this node resigns: another one's disk may have room.
- They are appended, but no descriptor is left for the sync. It is tried again before the next decision, and every few
  seconds (`settle`).
- The node loses the leadership before they are committed. Their fate is unknown: NOT_CONTROLLER.
- The sync fails, or a half-written append cannot be undone. What a restart would find is unknown: the node must stop.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Any, NamedTuple, TypeVar

from odradek.apis.items import join, refuse, refuse_undone
from odradek.config.broker import BrokerConfig
from odradek.controller.changes import changes
from odradek.controller.controller import Controller
from odradek.controller.elections import MIN_ISR
from odradek.controller.features import activation_records
from odradek.controller.parts import Part
from odradek.errors import ErrorCode, KafkaError
from odradek.host.interface import Host
from odradek.host.log_lines import fields
from odradek.host.metrics import Histogram
from odradek.metadata.bootstrap import read_bootstrap
from odradek.metadata.delta import MetadataDelta
from odradek.metadata.formatting import load_or_format
from odradek.metadata.image import MetadataImage
from odradek.metadata.quorum_settings import quorum_settings
from odradek.metadata.records import MetadataRecord
from odradek.metadata.snapshotting import Policy, Snapshotter
from odradek.model import Caller, node_caller
from odradek.net.network import Dialer
from odradek.raft.address import NodeAddress
from odradek.raft.voters import Endpoint
from odradek.services.cluster.forwarding import DecideHere, Forwarder
from odradek.services.cluster.quorum import Listener, Quorum, QuorumConfig
from odradek.serving import audit
from odradek.serving.naming import sender
from odradek.serving.turns import Turns
from odradek.storage.config import LogConfig
from odradek.storage.disk.files import Files
from odradek.wire.codec import Message, drain

log = logging.getLogger(__name__)

MAX_CHANGES_LOGGED = 20  # for each part of a request, which has up to 50 topics

Written = TypeVar("Written")


class _Decided(NamedTuple):
    """A decided part of a request: its response, and what the response waits for."""

    part: Part
    response: Any
    records: Sequence[MetadataRecord] = ()
    before: MetadataImage | None = None
    offset: int = -1  # of the last record that it depends on: the response is given once that is committed
    epoch: int = -1


class BrokerMetadata:
    def __init__(
        self,
        files: Files,
        config: BrokerConfig,
        rng: Random,
        host: Host,
        dialer: Dialer,
        turns: Turns,
        listeners: Sequence[Callable[[MetadataDelta], None]],
        on_failure: Callable[[str], None],
        sync_time: Histogram | None = None,
        enter: DecideHere | None = None,
    ) -> None:
        """`listeners` are called for every change after the image that is loaded here; `on_failure` is called with the
        reason if the node must stop; `enter` takes the requests of the node itself, and brings them to `decide`."""
        self._enter = enter
        self.turns = turns  # for large requests
        self._controller = Controller(config.node_id, config, rng, host.steady_ms)
        self.sessions = self._controller.sessions  # of brokers, while this node is the active controller
        self._on_failure = on_failure
        self._sync_time = sync_time or Histogram()
        self._monotonic = host.monotonic
        self._node_id = config.node_id
        self._caller = node_caller(config.node_id)
        self._now_ms = host.steady_ms  # the quorum's clock never goes back
        self._listeners = listeners
        self._config_layers: tuple[dict[str, str], dict[str, str]] = ({}, {})  # last applied
        self._files, self._directory = files, str(config.log_dirs[0])
        directory = self._directory
        self.properties = load_or_format(files, directory, config, host.hostname(), rng)
        self.quorum = Quorum(
            files,
            directory,
            self.properties,
            _log_config(config),
            quorum_config(config, host.hostname()),
            host,
            dialer,
            Listener(self._publish, self._became_active, self._leader_changed, self._has_failed),
            self._sync_time,
        )
        self._log = self.quorum.log
        self._forwarder = Forwarder(
            self._node_id, self.quorum, host, dialer, turns, config["controller.socket.timeout.ms"]
        )
        self._snapshotter = Snapshotter(self._log, _snapshot_policy(config), host, turns.finish)
        if self.quorum.is_active:  # listeners are not called: this is part of the image they begin with
            self._activate(self._commit_alone)

    @property
    def image(self) -> MetadataImage:
        """Everything committed."""
        return self._log.image

    @property
    def newest(self) -> MetadataImage:
        """On the active controller, everything decided, committed or not: the base of the next decision."""
        return self._log.newest

    # Decisions

    async def change(self, decision: Callable[[MetadataImage, BrokerConfig], list[MetadataRecord]]) -> int:
        """Write a change of the active controller's own. Returns the number of records, once they are committed. Raises
        KafkaError, with NOT_CONTROLLER if this node is not active."""
        if not self.quorum.is_active:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "This node is not the active controller.")
        records = decision(self._log.newest, self._controller.config)
        if records:
            self.settle()
            await self.quorum.committed(self._append(records), self._log.epoch)
        return len(records)

    async def decide(self, request: Message, version: int, caller: Caller) -> Any:
        """Have the active controller decide, here or elsewhere. Returns the response once its records are committed
        and, if decided here, applied here."""
        if self.quorum.is_active:
            return await self.decide_here(request, version, caller)
        try:
            return await self.forward(request, version, caller, self.decide_here)
        except KafkaError as error:
            return self._refused(request, version, caller, error)

    async def ask(self, request: Any) -> Any:
        """Send a request of this node itself to the active controller."""
        return await (self._enter or self.decide)(request, request.MAX_VERSION, self._caller)

    async def forward(self, request: Message, version: int, caller: Caller, answer_here: DecideHere) -> Any:
        """Returns the active controller's response. Raises KafkaError if there is none in time. If this node becomes
        the active controller meanwhile, `answer_here` answers."""
        return await self._forwarder.forward(request, version, caller, answer_here)

    async def decide_here(self, request: Message, version: int, caller: Caller) -> Any:
        """Decide as the active controller; refuse with NOT_CONTROLLER if this node is not."""
        if not self.quorum.is_active:
            error = KafkaError(ErrorCode.NOT_CONTROLLER, "This node is not the active controller.")
            return self._refused(request, version, caller, error)
        parts = await self.turns.complete(self._controller.cut(self._log.newest, request))
        decided = []
        pace = self.turns.pace()
        for part in parts:
            await pace.step()
            decided.append(self._decide(part, version, caller))
        return join([await self._respond(item, version, caller) for item in decided])

    def _decide(self, part: Part, version: int, caller: Caller) -> _Decided:
        response: Any = None
        try:
            before = self._log.newest
            records, response = self._controller.decide(before, part, version, caller)
            if not records:  # the response may still depend on records that are not committed yet
                return _Decided(part, response, offset=before.offset, epoch=self._log.epoch)
            self.settle()
            offset = self._append(records)
            return _Decided(part, response, records, before, offset, self._log.epoch)
        except KafkaError as error:
            if response is not None:
                return _Decided(part, refuse_undone(response, error))
            return _Decided(part, self._refused(part.request, version, caller, error))

    async def _respond(self, decided: _Decided, version: int, caller: Caller) -> Any:
        if decided.offset < 0:  # it was refused, and depends on no record
            return decided.response
        try:
            await self.quorum.committed(decided.offset, decided.epoch)
        except KafkaError as error:
            return self._refused(decided.part.request, version, caller, error)
        if decided.before is not None:
            _log_changes(decided.before, decided.records, caller)
        return decided.response

    def _refused(self, request: Message, version: int, caller: Caller, error: KafkaError) -> Any:
        # The API logs what it refuses to a client.
        level = logging.WARNING if caller.is_node else logging.DEBUG
        log.log(level, "the controller refused a %s: %s", type(request).__name__, error)
        return drain(refuse(request, version, error))

    def settle(self) -> None:
        """Commit what was appended but could not be synced."""
        if self._log.failed:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, "The metadata log has failed: this broker is stopping."
            )
        if self.quorum.is_only_voter and self._log.newest is not self._log.image:
            self._publish(self._write(self._log.settle))
            self.quorum.appended()  # wakes those who wait for it

    def _commit(self, records: Sequence[MetadataRecord]) -> None:
        self._append(records)

    def _commit_alone(self, records: Sequence[MetadataRecord]) -> None:
        self._write(lambda: self._log.commit(records, self._now_ms()))

    def _append(self, records: Sequence[MetadataRecord]) -> int:
        """Returns the offset of the last record. On the only voter it is committed and applied by then."""
        if not self.quorum.is_only_voter:
            try:
                return self._write(lambda: self._log.append(records, self._now_ms()))
            finally:
                self.quorum.appended()
        began = self._monotonic()
        committed = self._write(lambda: self._log.commit(records, self._now_ms()))
        self._sync_time.observe(self._monotonic() - began)  # nearly all of it is the sync
        self._publish(committed)
        self.quorum.appended()
        return self._log.image.offset

    def _write(self, work: Callable[[], Written]) -> Written:
        try:
            return work()
        except (KafkaError, OSError) as error:
            code = error.code if isinstance(error, KafkaError) else ErrorCode.KAFKA_STORAGE_ERROR
            reason = str(error)
            if self._log.failed:
                self._has_failed(reason)
            elif code is ErrorCode.NOT_CONTROLLER:
                pass
            elif self._log.newest is not self._log.image:
                log.error("a metadata change is written but not synced yet, trying again: %s", reason)
            else:
                log.error(
                    "refused a metadata change because it cannot be written: %s",
                    reason,
                )
            raise KafkaError(code, reason) from error

    def _became_active(self) -> None:
        """No broker has sent a heartbeat to this node yet, so every session begins now."""
        self.sessions.restart(self._log.newest.brokers, self._now_ms())
        with suppress(KafkaError):  # logged; the next controller tries again
            self._activate(self._append)

    def _activate(self, write: Callable[[list[MetadataRecord]], object]) -> None:
        """Write the records that a new cluster begins with, if they are missing."""
        image = self._log.newest
        records = activation_records(image, self._controller.config)
        if not image.features:  # of a new cluster
            records += read_bootstrap(self._files, self._directory)
        try:
            if records:
                write(records)
        except KafkaError:  # logged
            if not image.features:  # a new cluster cannot begin without them
                raise

    def _leader_changed(self) -> None:
        self._forwarder.leader_changed()

    def _has_failed(self, reason: str) -> None:
        log.critical("the metadata log failed, so this broker stops: %s", reason)
        self._on_failure(reason)

    def _publish(self, committed: Sequence[MetadataDelta]) -> None:
        """A listener that fails affects neither the other listeners nor the request: the change is committed."""
        for delta in committed:
            for listener in self._listeners:
                try:
                    listener(delta)
                except Exception:
                    log.exception(
                        "a listener failed at metadata offset %d: this is a bug",
                        delta.after.offset,
                    )

    def effective_config(self, config: BrokerConfig) -> BrokerConfig:
        """The configuration with its dynamic settings; the same object if they have not changed."""
        layers = dict(self.image.broker_overrides(self._node_id)), dict(self.image.default_broker_overrides)
        if layers == self._config_layers:
            return config
        self._config_layers = layers
        changed = config.with_dynamic(*layers)
        self._controller.reconfigure(changed)
        for warning in changed.warnings:
            if warning not in config.warnings:
                log.warning("ignoring a dynamic setting: %s", warning)
        own, of_all = changed.static.get(MIN_ISR), changed.dynamic_default.get(MIN_ISR)
        if own is not None and of_all is not None and own != of_all:
            log.warning(
                "%s=%s in the settings of this node has no effect: it is %s for the whole cluster; "
                "'odradek config alter broker --set %s=…' changes that",
                MIN_ISR,
                own,
                of_all,
                MIN_ISR,
            )
        return changed

    def checkpoint(self) -> None:
        """Record how far the log is synced."""
        self._log.checkpoint()

    async def maintain(self) -> None:
        """Write a snapshot if one is due, and delete what it replaces."""
        try:
            await self._snapshotter.maintain()
        except (KafkaError, OSError) as error:
            self._has_failed(str(error))

    async def stop(self) -> None:
        """Hand the leadership to another node, and close all connections to nodes."""
        self._forwarder.close()
        await self.quorum.stop()

    def close(self) -> None:
        try:
            self._log.close()
        except (KafkaError, OSError) as error:
            log.error("cannot close the metadata log: the next start recovers it: %s", error)


def _log_changes(before: MetadataImage, records: Sequence[MetadataRecord], caller: Caller) -> None:
    """Log who changed what. Of a large request only the first changes are logged at info level, the rest at debug."""
    who = sender(caller)
    level = logging.INFO
    for number, (text, named, is_audited) in enumerate(changes(before, records)):
        if is_audited:
            audit.changed(caller, text, named)
            continue
        if number == MAX_CHANGES_LOGGED:
            log.info("%s changed more in the same request, which is logged at debug level", who)
            level = logging.DEBUG
        log.log(
            level,
            "%s %s",
            who,
            text,
            extra=fields(client=caller.client_id, address=caller.address, **named),
        )


def quorum_config(config: BrokerConfig, hostname: str) -> QuorumConfig:
    advertised = config.advertised_listeners(config.controller_listeners, hostname)
    return QuorumConfig(
        is_alone=not config.names_a_quorum(hostname),
        endpoints=tuple(Endpoint(item.name, item.host, item.port) for item in advertised),
        bootstrap=tuple(NodeAddress(*server) for server in config.quorum_bootstrap_servers),
        settings=quorum_settings(config),
    )


def _log_config(config: BrokerConfig) -> LogConfig:
    """Records are not deleted by age or size alone: a snapshot must contain them first (`Snapshotter`)."""
    return LogConfig(
        segment_bytes=config["metadata.log.segment.bytes"],
        segment_ms=config["metadata.log.segment.ms"],
        retention_ms=-1,
        retention_bytes=-1,
        delete=False,
    )


def _snapshot_policy(config: BrokerConfig) -> Policy:
    return Policy(
        max_bytes=config["metadata.log.max.record.bytes.between.snapshots"],
        max_interval_ms=config["metadata.log.max.snapshot.interval.ms"],
        retention_bytes=config["metadata.max.retention.bytes"],
        retention_ms=config["metadata.max.retention.ms"],
    )
