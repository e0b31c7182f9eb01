"""This broker's copy of the cluster's metadata, and its way to change it.

One node is controller and broker in one: a request is decided on the newest image, its records are appended to the
metadata log and synced, the next image is published, and everybody who listens acts on the difference. Then the
response is given. Requests are messages (see `controller.controller`): with several nodes, `decide` will forward to the
controller what arrives elsewhere.

A request is always answered by a response, with error codes where it is refused. Three things can keep a decision from
being written, and none leaves the log and the image in doubt:

- The records cannot be appended, as on a full disk. Nothing has changed; the request is refused, the next one may work.
- They are appended, and the sync cannot begin, for want of a descriptor. It is tried again before anything else is
  decided, and every few seconds (`settle`).
- The sync fails, or half an append cannot be undone. Nobody knows what a restart would find: the broker must stop.
"""

import logging
import uuid
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from odradek.config.broker import BrokerConfig
from odradek.config.listeners import Listener
from odradek.controller.brokers import BOOTSTRAP_FEATURES, bootstrap_records
from odradek.controller.changes import changes
from odradek.controller.context import RequestContext
from odradek.controller.controller import Controller
from odradek.controller.parts import Part
from odradek.errors import ErrorCode, KafkaError
from odradek.host.interface import Host
from odradek.host.log_lines import fields
from odradek.metadata.delta import MetadataDelta
from odradek.metadata.formatting import load_or_format
from odradek.metadata.image import MetadataImage
from odradek.metadata.log import MetadataLog
from odradek.metadata.records import MetadataRecord
from odradek.metadata.snapshotting import Policy, Snapshotter
from odradek.requests.naming import sender
from odradek.requests.refusal import refuse, refuse_undone
from odradek.requests.registry import response_type
from odradek.requests.turns import Turns
from odradek.storage.config import LogConfig
from odradek.storage.disk.files import Files
from odradek.wire.codec import Message, drain
from odradek.wire.messages import broker_registration

log = logging.getLogger(__name__)

MAX_CHANGES_LOGGED = 20  # of a part of a request, which has up to 50 topics
NO_EPOCH = -1  # the broker was killed, or never ran


