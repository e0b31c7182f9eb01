"""Runs the group coordinators: one shard for each partition of `__consumer_offsets` that this broker leads.

The coordinators are pure (`coordinators`). Here their records are appended to the partition, their answers sent when
the high watermark has passed, their timers fired, and their state read back from the log when the broker starts.

The internal topic is made when a client first looks for a coordinator. Nothing that fails on the way is final: a topic
that cannot be created is tried again when the next client asks, a partition whose log cannot be opened has its shard as
soon as it can, and a shard that cannot be loaded is loaded again.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any

from odradek.api.creation import create_internal_topic
from odradek.api.request import Request
from odradek.api.services import Amend, Services, as_it_is
from odradek.config.broker import BrokerConfig
from odradek.coordinators.consumer.plugin import plug_in
from odradek.coordinators.consumer.topics import TopicsNow
from odradek.coordinators.group import GroupSettings
from odradek.coordinators.groups import GroupCoordinator
from odradek.coordinators.routing import merge, partition_of, split
from odradek.coordinators.runtime import Answer, Effects, EncodedRecord, RequestContext, Shard, ShardState
from odradek.errors import ErrorCode, KafkaError
from odradek.host.interface import Host, Timer
from odradek.metadata.delta import MetadataDelta
from odradek.model import OFFSETS_TOPIC
from odradek.records.batch import read_header
from odradek.records.record import Record, build_batch, decode_batch
from odradek.replication.partition import Partition
from odradek.storage.reading import read_batches
from odradek.wire.codec import Steps

log = logging.getLogger(__name__)

LOAD_RETRY_SECONDS = 1.0  # after the first failure, twice as long after each further one
MAX_LOAD_RETRY_SECONDS = 60.0
TICK_RETRY_SECONDS = 1.0


class Groups:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._host = services.host
        self._topics = TopicsNow(services.image)
        self._settings = group_settings(services.config)
        self._shards: dict[int, RunningShard] = {}
        self._creating: asyncio.Task[str] | None = None
        self._not_created = ""  # why the internal topic could not be created, as last logged
        self._open_shards()

    # --- which shard ---

    async def find(self, group_id: str) -> int:
        """The broker that coordinates a group; the internal topic is created if it is not there yet."""
        if OFFSETS_TOPIC not in self._services.image.topics:
            if self._creating is None:
                self._creating = self._host.create_task(self._create_topic())
            failure = await asyncio.shield(self._creating)
            if failure:
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, failure)
        topic = self._services.image.topics.get(OFFSETS_TOPIC)
        index = partition_of(group_id, len(topic.partitions)) if topic else 0
        if topic is None or self._shard(index) is None:
            reason = f"{OFFSETS_TOPIC}-{index} is not there yet."
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, reason)
        return topic.partitions[index].leader

    async def _create_topic(self) -> str:
        """Why it failed, or nothing: whoever asks next tries again."""
        config = self._services.config
        try:
            await create_internal_topic(
                self._services,
                OFFSETS_TOPIC,
                config["offsets.topic.num.partitions"],
                config["offsets.topic.replication.factor"],
                {
                    "cleanup.policy": "compact",
                    "compression.type": "producer",
                    "segment.bytes": str(config["offsets.topic.segment.bytes"]),
                },
            )
        except Exception as error:
            reason = f"Cannot create {OFFSETS_TOPIC}: {error}"
            self._log_not_created(reason, error)
            return reason
        finally:
            self._creating = None
        self._not_created = ""
        return ""

    def _log_not_created(self, reason: str, error: Exception) -> None:
        """Once for each reason: clients ask again ten times a second."""
        if reason != self._not_created:
            self._not_created = reason
            is_expected = isinstance(error, (OSError, KafkaError))
            log.error(
                "groups are not available, the next FindCoordinator tries again: %s",
                reason,
                exc_info=not is_expected,
            )

    @property
    def _partition_count(self) -> int:
        topic = self._services.image.topics.get(OFFSETS_TOPIC)
        return len(topic.partitions) if topic else 1

    # --- requests ---

    def handle(self, request: Request, message: Any, group_id: str, amend: Amend = as_it_is) -> None:
        """A request about one group."""
        token = request if amend is as_it_is else PartOfAnswer(Gathering(request, 1, amend), 0)
        self._submit(partition_of(group_id, self._partition_count), request, message, token)

    def handle_parts(
        self, request: Request, parts: list[Any], group_id: str, amend: Amend = as_it_is
    ) -> Steps[None]:
        """A request about one group, in parts that are handled one after the other."""
        shard = partition_of(group_id, self._partition_count)
        return self._gather(request, [(shard, part) for part in parts], amend)

    def handle_many(self, request: Request, message: Any, amend: Amend = as_it_is) -> Steps[None]:
        """A request about groups of any number of shards, answered when all have answered."""
        parts = yield from split(message, self._partition_count)
        yield from self._gather(request, parts or [(0, message)], amend)

    def handle_all(self, request: Request, message: Any) -> Steps[None]:
        """A request that every shard has something to say to."""
        return self._gather(request, [(shard, message) for shard in self._shards] or [(0, message)])

    def _gather(self, request: Request, parts: list[tuple[int, Any]], amend: Amend = as_it_is) -> Steps[None]:
        gathering = Gathering(request, len(parts), amend)
        for place, (index, part) in enumerate(parts):
            self._submit(index, request, part, PartOfAnswer(gathering, place))
            yield

    def _submit(self, index: int, request: Request, message: Any, token: Any) -> None:
        shard = self._shard(index)
        if shard is None:
            token.answer(self._nowhere(message))
        else:
            host = request.client_address.rpartition(":")[0]
            context = RequestContext(request.version, request.client_id or "", f"/{host}")
            shard.handle(message, context, token)

    def _nowhere(self, message: Any) -> Any:
        """No shard here: an empty one knows what its answer looks like."""
        if OFFSETS_TOPIC in self._services.image.topics:
            return self._new_coordinator().refuse(message, ErrorCode.NOT_COORDINATOR)
        shard = Shard(self._new_coordinator())
        shard.loaded(self._host.steady_ms())
        effects = shard.handle(message, RequestContext(0), "nobody", self._host.steady_ms())
        if effects.answers and not effects.records:
            return effects.answers[0][1]
        return shard.coordinator.refuse(message, ErrorCode.NOT_COORDINATOR)

    # --- shards come and go ---

    def _new_coordinator(self) -> GroupCoordinator:
        coordinator = GroupCoordinator(self._settings, self._services.rng)
        plug_in(coordinator, self._topics)
        return coordinator

    def _shard(self, index: int) -> "RunningShard | None":
        """If it should be here and is not, its log could not be opened: asking for that tries again."""
        shard = self._shards.get(index)
        if shard is None and OFFSETS_TOPIC in self._services.image.topics:
            partition = self._services.replicas.find(OFFSETS_TOPIC, index)
            if partition is not None:
                self.opened(partition)
        return self._shards.get(index)

    def _open_shards(self) -> None:
        """Have a shard for every partition that the topic has now, and none of an earlier one of its name."""
        topic = self._services.image.topics.get(OFFSETS_TOPIC)
        for index, shard in list(self._shards.items()):
            if topic is None or shard.partition.topic_id != topic.id:
                del self._shards[index]
                shard.resign()
        for index in topic.partitions if topic else ():
            self._shard(index)

    def opened(self, partition: Partition) -> None:
        """A partition is there, maybe long after its topic was created."""
        topic, index = partition.topic_partition
        present = self._shards.get(index)
        if topic != OFFSETS_TOPIC or (present is not None and present.partition is partition):
            return
        if present is not None:
            present.resign()
        shard = RunningShard(partition, self._new_coordinator, self._services, self._host)
        self._shards[index] = shard
        shard.begin_loading()

    def metadata_changed(self, delta: MetadataDelta) -> None:
        self._topics.publish(delta)
        self._open_shards()
        deleted = {topic.name for topic in delta.deleted_topics}
        for shard in list(self._shards.values()) if deleted else ():
            try:
                shard.topics_deleted(deleted)
            except Exception:
                log.exception("%s: offsets of deleted topics stay", shard.partition.topic_partition)

    def close(self) -> None:
        for shard in self._shards.values():
            shard.resign()


class RunningShard:
    """A shard, its partition and its timer."""

    def __init__(
        self,
        partition: Partition,
        new_coordinator: Callable[[], GroupCoordinator],
        services: Services,
        host: Host,
    ) -> None:
        self.partition = partition
        self._new_coordinator = new_coordinator
        self._coordinator = new_coordinator()
        self._shard = Shard(self._coordinator)
        self._services = services
        self._host = host
        self._timer: Timer | None = None
        self._timer_due_ms = 0
        self._loading: asyncio.Task[None] | None = None
        self._retry: Timer | None = None
        self._failures = 0  # of loading
        self._deleted: set[str] = set()  # topics deleted while we were loading

    # --- loading ---

    def begin_loading(self) -> None:
        """While it lasts clients hear COORDINATOR_LOAD_IN_PROGRESS. An empty log is loaded at once."""
        self._retry = None
        if self.partition.log.end_offset > self.partition.log.log_start_offset:
            self._loading = self._host.create_task(self._load())
            return
        try:
            self._loaded()
        except Exception as error:
            self._load_again(error)

    async def _load(self) -> None:
        """Replay the log a piece at a time; others are served in between."""
        try:
            for piece in read_batches(self.partition.log):
                for header, batch in piece:
                    if not header.is_control:
                        self._replay(decode_batch(batch, header))
                await asyncio.sleep(0)
            self._loaded()
        except Exception as error:
            self._load_again(error)

    def _replay(self, records: Iterable[Record]) -> None:
        for record in records:
            if record.key is not None:
                self._shard.replay(record.key, record.value)

    def _loaded(self) -> None:
        self._shard.loaded(self._host.steady_ms())
        stale = self._coordinator.topics_with_offsets() - self._services.image.topics.keys()
        self.topics_deleted(self._deleted | stale)
        self._deleted.clear()
        self._set_timer()

    def _load_again(self, error: Exception) -> None:
        """From the beginning, into a new state: nobody knows what the old one lacks."""
        delay = min(LOAD_RETRY_SECONDS * 2**self._failures, MAX_LOAD_RETRY_SECONDS)
        self._failures += 1
        log.error(
            "%s: its groups cannot be loaded and are not served, trying again in %g s: %s",
            self.partition.topic_partition,
            delay,
            error,
            exc_info=not isinstance(error, (OSError, KafkaError)),
        )
        self._coordinator = self._new_coordinator()
        self._shard = Shard(self._coordinator)
        self._loading = None
        self._retry = self._host.call_later(delay, self.begin_loading)

    # --- events ---

    def handle(self, message: Any, context: RequestContext, token: Any) -> None:
        self._carry_out(self._shard.handle(message, context, token, self._host.steady_ms()))
        self._set_timer()

    def topics_deleted(self, topics: set[str]) -> None:
        if self._shard.state is ShardState.LOADING:
            self._deleted |= topics
        elif topics:
            self._coordinator.topics_deleted(topics, self._host.steady_ms())
            self._tick()

    def _tick(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        try:
            while (effects := self._shard.tick(self._host.steady_ms())) is not None:
                self._carry_out(effects)
        except Exception:
            log.exception(
                "%s: a timer of its groups failed; the others go on", self.partition.topic_partition
            )
            self._timer_due_ms = self._host.steady_ms() + int(TICK_RETRY_SECONDS * 1000)
            self._timer = self._host.call_later(TICK_RETRY_SECONDS, self._tick)
            return
        self._set_timer()

    def _set_timer(self) -> None:
        """One timer for the shard, at the earliest deadline of all its groups."""
        due_ms = self._shard.next_deadline_ms()
        if due_ms is None or (self._timer is not None and self._timer_due_ms <= due_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due_ms = due_ms
        delay = max(due_ms - self._host.steady_ms(), 0) / 1000
        self._timer = self._host.call_later(delay, self._tick)

    # --- effects ---

    def _carry_out(self, effects: Effects) -> None:
        if effects.records:
            self._append(effects.records)
        _send(effects.answers)

    def _append(self, encoded: list[EncodedRecord]) -> None:
        partition, now_ms = self.partition, self._host.now_ms()
        records = [Record(offset, now_ms, key, value) for offset, (key, value) in enumerate(encoded)]
        batch = build_batch(records)
        try:
            if partition.closed_with:
                raise KafkaError(partition.closed_with)
            partition.check_enough_replicas()
            appended = partition.log.append_as_leader(
                batch, read_header(batch), partition.leader_epoch, now_ms
            )
        except Exception as error:
            is_expected = isinstance(error, (OSError, KafkaError))
            log.error("%s: cannot append: %s", partition.topic_partition, error, exc_info=not is_expected)
            code = error.code if isinstance(error, KafkaError) else ErrorCode.KAFKA_STORAGE_ERROR
            _send(self._shard.append_failed(code))
            return
        self._shard.appended(appended.last_offset)
        self._services.appended(partition)
        partition.when_committed(appended.last_offset + 1, self._committed)

    def _committed(self, error: ErrorCode) -> None:
        if error:
            self.resign()
        else:
            _send(self._shard.committed(self.partition.high_watermark))

    def resign(self) -> None:
        for work in (self._timer, self._loading, self._retry):
            if work is not None:
                work.cancel()
        _send(self._shard.resigned())


class Gathering:
    """One answer out of those of several shards."""

    def __init__(self, request: Request, count: int, amend: Amend) -> None:
        self._request = request
        self._missing = count
        self._amend = amend
        self._answers: list[Any] = [None] * count

    def add(self, place: int, answer: Any) -> None:
        self._answers[place] = answer
        self._missing -= 1
        if self._missing == 0:
            merged = merge(self._answers) if len(self._answers) > 1 else self._answers[0]
            self._request.answer(self._amend(merged))


class PartOfAnswer:
    """What one shard knows a gathered request by."""

    def __init__(self, gathering: Gathering, place: int) -> None:
        self._gathering = gathering
        self._place = place

    def answer(self, message: Any) -> None:
        self._gathering.add(self._place, message)


def _send(answers: Iterable[Answer]) -> None:
    """One that cannot be sent keeps no other from it."""
    for token, message in answers:
        try:
            token.answer(message)  # type: ignore[attr-defined]
        except Exception:
            log.exception("a group's response could not be sent; the others go on")


def group_settings(config: BrokerConfig) -> GroupSettings:
    """The settings carry Kafka's names with underscores for dots."""
    return GroupSettings(
        **{field.name: config[field.name.replace("_", ".")] for field in fields(GroupSettings)}
    )
