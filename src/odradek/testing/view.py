"""A cluster as its brokers describe it, through the protocol that all clients use.

Brokers learn of a change one after the other, and one that is cut off does not learn of it. So all that can be asked
are asked, and the newest word counts.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from odradek.client.connection import ConnectionLost
from odradek.errors import ErrorCode, KafkaError
from odradek.model import METADATA_TOPIC
from odradek.testing.asking import Response, ask
from odradek.testing.node import Node
from odradek.wire.codec import Message
from odradek.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionDataInRequest,
    TopicDataInRequest,
)
from odradek.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from odradek.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
)

RESPONSE_TIMEOUT_S = 10.0  # then the others are asked
ELECTION_TIMEOUT_MS = 10_000
NO_LEADER = -1
PREFERRED = 0


class View:
    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes

    def _ask(self, node: Node, request: Message, response_type: type[Response]) -> Response | None:
        """Ask a node; None if it has ended or does not respond: it may have been killed, or cut off, just now."""
        try:
            return ask(node.bootstrap, request, response_type, RESPONSE_TIMEOUT_S, node.login)
        except ConnectionLost:
            return None

    def _ask_all(self, request: Message, response_type: type[Response]) -> Iterator[Response]:
        """Ask all nodes; those that are cut off from somebody only if there are no others."""
        whole = [node for node in self._nodes if node.is_whole]
        for node in whole or [node for node in self._nodes if node.serves_clients]:
            if (response := self._ask(node, request, response_type)) is not None:
                yield response

    # --- who leads ---

    def controller(self) -> int | None:
        request = DescribeQuorumRequest([TopicDataInRequest(METADATA_TOPIC, [PartitionDataInRequest(0)])])
        for response in self._ask_all(request, DescribeQuorumResponse):
            if not response.error_code:
                (partition,) = response.topics[0].partitions
                if not partition.error_code and partition.leader_id != NO_LEADER:
                    return partition.leader_id
        return None

    def partition(self, topic: str, index: int) -> MetadataResponsePartition | None:
        """The partition as the newest leader epoch has it; None if it does not exist."""
        request = MetadataRequest([MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        found = [
            partition
            for response in self._ask_all(request, MetadataResponse)
            for described in response.topics
            for partition in described.partitions
            if partition.partition_index == index
        ]
        return max(found, key=lambda partition: partition.leader_epoch, default=None)

    def leader(self, topic: str, index: int) -> int | None:
        partition = self.partition(topic, index)
        return None if partition is None or partition.leader_id == NO_LEADER else partition.leader_id

    def coordinator(self, key: str, key_type: int) -> int | None:
        """Returns what most of them say. The first question about any creates their topic."""
        request = FindCoordinatorRequest(key, key_type, [key])
        said = Counter(
            found.node_id
            for response in self._ask_all(request, FindCoordinatorResponse)
            for found in response.coordinators
            if not found.error_code
        )
        return said.most_common(1)[0][0] if said else None

    # --- whether all is well ---

    def unknown(self, topic: str) -> str:
        """Why the topic cannot be used yet, as one of the brokers says; empty if it can be used on all of them."""
        request = MetadataRequest([MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        complaints = [_without_leader(response) for response in self._ask_all(request, MetadataResponse)]
        return max(complaints, default="no broker serves clients")

    def missing(self, topic: str | None = None) -> str:
        """Says what is missing until every broker is there, and every partition of the topic, or of all topics, has
        all of its replicas in sync; empty if nothing is. Every broker has to say so."""
        wanted = {node.id for node in self._nodes}
        topics = None if topic is None else [MetadataRequestTopic(name=topic)]
        request = MetadataRequest(topics, allow_auto_topic_creation=False)
        for node in self._nodes:
            response = self._ask(node, request, MetadataResponse) if node.serves_clients else None
            if response is None:
                return f"{node} does not respond"
            if absent := wanted - {broker.node_id for broker in response.brokers}:
                return f"{node} says that broker {min(absent)} is fenced"
            if complaint := _without_leader(response) or _out_of_sync(response):
                return f"{node} says that {complaint}"
        return ""

    # --- moving leaders ---

    def put_first(self, topic: str, index: int, broker: int) -> None:
        """Make this replica the preferred leader. Raises ValueError if it is none, KafkaError if that is refused."""
        partition = self.partition(topic, index)
        replicas = [] if partition is None else partition.replica_nodes
        if broker not in replicas:
            raise ValueError(f"{topic}-{index} has its replicas on brokers {replicas}, and none on {broker}")
        replicas = sorted(replicas, key=lambda replica: replica != broker)
        wanted = [ReassignableTopic(topic, [ReassignablePartition(index, replicas)])]
        request = AlterPartitionReassignmentsRequest(topics=wanted)
        for response in self._ask_all(request, AlterPartitionReassignmentsResponse):
            _check(response.error_code, response.error_message)
            (result,) = response.responses[0].partitions
            _check(result.error_code, result.error_message)
            return

    def elect_preferred(self, topic: str, index: int) -> None:
        """Let the preferred replica lead, if it is in sync."""
        request = ElectLeadersRequest(PREFERRED, [TopicPartitions(topic, [index])], ELECTION_TIMEOUT_MS)
        for _ in self._ask_all(request, ElectLeadersResponse):
            return


def _without_leader(response: MetadataResponse) -> str:
    for topic in response.topics:
        if topic.error_code:
            return f"topic {topic.name} has {ErrorCode(topic.error_code).name}"
        for partition in topic.partitions:
            if partition.leader_id == NO_LEADER:
                return f"{topic.name}-{partition.partition_index} has no leader"
    return ""


def _out_of_sync(response: MetadataResponse) -> str:
    for topic in response.topics:
        for partition in topic.partitions:
            if late := set(partition.replica_nodes) - set(partition.isr_nodes):
                return f"{topic.name}-{partition.partition_index} is not in sync on broker {min(late)}"
    return ""


def _check(error_code: int, message: str | None) -> None:
    if error_code:
        code = ErrorCode(error_code)
        raise KafkaError(code, message or code.name)
