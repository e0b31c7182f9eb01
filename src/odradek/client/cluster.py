"""The cluster as a client sees it: which broker leads which partition, and where to send a request.

Leaders change and brokers go away; so every request is retried, with fresh metadata, until it succeeds or its deadline
has passed. `TimedOut` then says what was wanted and what failed last. An error that no retry can change is a
`KafkaError` at once.

Any broker is asked for metadata, but not one that did not answer or whose word turned out to be wrong, while there is
another: it may be cut off from the cluster and not know it.

An outage is waited out (`api_timeout_s`) by whoever has reached a broker before. Until then the likely reason is a
wrong address, and a user who waits for a response: that takes `first_contact_timeout_s`.

Clusters are borrowed (`borrow_cluster`): one user at a time, and afterwards kept for the next user in this
process with equal settings, with those of its connections that are idle. A forked child starts with none.
"""

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple, TypeVar
from uuid import UUID

from odradek.client.connection import Connection, ConnectionLost
from odradek.client.deadline import Deadline
from odradek.client.settings import ClientSettings
from odradek.errors import ErrorCode, KafkaError
from odradek.model import TopicPartition
from odradek.wire.codec import Message
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from odradek.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from odradek.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)

EARLIEST = -2  # as timestamps of ListOffsets
LATEST = -1
NO_OFFSET = -1
GROUP, TRANSACTION = 0, 1  # as kinds of FindCoordinator
COORDINATED = {GROUP: "group", TRANSACTION: "transactional id"}

MAX_IDLE_CLUSTERS = 4
NOBODY_REACHED = ". Check kafka.bootstrap.servers, and that the brokers are running"
MISSING_TOPIC_PATIENCE_S = 3.0  # all brokers need a moment to learn of a new topic

Address = tuple[str, int]
Response = TypeVar("Response", bound=Message)
Result = TypeVar("Result")


class MissingTopic(Exception):
    def __init__(self, topic: str) -> None:
        super().__init__(f"topic {topic!r} does not exist")
        self.topic = topic


class Node(NamedTuple):
    node_id: int
    host: str
    port: int


class Leader(NamedTuple):
    node: Node
    epoch: int


class ProducerId(NamedTuple):
    producer_id: int
    epoch: int