class BrokerMetadata:
    def __init__(
        self,
        files: Files,
        config: BrokerConfig,
        rng: Random,
        host: Host,
        turns: Turns,
        listeners: Sequence[Callable[[MetadataDelta], None]],
        on_failure: Callable[[str], None],
    ) -> None:
        """`listeners` are told of every change after the image that is loaded here; `on_failure` is called with the
        reason why the broker must stop."""
        self.turns = turns  # for large requests
        self._controller = Controller(config.node_id, config, rng)
        self._on_failure = on_failure
        self._node_id = config.node_id
        self._rng = rng
        self._now_ms = host.now_ms
        self._listeners = listeners
        self._config_layers: tuple[dict[str, str], dict[str, str]] = ({}, {})  # as last looked at
        directory = str(config.log_dirs[0])
        self._properties = load_or_format(files, directory, config, host.hostname(), rng)
        self._log = MetadataLog.open(files, directory, self._properties, _log_config(config), host.now_ms())
        self._snapshotter = Snapshotter(self._log, _snapshot_policy(config), host, turns.finish)
        if not self.image.features:
            self._append(bootstrap_records())

    @property
    def image(self) -> MetadataImage:
        return self._log.image

    async def decide(self, request: Message, context: RequestContext) -> Any:
        """Have the controller decide. The response, once what it wrote is committed and applied."""
        parts = await self.turns.complete(self._controller.cut(self._log.newest, request))
        responses = []
        pace = self.turns.pace()
        for part in parts:
            await pace.step()
            responses.append(self._decide(part, context))
        return self._controller.join(request, responses)

    def _decide(self, part: Part, context: RequestContext) -> Any:
        response: Any = None
        try:
            before = self._log.newest
            records, response = self._controller.decide(before, part, context)
            if records:
                self.settle()
                self._commit(records)
                _log_changes(before, records, context)
        except KafkaError as error:
            if response is not None:
                return refuse_undone(response, error)
            level = (
                logging.DEBUG if context.client_host else logging.WARNING
            )  # a client's refusal is logged by its API
            log.log(level, "the controller refused a %s: %s", type(part.request).__name__, error)
            refused = response_type(part.request.API_KEY)  # type: ignore[attr-defined]
            return drain(refuse(refused, part.request, context.api_version, error))
        return response

    def settle(self) -> None:
        """Commit what is appended and could not be synced then."""
        if self._log.failed:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The metadata log has failed: this broker stops.")
        if self._log.newest is not self._log.image:
            self._publish(self._write(self._log.settle))

    def _commit(self, records: list[MetadataRecord]) -> None:
        self._publish(self._append(records))

    def _append(self, records: list[MetadataRecord]) -> list[MetadataDelta]:
        return self._write(lambda: self._log.commit(records, self._now_ms()))

    def _write(self, work: Callable[[], list[MetadataDelta]]) -> list[MetadataDelta]:
        try:
            return work()
        except (KafkaError, OSError) as error:
            code = error.code if isinstance(error, KafkaError) else ErrorCode.KAFKA_STORAGE_ERROR
            reason = str(error)
            if self._log.failed:
                self._has_failed(reason)
            elif self._log.newest is not self._log.image:
                log.error("a metadata change is written but not synced yet, trying again: %s", reason)
            else:
                log.error(
                    "refused a metadata change because it cannot be written: %s",
                    reason,
                )
            raise KafkaError(code, reason) from error

    def _has_failed(self, reason: str) -> None:
        log.critical("the metadata log failed, so this broker stops: %s", reason)
        self._on_failure(reason)

    def _publish(self, committed: list[MetadataDelta]) -> None:
        """What is committed stays so, whoever fails to act on it: neither the others nor the request hear of that."""
        for delta in committed:
            for listener in self._listeners:
                try:
                    listener(delta)
                except Exception:
                    log.exception(
                        "a listener failed at metadata offset %d: this is a bug",
                        delta.after.offset,
                    )

    async def register(self, listeners: tuple[Listener, ...], was_clean: bool) -> None:
        """Say where this broker can be reached, and whether its logs are what they were when it last stopped."""
        registered = self.image.brokers.get(self._node_id)
        request = broker_registration.BrokerRegistrationRequest(
            broker_id=self._node_id,
            cluster_id=self._properties.cluster_id,
            incarnation_id=uuid.UUID(int=self._rng.getrandbits(128)),
            listeners=[
                broker_registration.Listener(item.name, item.host, item.port, item.protocol)
                for item in listeners
            ],
            features=[
                broker_registration.Feature(name, 1, level) for name, level in BOOTSTRAP_FEATURES.items()
            ],
            rack=None,
            log_dirs=[self._properties.directory_id],
            previous_broker_epoch=registered.epoch if registered is not None and was_clean else NO_EPOCH,
        )
        response = await self.decide(request, RequestContext(request.MAX_VERSION))
        if response.error_code:
            code = ErrorCode(response.error_code)
            raise KafkaError(
                code, f"broker {self._node_id} cannot be registered, the log says why: {code.name}"
            )

    def effective_config(self, config: BrokerConfig) -> BrokerConfig:
        """The configuration with what is set dynamically; the same object where that has not changed."""
        layers = dict(self.image.broker_overrides(self._node_id)), dict(self.image.default_broker_overrides)
        if layers == self._config_layers:
            return config
        self._config_layers = layers
        changed = config.with_dynamic(*layers)
        self._controller.reconfigure(changed)
        for warning in changed.warnings:
            if warning not in config.warnings:
                log.warning("ignoring a dynamic setting: %s", warning)
        return changed

    def checkpoint(self) -> None:
        """Write down how far the log is synced."""
        self._log.checkpoint()

    async def maintain(self) -> None:
        """Write a snapshot if one is due, and delete what it makes superfluous."""
        try:
            await self._snapshotter.maintain()
        except (KafkaError, OSError) as error:
            self._has_failed(str(error))

    def close(self) -> None:
        try:
            self._log.close()
        except (KafkaError, OSError) as error:
            log.error("cannot close the metadata log: the next start recovers it: %s", error)


def _log_changes(before: MetadataImage, records: list[MetadataRecord], context: RequestContext) -> None:
    """Who changed what. Of a large request only the first few are written, and all of them at debug level."""
    who = (
        sender(context.client_host, context.client_id, context.principal)
        if context.client_host
        else "this broker"
    )
    level = logging.INFO
    for number, (text, named) in enumerate(changes(before, records)):
        if number == MAX_CHANGES_LOGGED:
            log.info("%s changed more in the same request, which is logged at debug level", who)
            level = logging.DEBUG
        log.log(
            level,
            "%s %s",
            who,
            text,
            extra=fields(client=context.client_id, address=context.client_host, **named),
        )


def _log_config(config: BrokerConfig) -> LogConfig:
    """Nothing of this log is deleted by age or size alone: a snapshot must hold it first (`Snapshotter`)."""
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
