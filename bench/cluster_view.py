"""Look at a cluster from outside: leaders and in-sync replicas, by Kafka's own requests.

Any node is asked, of ours or of Apache Kafka's. `await_…` return once it is so; a cluster that does not get there in
`PATIENCE_S` is given up.
"""

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from confluent_kafka import ElectionType, TopicPartition

from bench.systems import KafkaProtocolSystem
from odradek.client.connection import Connection, ConnectionLost
from odradek.client.settings import ClientSettings
from odradek.errors import KafkaError
from odradek.model import METADATA_TOPIC
from odradek.wire.codec import Message
from odradek.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionDataInRequest,
    TopicDataInRequest,
)
from odradek.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
)

PATIENCE_S = 120
LOOK_INTERVAL_S = 0.005
RESPONSE_TIMEOUT_S = 5.0
NOBODY = -1

Response = TypeVar("Response", bound=Message)


class GivenUp(Exception):
    """A cluster did not get where it should; the message says where."""


class ClusterView:
    def __init__(self, system: KafkaProtocolSystem) -> None:
        self._system = system
        self._connections: dict[int, Connection] = {}

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    # What is

    def running(self) -> list[int]:
        return [node for node in self._system.nodes if self._system.process_of(node).poll() is None]

    def partitions(self, node: int, topic: str) -> list[MetadataResponsePartition]:
        """Return the partitions that this node knows; none if it does not respond."""
        request = MetadataRequest([MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        response = self._ask(node, request, MetadataResponse)
        return response.topics[0].partitions if response is not None else []

    def quorum_leader(self) -> int:
        """The active controller; NOBODY if no node knows of one."""
        for node in self.running():
            request = DescribeQuorumRequest([TopicDataInRequest(METADATA_TOPIC, [PartitionDataInRequest(0)])])
            response = self._ask(node, request, DescribeQuorumResponse)
            if response is not None and response.error_code == 0 and response.topics:
                found = response.topics[0].partitions[0]
                if found.error_code == 0 and found.leader_id in self._system.nodes:
                    return found.leader_id
        return NOBODY

    # What is to be

    def await_whole(self, topic: str) -> None:
        """Wait until every running node says that every partition has a leader and all its replicas in sync."""
        self._await(
            f"all replicas of {topic} in sync",
            lambda: all(_is_whole(self.partitions(node, topic)) for node in self.running()),
        )

    def await_led_without(self, gone: int, topic: str, nodes: Sequence[int]) -> None:
        """Wait until each of these nodes says that every partition is led, and none by the one that is gone."""
        self._await(
            f"all partitions of {topic} led without node {gone}",
            lambda: all(_is_led_without(gone, self.partitions(node, topic)) for node in nodes),
        )

    def prefer_leaders(self, topic: str) -> None:
        """Give every partition to the first of its replicas."""
        admin = self._system.admin()
        count = len(self.partitions(self.running()[0], topic))
        wanted = [TopicPartition(topic, partition) for partition in range(count)]
        admin.elect_leaders(ElectionType.PREFERRED, wanted).result()
        self._await(
            f"all partitions of {topic} led by their first replica",
            lambda: all(_is_preferred(self.partitions(node, topic)) for node in self.running()),
        )

    def await_quorum_leader(self) -> int:
        self._await("a leader of the quorum", lambda: self.quorum_leader() != NOBODY)
        return self.quorum_leader()

    def _await(self, what: str, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not is_so():
            if time.monotonic() > deadline:
                raise GivenUp(f"{self._system.title}: {what}: not within {PATIENCE_S} s")
            time.sleep(LOOK_INTERVAL_S)

    def _ask(self, node: int, request: Message, response_type: type[Response]) -> Response | None:
        """Ask a node; None if it does not respond in time."""
        try:
            if node not in self._connections:
                port = self._system.ports[node - 1]
                settings = ClientSettings((("127.0.0.1", port),), request_timeout_s=RESPONSE_TIMEOUT_S)
                self._connections[node] = Connection("127.0.0.1", port, settings)
            return self._connections[node].call(request, response_type)
        except (ConnectionLost, KafkaError):
            self._connections.pop(node, None)  # it is closed
            return None


def _is_whole(partitions: Sequence[MetadataResponsePartition]) -> bool:
    return bool(partitions) and all(
        one.leader_id != NOBODY and len(one.isr_nodes) == len(one.replica_nodes) for one in partitions
    )


def _is_led_without(gone: int, partitions: Sequence[MetadataResponsePartition]) -> bool:
    return bool(partitions) and all(one.leader_id not in (NOBODY, gone) for one in partitions)


def _is_preferred(partitions: Sequence[MetadataResponsePartition]) -> bool:
    return bool(partitions) and all(one.leader_id == one.replica_nodes[0] for one in partitions)
