"""Followers fetch: the partitions that other brokers lead are copied to this one.

Each broker that leads partitions we follow has one loop here, with one connection and one fetch session for all of its
partitions. A round (`fetch_rounds`) asks for the records after the end of each log, writes what it gets, and waits
until that is on disk: the offsets of the next request tell the leader so (`replication.follower`). If two logs have
diverged, the response says in which epoch, and ours is truncated.

A round costs what has changed: it looks only at partitions that the last response named, that are new, or whose pause
is over, and it names only those whose fetch position has changed.

A partition that cannot continue (another broker leads it by now, or the disk is full) pauses for
`replica.fetch.backoff.ms`, or until its role changes; the others continue. So does a throttled partition (KIP-73) that
has not caught up, while the quota is exceeded.

While the disk is full (`disk_watch`), what the leaders send is not appended, except to internal topics: the reserve is
for them. The partitions ask again from time to time, so that they hear what their leaders delete, and go on by
themselves once there is room.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

from odradek.config.broker import BrokerConfig
from odradek.errors import ErrorCode, KafkaError, ProtocolError
from odradek.host.interface import Host
from odradek.host.log_lines import counted
from odradek.metadata.image import NO_LEADER, MetadataImage
from odradek.model import INTERNAL_TOPICS, TopicPartition
from odradek.net.link import Link
from odradek.net.network import Dialer
from odradek.net.security import Address
from odradek.replication.follower import Follower
from odradek.replication.quota import ReplicationQuota
from odradek.replication.replica import Replica
from odradek.services.cluster.calls import address_of
from odradek.services.cluster.metadata import BrokerMetadata
from odradek.services.partitions.fetch_rounds import FetchRounds
from odradek.services.partitions.fetch_session import FetchSession
from odradek.services.upkeep.disk_watch import DiskWatch
from odradek.wire.replica_fetch import (
    NOT_DIVERGING,
    Key,
    Position,
    ReplicaFetches,
    ReplicaResponse,
    ReplicatedPartition,
)
from odradek.wording import why

log = logging.getLogger(__name__)

SESSION_ERRORS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
# After a request that failed as a whole. The link pauses longer before it connects again.
RETRY_SECONDS = 0.05
THROTTLED_SECONDS = 0.1  # until a partition that was held back is looked at again
LASTING_SECONDS = 10.0  # a leader that refuses a partition for longer is worth a warning
PASSING = (  # the two brokers do not know the same metadata yet
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
)
FULL_BACKOFFS = 5  # times replica.fetch.backoff.ms, until a partition asks again that there is no room for

DeleteRecords = Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, KafkaError]]


class FetchSettings(NamedTuple):
    min_bytes: int
    max_wait_ms: int
    partition_max_bytes: int
    max_bytes: int
    backoff_ms: int
    timeout_ms: int


def fetch_settings(config: BrokerConfig) -> FetchSettings:
    return FetchSettings(
        config["replica.fetch.min.bytes"],
        config["replica.fetch.wait.max.ms"],
        config["replica.fetch.max.bytes"],
        config["replica.fetch.response.max.bytes"],
        config["replica.fetch.backoff.ms"],
        config["replica.socket.timeout.ms"],
    )


class Replication:
    """The fetch loops of this broker, one for each leader."""

    def __init__(
        self,
        node_id: int,
        listener: str,
        host: Host,
        dialer: Dialer,
        metadata: BrokerMetadata,
        settings: FetchSettings,
        quota: ReplicationQuota,
        delete_records: DeleteRecords,
        disk: DiskWatch,
    ) -> None:
        """`listener` names the listener on which brokers reach each other; `quota` is that of throttled partitions.
        `delete_records` moves log start offsets, on disk when it returns; it returns errors by partition."""
        self._node_id = node_id
        self._listener = listener
        self._host = host
        self._dialer = dialer
        self._metadata = metadata
        self._settings = settings
        self.quota = quota
        self.delete_records = delete_records
        self.disk = disk
        self._fetchers: dict[int, Fetcher] = {}
        self._leader_of: dict[TopicPartition, int] = {}

    def new_role(self, replica: Replica) -> None:
        """The replica leads or follows in a new epoch."""
        self.removed(replica)
        follower = replica.follower
        if follower is None or follower.leader in (NO_LEADER, self._node_id) or replica.closed_with:
            return
        if replica.log.must_be_copied:
            return  # with another log: see `services.partitions.damaged_logs`
        fetcher = self._fetchers.get(follower.leader)
        if fetcher is None:
            fetcher = self._fetchers[follower.leader] = Fetcher(self, follower.leader)
        self._leader_of[replica.topic_partition] = follower.leader
        fetcher.follow(replica)

    def removed(self, replica: Replica) -> None:
        leader = self._leader_of.pop(replica.topic_partition, None)
        if leader is not None:
            self._fetchers[leader].leave(replica)

    def has_room(self) -> None:
        """The disk is no longer full: copy what is missing."""
        for fetcher in self._fetchers.values():
            fetcher.end_pauses()

    async def stop(self) -> None:
        await asyncio.gather(*(fetcher.stop() for fetcher in self._fetchers.values()))

    # --- what a loop needs ---

    @property
    def host(self) -> Host:
        return self._host

    @property
    def settings(self) -> FetchSettings:
        return self._settings

    @property
    def node_id(self) -> int:
        return self._node_id

    def new_link(self) -> Link:
        return Link(self._host, self._dialer)

    @property
    def image(self) -> MetadataImage:
        return self._metadata.image

    @property
    def broker_epoch(self) -> int:
        broker = self._metadata.image.brokers.get(self._node_id)
        return -1 if broker is None else broker.epoch

    def address_of(self, broker_id: int) -> Address:
        return address_of(self._metadata.image, broker_id, self._listener)


class FetchRefused(Exception):
    """The leader refused a request as a whole."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


