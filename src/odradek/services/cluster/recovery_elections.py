"""Asks brokers where their logs end, for partitions whose in-sync replicas were all killed, and elects their leaders.

The active controller asks the last known members of such a partition (GetReplicaLogInfo), each as soon as it is active,
and elects once enough of them have told (`controller.recovery`). The broker of this node is asked in place. Each broker
has its own task, which asks about up to MAX_PARTITIONS partitions at a time; one that does not respond is asked again,
and holds up nobody else: whenever one has responded, leaders are elected where that was enough.

A partition is looked at when it begins to wait, and when brokers or settings have changed meanwhile. While nothing
changes and nobody is left to ask, nothing is done, except that a log line says from time to time what is missing. What
was told is known to this controller alone: the next one asks again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any

from odradek.config.broker import BrokerConfig
from odradek.controller.brokers import PARTITIONS_AT_ONCE
from odradek.controller.recovery import (
    LogEnd,
    PartitionId,
    elect_recovered,
    find_partition,
    is_waiting,
    members_missing,
    members_to_ask,
)
from odradek.errors import ErrorCode, ProtocolError
from odradek.host.interface import Host
from odradek.host.log_lines import counted
from odradek.metadata.delta import MetadataDelta
from odradek.metadata.image import Broker, MetadataImage
from odradek.metadata.records import MetadataRecord
from odradek.net.link import Link
from odradek.net.network import Dialer
from odradek.services.cluster.metadata import BrokerMetadata
from odradek.wire.codec import Message
from odradek.wording import count_of

if TYPE_CHECKING:
    from odradek.wire.messages.get_replica_log_info import GetReplicaLogInfoRequest

log = logging.getLogger(__name__)

VERSION = 0
MAX_PARTITIONS = 1_000  # of a request: Kafka's bound of a response
TIMEOUT_SECONDS = 5.0
FIRST_PAUSE_SECONDS = 0.02  # before a broker is asked again
LONGEST_PAUSE_SECONDS = 1.0
PATIENCE_SECONDS = 5.0  # before a log line says what is missing
SHOWN = 5  # partitions in such a line

Decision = Callable[[MetadataImage, BrokerConfig], list[MetadataRecord]]
AskHere = Callable[[Message, int, float], Message | Awaitable[Message]]


class RecoveryElections:
    def __init__(
        self,
        node_id: int,
        listener: str,
        host: Host,
        dialer: Dialer,
        metadata: BrokerMetadata,
        write: Callable[[Decision], Awaitable[int]],
        ask_here: AskHere,
    ) -> None:
        """`listener` names the listener at which other brokers are asked. `write` makes a change of the metadata, and
        `ask_here` hands a request to this node's own broker."""
        self._node_id = node_id
        self._listener = listener
        self._host = host
        self._dialer = dialer
        self._metadata = metadata
        self._write = write
        self._ask_here = ask_here
        self._told: dict[PartitionId, dict[int, LogEnd]] = {}  # by partition that waits, and broker
        self._changed: dict[PartitionId, None] = {}  # to be looked at
        self._to_ask: dict[int, dict[PartitionId, None]] = {}  # by broker
        self._tasks: dict[int, asyncio.Task[None]] = {}  # by broker
        self._links: dict[int, Link] = {}
        self._has_news = asyncio.Event()

    # --- events ---

    def take_over(self, image: MetadataImage) -> None:
        """This node is the active controller now: find all partitions that wait."""
        self.stop()
        for topic in image.topics_by_id.values():
            for index, partition in topic.partitions.items():
                if is_waiting(partition):
                    self._changed[topic.id, index] = None
        self._has_news.set()

    def metadata_changed(self, delta: MetadataDelta) -> None:
        if not self._metadata.quorum.is_active:
            return
        for change in delta.changed_topics:
            for index, partition in change.changed_partitions().items():
                place = change.after.id, index
                if place in self._told or is_waiting(partition):
                    self._changed[place] = None
        if delta.changed_brokers or delta.changed_configs or delta.deleted_topics:
            self._changed.update(dict.fromkeys(self._told))
        if self._changed:
            self._has_news.set()

    def stop(self) -> None:
        """This node is no longer the active controller."""
        for task in self._tasks.values():
            task.cancel()
        for link in self._links.values():
            link.close()
        for known in (self._told, self._changed, self._to_ask, self._tasks, self._links):
            known.clear()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            if not await self._happens():
                self._say_what_is_missing()
                continue
            changed, self._changed = self._changed, {}
            pace = self._metadata.turns.pace()
            for place in changed:
                await pace.step()
                self._look_at(place)
            await self._elect(changed)
            self._ask_brokers()

    async def _happens(self) -> bool:
        """False if there were no news for a while, though partitions wait."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS if self._told else None):
                await self._has_news.wait()
        except TimeoutError:
            return False
        self._has_news.clear()
        return True

    # --- partitions ---

    def _look_at(self, place: PartitionId) -> None:
        image = self._metadata.newest
        partition = find_partition(image, place)
        if partition is None or not is_waiting(partition):
            self._told.pop(place, None)
            return
        ends = self._told.setdefault(place, {})
        for member in members_to_ask(image, partition, ends):
            self._to_ask.setdefault(member, {})[place] = None

    async def _elect(self, places: Iterable[PartitionId]) -> None:
        told = [(place, ends) for place in places if (ends := self._told.get(place)) is not None]
        for first in range(0, len(told), PARTITIONS_AT_ONCE):
            some = told[first : first + PARTITIONS_AT_ONCE]
            if written := await self._write(_election(some)):
                log.info(
                    "changed %s, by what brokers told of the logs of killed replicas",
                    count_of(written, "partition"),
                )

    # --- brokers ---

    def _ask_brokers(self) -> None:
        for broker_id in self._to_ask:
            task = self._tasks.get(broker_id)
            if task is None or task.done():
                self._tasks[broker_id] = self._host.create_task(self._inquire(broker_id))

    async def _inquire(self, broker_id: int) -> None:
        """Ask a broker until it has told all that it is asked for, or is gone: if it comes back, that is a change."""
        pause = FIRST_PAUSE_SECONDS
        try:
            while (places := self._to_ask.get(broker_id)) and (broker := self._active(broker_id)) is not None:
                asked = list(islice(places, MAX_PARTITIONS))
                if await self._ask_about(broker, asked):
                    pause = FIRST_PAUSE_SECONDS
                else:
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
            self._to_ask.pop(broker_id, None)
        except OSError as error:  # there is no descriptor left to import its messages with
            log.error(
                "cannot ask broker %d for its logs, trying again at the next change: %s", broker_id, error
            )
        except Exception:
            log.exception("asking broker %d for its logs failed: this is a bug", broker_id)

    def _active(self, broker_id: int) -> Broker | None:
        broker = self._metadata.newest.brokers.get(broker_id)
        return broker if broker is not None and broker.is_active else None

    async def _ask_about(self, broker: Broker, asked: list[PartitionId]) -> bool:
        """False if it has told nothing new."""
        request = _request(asked)
        try:
            response = await self._ask(broker, request)
        except (OSError, ProtocolError) as error:
            reason = str(error) or type(error).__name__
            counted(
                log,
                logging.INFO,
                f"broker {broker.id}",
                "no response about its logs",
                "broker %d does not tell where its logs end, asking again: %s",
                broker.id,
                reason,
            )
            return False
        self._take(broker.id, response)
        await self._elect(asked)
        return self._settle(broker.id, asked)

    async def _ask(self, broker: Broker, request: "GetReplicaLogInfoRequest") -> Any:
        from odradek.services.cluster.calls import call

        if broker.id == self._node_id:
            response = self._ask_here(request, VERSION, TIMEOUT_SECONDS)
            return await response if isinstance(response, Awaitable) else response
        link = self._links.get(broker.id)
        if link is None:
            link = self._links[broker.id] = Link(self._host, self._dialer)
        endpoint = broker.endpoint(self._listener) or broker.endpoints[0]
        name = f"controller-{self._node_id}"
        return await call(link, (endpoint.host, endpoint.port), request, VERSION, name, TIMEOUT_SECONDS)

    def _take(self, broker_id: int, response: Any) -> None:
        for topic in response.topic_partition_log_info_list:
            for item in topic.partition_log_info:
                ends = self._told.get((topic.topic_id, item.partition))
                if ends is not None and item.error_code in (ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR):
                    ends[broker_id] = LogEnd(
                        response.broker_epoch,
                        item.current_leader_epoch,
                        item.last_written_leader_epoch,
                        item.log_end_offset,
                        is_damaged=item.error_code == ErrorCode.KAFKA_STORAGE_ERROR,
                    )

    def _settle(self, broker_id: int, asked: list[PartitionId]) -> bool:
        """Ask no more about partitions that are led by now, or of which it has told. False if there are none: what it
        said does not count yet, because its metadata is behind."""
        image, places = self._metadata.newest, self._to_ask.get(broker_id, {})
        is_new = False
        for place in asked:
            if places.pop(place, True) is None:
                partition = find_partition(image, place)
                ends = self._told.get(place)
                if (
                    partition is None
                    or ends is None
                    or broker_id not in members_to_ask(image, partition, ends)
                ):
                    is_new = True
                else:
                    places[place] = None  # after the others
        return is_new

    # --- operators ---

    def _say_what_is_missing(self) -> None:
        image = self._metadata.newest
        missing: set[int] = set()
        for (topic_id, index), ends in self._told.items():
            partition = find_partition(image, (topic_id, index))
            missing.update(() if partition is None else members_missing(image, partition, ends))
        first = [place for place in islice(self._told, SHOWN) if place[0] in image.topics_by_id]
        names = [f"{image.topics_by_id[topic_id].name}-{index}" for topic_id, index in first]
        brokers = ", ".join(map(str, sorted(missing)))
        counted(
            log,
            logging.WARNING,
            "",
            "partitions wait for the logs of killed replicas",
            "%s without a leader (%s%s): all in-sync replicas were killed, and %s. To go on without them, and lose "
            "what only they have: 'odradek topic elect-leaders TOPIC --unclean'",
            count_of(len(self._told), "partition"),
            ", ".join(names),
            ", …" if len(self._told) > len(names) else "",
            f"brokers {brokers} have not told where their logs end: start them"
            if missing
            else "the logs that are back are damaged or lost",
        )


def _election(told: list[tuple[PartitionId, dict[int, LogEnd]]]) -> Decision:
    return lambda image, config: elect_recovered(image, config, told)


def _request(asked: list[PartitionId]) -> "GetReplicaLogInfoRequest":
    from odradek.wire.messages.get_replica_log_info import (  # only where replicas were killed
        GetReplicaLogInfoRequest,
        TopicPartitions,
    )

    topics: dict[Any, TopicPartitions] = {}
    for topic_id, index in asked:
        topics.setdefault(topic_id, TopicPartitions(topic_id)).partitions.append(index)
    return GetReplicaLogInfoRequest(list(topics.values()))
