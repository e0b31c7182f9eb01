"""Fetching from followers (KIP-392), beside Kafka: what leaders and followers of both answer, and the Java consumer on
ours.
"""

import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.records.record import Record, build_batch
from odradek.wire.messages import create_topics, fetch, metadata, produce
from tests.peer.exchange import Cluster, compare
from tests.peer.test_peer_cluster import Both, connect
from tests.processes.nodes import BOTH, HOST, Node, cluster
from tests.processes.test_clients_on_a_cluster import Confluent
from tools.peer.kafka import KafkaPeers, run_tool

CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
SETTINGS = {
    "broker_rack": "rack-{node}",
    "replica_selector_class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "offsets_topic_replication_factor": "3",
    "group_initial_rebalance_delay_ms": "0",
}
OF_OURS = {**SETTINGS, "metrics_listener": f"{HOST}:0"}
LEADER, FOLLOWER, STRANGER = 1, 2, 3
RECORDS, RECORD_BYTES = 200, 10_000

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def both(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    home = tmp_path_factory.mktemp("three-of-ours")
    with KafkaPeers(**SETTINGS) as kafka, cluster(home, dict.fromkeys((1, 2, 3), BOTH), **OF_OURS) as ours:
        pair = Both(kafka, ours)
        for side in connect(pair):
            side.until(metadata.MetadataRequest([]), lambda found: len(found.brokers) == 3)
            side.close()
        yield pair


def create(side: Cluster, topic: str) -> Any:
    """On the first two brokers. Its id."""
    places = [create_topics.CreatableReplicaAssignment(0, [LEADER, FOLLOWER])]
    request = create_topics.CreateTopicsRequest([create_topics.CreatableTopic(topic, -1, -1, places)])
    assert side.ask_quietly(request).topics[0].error_code == 0
    wanted = [metadata.MetadataRequestTopic(name=topic)]
    found = side.until(metadata.MetadataRequest(wanted), lambda response: response.topics[0].error_code == 0)
    return found.topics[0].topic_id


def fetch_request(topic: str, topic_id: Any, version: int, offset: int, epoch: int, rack: str) -> Any:
    named = {"topic_id": topic_id} if version >= 13 else {"topic": topic}
    asked = fetch.FetchPartition(0, epoch, offset, partition_max_bytes=1 << 20)
    return fetch.FetchRequest(
        max_wait_ms=100,
        min_bytes=1,
        max_bytes=1 << 20,
        session_epoch=-1,
        rack_id=rack,
        topics=[fetch.FetchTopic(**named, partitions=[asked])],
    )


def ask_everything(side: Cluster, topic: str, topic_id: Any) -> None:
    """Asks one broker with each version and rack."""
    for version in (10, 11, 12, 16):
        for rack in ("", "rack-1", "rack-2", "rack-3", "elsewhere"):
            side.ask(fetch_request(topic, topic_id, version, 0, -1, rack), version, f"v{version} {rack}")
    for offset in (-1, 1, 2, 3):
        side.ask(fetch_request(topic, topic_id, 16, offset, -1, "rack-2"), 16, f"offset {offset}")
    for epoch in (0, 1):
        side.ask(fetch_request(topic, topic_id, 16, 0, epoch, "rack-2"), 16, f"epoch {epoch}")


def produce_request(topic: str, topic_id: Any) -> Any:
    batch = bytes(build_batch([Record(0, 0, None, b"one"), Record(1, 0, None, b"two")]))
    data = produce.TopicProduceData(topic_id, topic, [produce.PartitionProduceData(0, batch)])
    return produce.ProduceRequest(None, -1, 10_000, [data])


def test_leaders_and_followers_answer_alike(both: Both) -> None:
    topic, ids = "alike", []
    for side in connect(both, LEADER):
        ids.append(create(side, topic))
        request = produce_request(topic, ids[-1])
        side.wait_for(lambda side=side, request=request: _is_taken(side, request))
        side.close()
    for side, topic_id in zip(connect(both, FOLLOWER), ids, strict=True):
        at_start = fetch_request(topic, topic_id, 16, 0, -1, "")
        side.wait_for(lambda side=side, at_start=at_start: _high_watermark(side, at_start) == 2)
        side.close()
    for node in (LEADER, FOLLOWER, STRANGER):
        sides = connect(both, node)
        for side, topic_id in zip(sides, ids, strict=True):
            ask_everything(side, topic, topic_id)
            for version in () if node == LEADER else (9, 10, 13):
                side.ask(produce_request(topic, topic_id), version, f"produce v{version}")
            side.close()
        assert compare(*sides) == [], f"node {node}"


def _is_taken(side: Cluster, request: Any) -> bool:
    """False while its leader does not know yet that it leads."""
    return bool(side.ask_quietly(request, 9).responses[0].partition_responses[0].error_code == 0)


def _high_watermark(side: Cluster, request: Any) -> int:
    response = side.ask_quietly(request, 16)
    return int(response.responses[0].partitions[0].high_watermark)


def test_the_java_consumer_reads_from_the_follower_in_its_rack(both: Both) -> None:
    topic, (_, ours) = "read-by-java", connect(both, LEADER)
    create(ours, topic)
    ours.close()
    values = [f"{number}:".ljust(RECORD_BYTES, "x") for number in range(RECORDS)]
    Confluent().produce(both.ours.bootstrap, topic, [(0, value) for value in values])
    before = {node.id: sent_bytes(node) for node in both.ours}
    done = run_tool(
        CONSUMER,
        *("--bootstrap-server", both.ours.bootstrap, "--topic", topic, "--from-beginning"),
        *("--max-messages", str(RECORDS), "--timeout-ms", "60000"),
        *("--command-property", f"client.rack=rack-{FOLLOWER}"),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == values
    sent = {node.id: sent_bytes(node) - before[node.id] for node in both.ours}
    assert sent[FOLLOWER] > RECORDS * RECORD_BYTES > 10 * sent[LEADER], sent


def sent_bytes(node: Node) -> int:
    """To clients, and brokers that follow it."""
    address = re.findall(r"metrics: (http://\S+)", node.log)[-1]
    with urllib.request.urlopen(address) as page:
        text = page.read().decode()
    found = re.search(r'^odradek_sent_bytes_total\{side="clients"\} (\S+)$', text, re.MULTILINE)
    assert found, text
    return int(float(found[1]))