class Fetcher:
    """The fetch loop for one leader. It runs while there is something to follow."""

    def __init__(self, replication: Replication, leader_id: int) -> None:
        self._replication = replication
        self._leader_id = leader_id
        self._link = replication.new_link()
        self._session = FetchSession()
        self._followed: dict[Key, Replica] = {}
        self._paused: dict[Key, float] = {}  # until this time
        self._wanted: dict[Key, Position] = {}  # for every partition that is followed and not paused
        self._changed: dict[Key, None] = {}  # to be looked at before the next request
        self._failing: dict[Key, float] = {}  # since this time
        self._unreachable_since: float | None = None
        # The quota may hold these back, so they are looked at every time.
        self._throttled: dict[Key, None] = {}
        # As of this image the leader is at this address, and this is how we ask it.
        self._image: MetadataImage | None = None
        self._address: Address | None = None
        self._requests: ReplicaFetches
        self._has_work = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_stopped = False

    def follow(self, replica: Replica) -> None:
        key = _key(replica)
        self._followed[key] = replica
        self._paused.pop(key, None)
        self._changed[key] = None
        self._has_work.set()
        if self._task is None and not self._is_stopped:
            self._task = self._replication.host.create_task(self._run())

    def leave(self, replica: Replica) -> None:
        key = _key(replica)
        if self._followed.get(key) is replica:
            del self._followed[key]
            self._paused.pop(key, None)
            self._failing.pop(key, None)
            self._changed[key] = None

    def end_pauses(self) -> None:
        self._changed.update(dict.fromkeys(self._paused))
        self._paused.clear()
        self._has_work.set()

    async def stop(self) -> None:
        self._is_stopped = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._link.close()

    async def _run(self) -> None:
        while True:
            try:
                if self._has_work_now():
                    await self._fetch()
                else:
                    await self._wait_for_work()
            except (OSError, ProtocolError) as error:
                self._session.reset()
                self._tell_unreachable(error)
                await asyncio.sleep(RETRY_SECONDS)
            except FetchRefused as refused:
                self._session.reset()
                if refused.code not in SESSION_ERRORS:
                    self._log(
                        logging.WARNING,
                        refused.code.name,
                        "broker %d refused a fetch: %s",
                        self._leader_id,
                        refused.code.name,
                    )
                    await asyncio.sleep(RETRY_SECONDS)

    def _tell_unreachable(self, error: Exception) -> None:
        """A broker that stops or restarts is told of by the controller: only what lasts is told here."""
        now = self._replication.host.monotonic()
        if self._unreachable_since is None:
            self._unreachable_since = now
        level = logging.INFO if now - self._unreachable_since >= LASTING_SECONDS else logging.DEBUG
        reason = why(error)
        self._log(level, reason, "cannot fetch from broker %d, trying again: %s", self._leader_id, reason)

    async def _wait_for_work(self) -> None:
        """Wait until there is something to follow, or a pause is over."""
        self._has_work.clear()
        pause = min(self._paused.values(), default=None)
        if pause is None:
            await self._has_work.wait()
            return
        seconds = pause - self._replication.host.monotonic()
        try:
            async with asyncio.timeout(max(seconds, 0.001)):
                await self._has_work.wait()
        except TimeoutError:
            pass

    # --- asking ---

    async def _fetch(self) -> None:
        """Rounds over one connection, until there is nothing to ask or the leader has moved."""
        replication, settings = self._replication, self._replication.settings
        seconds = (settings.timeout_ms + settings.max_wait_ms) / 1000
        address = replication.address_of(self._leader_id)
        channel = await self._link.connected(address, seconds)
        self._know(address)
        await FetchRounds(channel, replication.host, seconds, self._next_frame, self._take).run()

    def _know(self, address: Address) -> None:
        """Note where the leader is, and as whom we ask, according to the newest metadata."""
        replication, settings = self._replication, self._replication.settings
        self._image, self._address = replication.image, address
        self._requests = ReplicaFetches(
            f"broker-{replication.node_id}",
            replication.node_id,
            replication.broker_epoch,
            max_wait_ms=settings.max_wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.max_bytes,
            partition_max_bytes=settings.partition_max_bytes,
        )

    def _next_frame(self) -> bytes | None:
        """The next request; None if there is nothing to ask, or not at this address."""
        if self._replication.image is not self._image:
            address = self._replication.address_of(self._leader_id)
            if address != self._address:
                return None
            self._know(address)
        looked_at = self._look()
        if not self._wanted:
            # The leader hears of these changes with the next request.
            self._changed = {**looked_at, **self._changed}
            return None
        session = self._session
        changed, forgotten = session.next_request(self._wanted, looked_at)
        return self._requests.encode(session.id, session.epoch, changed, forgotten)

    def _has_work_now(self) -> bool:
        self._changed = {**self._look(), **self._changed}
        return bool(self._wanted)

    def _look(self) -> dict[Key, None]:
        """Bring `_wanted` up to date. Returns the partitions that were looked at."""
        if self._paused:
            self._end_pauses()
        if self._throttled:
            self._changed.update(self._throttled)
            self._throttled.clear()
        looked_at, self._changed = self._changed, {}
        for key in looked_at:
            position = self._position(key)
            if position is None:
                self._wanted.pop(key, None)
            else:
                self._wanted[key] = position
        return looked_at

    def _end_pauses(self) -> None:
        now = self._replication.host.monotonic()
        for key in [key for key, until in self._paused.items() if until <= now]:
            del self._paused[key]
            self._changed[key] = None

    def _position(self, key: Key) -> Position | None:
        """Return where to fetch from; None if this partition is not fetched now."""
        replica = self._followed.get(key)
        follower = replica.follower if replica is not None else None
        if follower is None or follower.closed_with:
            self._followed.pop(key, None)
            return None
        if key in self._paused:
            return None
        if not follower.may_fetch:  # records from before a crash are still being synced
            self._pause(key, RETRY_SECONDS)
            return None
        if follower.settings.throttled_as_follower and self._is_held_back(key, follower):
            self._pause(key, THROTTLED_SECONDS)
            return None
        return _position(follower)

    def _is_held_back(self, key: Key, follower: Follower) -> bool:
        """True if a throttled partition must wait. One that has caught up is fetched, so that it stays in sync."""
        if not _is_throttled(follower) or follower.is_caught_up:
            return False
        self._throttled[key] = None
        return self._replication.quota.is_exceeded(self._replication.host.steady_ms())

    # --- what comes back ---

    def _take(self, response: ReplicaResponse) -> list[Follower]:
        """Apply a response. Returns the followers whose logs have grown. A partition whose position has changed since
        the request (another leader, or another epoch) is skipped: the response is about its former state. But retention
        may have moved its log start: the response still counts, since the leader does not repeat its high watermark."""
        if response.error_code:
            raise FetchRefused(ErrorCode(response.error_code))
        self._unreachable_since = None
        self._session.answered(response.session_id)
        grown = []
        starts: dict[TopicPartition, tuple[Key, int]] = {}
        for partition in response.partitions:
            key = partition.key
            self._changed[key] = None
            replica = self._followed.get(key)
            follower = replica.follower if replica is not None else None
            if follower is None or follower.closed_with or not self._is_asked_for(key, follower):
                continue
            try:
                if self._take_partition(follower, partition):
                    grown.append(follower)
                self._failing.pop(key, None)
                if follower.has_to_start_at(partition.log_start_offset):
                    starts[follower.topic_partition] = key, partition.log_start_offset
            except (KafkaError, OSError) as error:
                self._failed(key, follower.topic_partition, error)
                self._replication.disk.write_failed(error)
        if starts:
            self._delete_records(starts)
        return grown

    def _delete_records(self, starts: Mapping[TopicPartition, tuple[Key, int]]) -> None:
        """Delete what the leader has deleted. The next request says where our logs start, and tells it that this is
        done.
        """
        errors = self._replication.delete_records({name: offset for name, (_, offset) in starts.items()})
        for name, error in errors.items():
            self._failed(starts[name][0], name, error)

    def _failed(self, key: Key, name: TopicPartition, error: Exception) -> None:
        """A new topic or a new leader is known here before it is known there, or after: only what lasts is a warning,
        one for all partitions with that reason."""
        now = self._replication.host.monotonic()
        since = self._failing.setdefault(key, now)
        is_passing = isinstance(error, KafkaError) and error.code in PASSING
        level = logging.DEBUG if is_passing and now - since < LASTING_SECONDS else logging.WARNING
        text = "%s cannot follow its leader, trying again: %s"
        if level == logging.DEBUG:
            log.debug(text, name, error)
        else:
            self._log(level, str(error), text, name, error)
        self._pause(key)

    def _is_asked_for(self, key: Key, follower: Follower) -> bool:
        asked, now = self._wanted.get(key), _position(follower)
        return asked is not None and asked == now._replace(log_start_offset=asked.log_start_offset)

    def _take_partition(self, follower: Follower, partition: ReplicatedPartition) -> bool:
        if partition.error_code:
            code = ErrorCode(partition.error_code)
            if code is ErrorCode.OFFSET_OUT_OF_RANGE and partition.log_start_offset >= 0:
                follower.start_over(partition.log_start_offset)
                return False
            raise KafkaError(code, f"broker {self._leader_id} answered {code.name}")
        if partition.diverging != NOT_DIVERGING:
            follower.truncate(*partition.diverging, partition.log_start_offset)
            return False
        has_grown = False
        if partition.records is not None and self._lacks_room(follower):
            self._pause(partition.key, FULL_BACKOFFS * self._replication.settings.backoff_ms / 1000)
        elif partition.records is not None:
            now_ms = self._replication.host.now_ms()
            has_grown = follower.append(partition.records, now_ms, partition.log_start_offset) > 0
            if follower.settings.throttled_as_follower and _is_throttled(follower):
                self._replication.quota.record(len(partition.records), self._replication.host.steady_ms())
        follower.learn_high_watermark(partition.high_watermark)
        return has_grown

    def _lacks_room(self, follower: Follower) -> bool:
        name = follower.topic_partition
        if not self._replication.disk.is_full or name.topic in INTERNAL_TOPICS:
            return False
        counted(
            log,
            logging.WARNING,
            "",
            "full",
            "%s lags behind its leader, broker %d, because the disk of this broker is full: it catches up once there "
            "is room; others may lag too",
            name,
            self._leader_id,
        )
        return True

    def _pause(self, key: Key, seconds: float | None = None) -> None:
        if seconds is None:
            seconds = self._replication.settings.backoff_ms / 1000
        self._paused[key] = self._replication.host.monotonic() + seconds

    def _log(self, level: int, what: str, message: str, *arguments: object) -> None:
        counted(log, level, f"broker {self._leader_id}", what, message, *arguments)


def _position(follower: Follower) -> Position:
    log = follower.log
    return Position(follower.leader_epoch, log.end_offset, follower.last_fetched_epoch, log.log_start_offset)


def _is_throttled(follower: Follower) -> bool:
    return follower.topic_partition.partition in follower.settings.throttled_as_follower


def _key(replica: Replica) -> Key:
    return replica.topic_id.bytes, replica.topic_partition.partition