class Cluster:
    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self.was_reached = False  # by the present user, or by a previous one whose work it continues
        self._connections: dict[tuple[str, int], Connection] = {}
        self._nodes: dict[int, Node] = {}
        self._leaders: dict[TopicPartition, Leader] = {}
        self._answered_last: Address | None = None
        self._doubts = 0
        self._doubted: dict[Address, int] = {}  # the later, the higher
        self.kept_producer: object = None  # a producer's state, between two of its users
        self._is_given_up: Callable[[], bool] = lambda: False

    # Connections

    def connection(self, node: Node) -> Connection:
        return self._connection(node.host, node.port)

    def _connection(self, host: str, port: int) -> Connection:
        connection = self._connections.get((host, port))
        if connection is None or not connection.is_idle:
            if connection is not None:
                connection.close()
            connection = self._connections[host, port] = Connection(host, port, self.settings)
        return connection

    def abort(self) -> None:
        """Make a thread that waits for a response give up."""
        for connection in list(self._connections.values()):
            connection.abort()

    def give_up_when(self, condition: Callable[[], bool]) -> None:
        """Retry no request while `condition` holds."""
        self._is_given_up = condition

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def keep_idle_connections(self) -> None:
        for address, connection in list(self._connections.items()):
            if not connection.is_idle:
                connection.close()
                del self._connections[address]

    def deadline(
        self, purpose: str, timeout_s: float | None = None, *, backoff_s: float | None = None
    ) -> Deadline:
        limit_s = timeout_s or self.settings.api_timeout_s
        first_limit_s = min(limit_s, self.settings.first_contact_timeout_s)
        return Deadline(
            purpose,
            lambda: limit_s if self.was_reached else first_limit_s,
            self.settings.retry_backoff_s if backoff_s is None else backoff_s,
            lambda: "" if self.was_reached else NOBODY_REACHED,
            lambda: self._is_given_up(),
        )

    def _retrying(
        self, purpose: str, attempt: Callable[[], Result], timeout_s: float | None = None
    ) -> Result:
        deadline = self.deadline(purpose, timeout_s)
        while True:
            try:
                result = attempt()
                deadline.met()
                return result
            except ConnectionLost as error:
                deadline.pause(error)
            except KafkaError as error:
                if not error.code.retriable:
                    raise
                deadline.pause(error)

    def ask(self, purpose: str, request: Message, response_type: type[Response]) -> Response:
        """Ask any broker; retry until one responds or time is up."""
        return self._retrying(purpose, lambda: self._ask_anyone(request, response_type))

    def _ask_anyone(self, request: Message, response_type: type[Response]) -> Response:
        """Known brokers first, then those the settings name: they may all have moved."""
        known = [(node.host, node.port) for node in self._nodes.values()]
        addresses = dict.fromkeys([*known, *self.settings.bootstrap])
        reasons = []
        for address in sorted(addresses, key=lambda one: self._doubted.get(one, 0)):
            try:
                response = self._connection(*address).call(request, response_type)
                self.was_reached = True
                self._answered_last = address
                return response
            except ConnectionLost as error:
                self._doubt(address)
                reasons.append(str(error))
        raise ConnectionLost("; ".join(reasons))

    def _doubt(self, address: Address) -> None:
        self._doubts += 1
        self._doubted[address] = self._doubts

    # Topics and leaders

    def topic_names(self) -> list[str]:
        """Every topic that is not Kafka's own."""
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        response = self.ask("list topics", request, MetadataResponse)
        self._learn(response)
        return sorted(topic.name for topic in response.topics if topic.name and not topic.is_internal)

    def partitions_of(self, topics: Iterable[str], *, create: bool = False) -> list[TopicPartition]:
        """All partitions of the topics, in order. `MissingTopic` names one that does not exist."""
        names = sorted(set(topics))
        deadline = self.deadline(f"describe topics {', '.join(names)}")
        found = self._describe(names, deadline, create=create) if names else []
        deadline.met()
        return sorted(
            TopicPartition(topic.name or "", partition.partition_index)
            for topic in found
            for partition in topic.partitions
        )

    def topic_ids(self, topics: Iterable[str]) -> dict[str, UUID]:
        """Return ids by name; zero where brokers are older than Kafka 2.8. Raises `MissingTopic`."""
        names = sorted(set(topics))
        found = self._describe(names, self.deadline(f"describe topics {', '.join(names)}")) if names else []
        return {topic.name or "": topic.topic_id for topic in found}

    def _describe(
        self, names: list[str], deadline: Deadline | None, *, create: bool = False
    ) -> list[MetadataResponseTopic]:
        """Without a deadline a lost connection is the caller's to retry."""
        missing_since_s: float | None = None
        while True:
            try:
                topics = self._ask_for_topics(names, create)
            except ConnectionLost as error:
                if deadline is None:
                    raise
                deadline.pause(error)
                continue
            missing = _first_missing(topics)
            if missing is None:
                return topics
            missing_since_s = missing_since_s or time.monotonic()
            if not create and time.monotonic() - missing_since_s > MISSING_TOPIC_PATIENCE_S:
                raise MissingTopic(missing)
            deadline = deadline or self.deadline(f"describe topic {missing}")
            deadline.pause(MissingTopic(missing))

    def _ask_for_topics(self, names: list[str], create: bool) -> list[MetadataResponseTopic]:
        wanted = [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=create)
        response = self._ask_anyone(request, MetadataResponse)
        self._learn(response)
        return response.topics

    def _learn(self, response: MetadataResponse) -> None:
        self._nodes = {
            broker.node_id: Node(broker.node_id, broker.host, broker.port) for broker in response.brokers
        }
        for topic in response.topics:
            for partition in topic.partitions:
                key = TopicPartition(topic.name or "", partition.partition_index)
                if partition.leader_id in self._nodes:
                    self._leaders[key] = Leader(self._nodes[partition.leader_id], partition.leader_epoch)
                else:
                    self._leaders.pop(key, None)

    def leader(self, partition: TopicPartition) -> Leader:
        """Returns what was last reported, or else asks once.

        A lost connection and LEADER_NOT_AVAILABLE are worth a retry, by the caller.
        """
        if partition not in self._leaders:
            self._describe([partition.topic], None)
        if partition not in self._leaders:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {partition} has no leader")
        return self._leaders[partition]

    def forget_leader(self, partition: TopicPartition) -> None:
        """Ask again, somebody else, before the next use: what was last heard turned out to be wrong."""
        if self._leaders.pop(partition, None) is not None and self._answered_last is not None:
            self._doubt(self._answered_last)

    # Offsets

    def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> dict[TopicPartition, int]:
        """The first offset at or after each timestamp (ms, `EARLIEST` or `LATEST`), or `NO_OFFSET`."""
        offsets: dict[TopicPartition, int] = {}

        def ask_for_the_rest() -> dict[TopicPartition, int]:
            rest = {key: value for key, value in timestamps.items() if key not in offsets}
            by_node: defaultdict[Node, dict[TopicPartition, int]] = defaultdict(dict)
            for partition, timestamp in rest.items():
                by_node[self.leader(partition).node][partition] = timestamp
            for node, wanted in by_node.items():
                offsets.update(self._list_offsets_on(node, wanted, read_committed))
            return offsets

        return self._retrying("list offsets", ask_for_the_rest)

    def _list_offsets_on(
        self, node: Node, timestamps: dict[TopicPartition, int], read_committed: bool
    ) -> dict[TopicPartition, int]:
        by_topic: defaultdict[str, list[ListOffsetsPartition]] = defaultdict(list)
        for partition, timestamp in timestamps.items():
            epoch = self.leader(partition).epoch
            by_topic[partition.topic].append(ListOffsetsPartition(partition.partition, epoch, timestamp))
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=int(read_committed),
            topics=[ListOffsetsTopic(topic, partitions) for topic, partitions in by_topic.items()],
            timeout_ms=int(self.settings.request_timeout_s * 1000),
        )
        try:
            response = self.connection(node).call(request, ListOffsetsResponse)
        except ConnectionLost:
            self._forget_leaders(timestamps)
            raise
        offsets = {}
        for topic in response.topics:
            for result in topic.partitions:
                partition = TopicPartition(topic.name, result.partition_index)
                if result.error_code:
                    self._forget_leaders(timestamps)
                    raise KafkaError(
                        ErrorCode(result.error_code),
                        f"offsets of {partition}: {ErrorCode(result.error_code).name}",
                    )
                offsets[partition] = result.offset
        return offsets

    def _forget_leaders(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self.forget_leader(partition)

    # Groups and producers

    def commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int], timeout_s: float | None = None
    ) -> None:
        """Commits like a consumer that is no member of the group: allowed while the group has no members."""
        by_topic: defaultdict[str, list[OffsetCommitRequestPartition]] = defaultdict(list)
        for partition, offset in offsets.items():
            by_topic[partition.topic].append(OffsetCommitRequestPartition(partition.partition, offset))
        request = OffsetCommitRequest(
            group_id=group,
            topics=[OffsetCommitRequestTopic(name=name, partitions=rows) for name, rows in by_topic.items()],
        )

        def commit() -> None:
            response = self.connection(self._coordinator_of(group)).call(request, OffsetCommitResponse)
            for topic in response.topics:
                for result in topic.partitions:
                    if result.error_code:
                        code = ErrorCode(result.error_code)
                        raise KafkaError(code, f"{topic.name}-{result.partition_index}: {code.name}")

        self._retrying(f"commit offsets of group {group}", commit, timeout_s)

    def committed_offsets(self, group: str, timeout_s: float | None = None) -> dict[TopicPartition, int]:
        """All offsets that the group has committed; none if there is no such group."""
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group, topics=None)], group_id=group, topics=None
        )

        def ask() -> dict[TopicPartition, int]:
            response = self.connection(self._coordinator_of(group)).call(request, OffsetFetchResponse)
            found = response.groups[0] if response.groups else response
            if found.error_code:
                code = ErrorCode(found.error_code)
                raise KafkaError(code, f"offsets of group {group}: {code.name}")
            return {
                TopicPartition(topic.name, partition.partition_index): partition.committed_offset
                for topic in found.topics
                for partition in topic.partitions
                if partition.committed_offset >= 0
            }

        return self._retrying(f"read the offsets of group {group}", ask, timeout_s)

    def _coordinator_of(self, group: str) -> Node:
        return self.coordinator(GROUP, group)

    def coordinator(self, kind: int, key: str) -> Node:
        """The coordinator of a group or a transactional id, asked for once; a retry is the caller's."""
        request = FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=[key])
        response = self._ask_anyone(request, FindCoordinatorResponse)
        found = response.coordinators[0] if response.coordinators else response
        if found.error_code:
            code = ErrorCode(found.error_code)
            raise KafkaError(code, f"coordinator of {COORDINATED[kind]} {key}: {code.name}")
        return Node(found.node_id, found.host, found.port)

    def new_producer_id(self) -> ProducerId:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)

        def ask() -> ProducerId:
            response = self._ask_anyone(request, InitProducerIdResponse)
            if response.error_code:
                code = ErrorCode(response.error_code)
                raise KafkaError(code, f"no producer id: {code.name}")
            return ProducerId(response.producer_id, response.producer_epoch)

        return self._retrying("get a producer id", ask)


def _first_missing(topics: list[MetadataResponseTopic]) -> str | None:
    for topic in topics:
        code = ErrorCode(topic.error_code)
        if code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE):
            return topic.name
        if code:
            raise KafkaError(code, f"topic {topic.name!r}: {code.name}")
    return None


_idle: dict[ClientSettings, list[Cluster]] = {}
_idle_in_process = os.getpid()


@contextmanager
def borrow_cluster(settings: ClientSettings, *, was_reached: bool = False) -> Iterator[Cluster]:
    """`was_reached`: this work began with a response of these brokers, so wait during an outage."""
    global _idle, _idle_in_process
    if _idle_in_process != os.getpid():  # forked: the sockets are our parent's
        _idle, _idle_in_process = {}, os.getpid()
    kept = _idle.setdefault(settings, [])
    cluster = kept.pop() if kept else Cluster(settings)
    cluster.was_reached = was_reached
    try:
        yield cluster
    finally:
        cluster.keep_idle_connections()
        if len(kept) < MAX_IDLE_CLUSTERS:
            kept.append(cluster)
        else:
            cluster.close()
