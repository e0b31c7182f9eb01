"""Three nodes of Kafka and three of ours are asked the same things; the responses are compared field by field.

The tests of this module share the two clusters and go in their order: first all nodes are there, then one stands
still for a while, at last it is killed, on both sides.
"""

import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from odradek.records.record import Record, build_batch
from odradek.wire.messages import (
    alter_configs,
    alter_partition,
    api_versions,
    create_partitions,
    create_topics,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_topic_partitions,
    elect_leaders,
    incremental_alter_configs,
    metadata,
    produce,
    unregister_broker,
    update_features,
)
from tests.peer.exchange import CLOSED, Cluster, common_versions, compare, served_versions
from tests.processes.nodes import BOTH, Nodes, cluster, until
from tools.peer.kafka import KafkaPeers

SETTINGS = {
    "min_insync_replicas": "2",
    "default_replication_factor": "3",
    "offsets_topic_replication_factor": "3",
    "group_initial_rebalance_delay_ms": "0",
    "broker_session_timeout_ms": "3000",
    "broker_heartbeat_interval_ms": "500",
    "auto_leader_rebalance_enable": "false",
}
TOPIC, BROKER = 2, 4
SET, DELETE = 0, 1
PREFERRED, UNCLEAN = 0, 1
TIMEOUT_MS = 20_000
MIN_ISR = "min.insync.replicas"
VICTIM = 3
NOT_ENOUGH_REPLICAS = 19

# Differences that are meant, and why.
ACCEPTED = {
    r"\.controller_id: ": "any broker that is alive",
    r"without its registration.*eligible_leader_replicas\[0\]: only Kafka has 3": "Kafka forgets it when it comes back",
}


class Both(NamedTuple):
    kafka: KafkaPeers
    ours: Nodes

    def bootstraps(self, node: int) -> tuple[str, str]:
        return self.kafka.bootstrap_of(node), self.ours[node].address("PLAINTEXT")

    def signal(self, node: int, number: signal.Signals) -> None:
        self.kafka.signal(node, number)
        self.ours[node].process.send_signal(number)


@pytest.fixture(scope="module")
def both(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    home = tmp_path_factory.mktemp("three-of-ours")
    with (
        KafkaPeers(**SETTINGS) as kafka,
        cluster(home, dict.fromkeys((1, 2, 3), BOTH), **SETTINGS) as ours,
    ):
        pair = Both(kafka, ours)
        for side in connect(pair):
            side.until(metadata.MetadataRequest([]), lambda found: len(found.brokers) == 3)
            side.close()
        yield pair


def connect(both: Both, node: int = 1) -> list[Cluster]:
    theirs, ours = (served_versions(bootstrap) for bootstrap in both.bootstraps(node))
    common = common_versions(theirs, ours)
    return [Cluster(bootstrap, lambda key: common[key][1]) for bootstrap in both.bootstraps(node)]


def check_alike(both: Both, script: Callable[[Cluster], None], *accepted: str) -> None:
    sides = connect(both)
    for side in sides:
        script(side)
        side.close()
    is_accepted = re.compile("|".join((*ACCEPTED, *accepted))).search
    found = [difference for difference in compare(*sides) if not is_accepted(difference)]
    assert not found, "\n" + "\n".join(found)


# Requests


def new_topic(name: str, *assignment: list[int], partitions: int = -1, factor: int = -1) -> Any:
    replicas = [create_topics.CreatableReplicaAssignment(at, ids) for at, ids in enumerate(assignment)]
    return create_topics.CreatableTopic(name, partitions, factor, replicas)


def create(side: Cluster, *topics: Any, validate_only: bool = False, label: str = "") -> None:
    side.ask(create_topics.CreateTopicsRequest(list(topics), TIMEOUT_MS, validate_only), label=label)


def create_quietly(side: Cluster, name: str, *assignment: list[int]) -> None:
    """A topic to work with. Returns once all of its replicas are in sync, and node 1 knows it."""
    request = create_topics.CreateTopicsRequest([new_topic(name, *assignment)], TIMEOUT_MS)
    (response,) = side.ask_quietly(request).topics
    assert response.error_code == 0, response
    await_isr(side, name, [set(replicas) for replicas in assignment])


def await_isr(side: Cluster, name: str, isr: list[set[int]]) -> None:
    def is_there(response: Any) -> bool:
        partitions = sorted(response.topics[0].partitions, key=lambda one: one.partition_index)
        return [set(one.isr_nodes) for one in partitions] == isr

    side.topic_ids[name] = side.until(describe_request(name), is_there).topics[0].topic_id


def describe_request(*names: str) -> Any:
    wanted = [metadata.MetadataRequestTopic(name=name) for name in names]
    return metadata.MetadataRequest(wanted, allow_auto_topic_creation=False)


def describe(side: Cluster, *names: str, label: str = "") -> None:
    side.ask(describe_request(*names), label=label)
    topics = [describe_topic_partitions.TopicRequest(name) for name in names]
    side.ask(describe_topic_partitions.DescribeTopicPartitionsRequest(topics), label=label)


def elect(side: Cluster, kind: int, label: str, **partitions: list[int]) -> None:
    wanted = [elect_leaders.TopicPartitions(name, indexes) for name, indexes in partitions.items()]
    side.ask(elect_leaders.ElectLeadersRequest(kind, wanted or None, TIMEOUT_MS), label=label)


def produce_to(side: Cluster, name: str, acks: int, label: str, timeout_ms: int = 5000) -> None:
    batch = bytes(build_batch([Record(0, 1_700_000_000_000, b"k", b"v")]))
    data = produce.TopicProduceData(side.id_of(name), name, [produce.PartitionProduceData(0, batch)])
    side.ask(produce.ProduceRequest(None, acks, timeout_ms, [data]), label=label)


def await_refusal(side: Cluster, name: str) -> None:
    """Metadata is known a moment before the partitions go by it."""
    batch = bytes(build_batch([Record(0, 1_700_000_000_000, b"k", b"v")]))
    data = produce.TopicProduceData(side.id_of(name), name, [produce.PartitionProduceData(0, batch)])
    side.until(
        produce.ProduceRequest(None, -1, 100, [data]),
        lambda response: response.responses[0].partition_responses[0].error_code == NOT_ENOUGH_REPLICAS,
    )


def described(kind: int, name: str, *keys: str) -> Any:
    resource = describe_configs.DescribeConfigsResource(kind, name, list(keys))
    return describe_configs.DescribeConfigsRequest([resource], include_synonyms=True)


def changed(kind: int, name: str, key: str, operation: int, value: str | None = None) -> Any:
    change = incremental_alter_configs.AlterableConfig(key, operation, value)
    resource = incremental_alter_configs.AlterConfigsResource(kind, name, [change])
    return incremental_alter_configs.IncrementalAlterConfigsRequest([resource])


def feature(name: str, level: int, kind: int = 1) -> Any:
    return update_features.UpdateFeaturesRequest(
        TIMEOUT_MS, [update_features.FeatureUpdateKey(name, level, kind)], validate_only=True
    )


# All nodes are there


def test_topics_are_created_alike(both: Both) -> None:
    def script(side: Cluster) -> None:
        create(side, new_topic("a-three", partitions=2, factor=3), label="three replicas")
        create(side, new_topic("a-default"), label="defaults")
        create(side, new_topic("a-manual", [1, 2, 3], [2, 3, 1], [3, 1]), label="unequal assignment")
        create(side, new_topic("a-manual", [1, 2, 3], [2, 3, 1]), label="an assignment")
        create(side, new_topic("a-large", partitions=1, factor=4), label="too many replicas")
        create(side, new_topic("a-none", partitions=1, factor=0), label="no replicas")
        create(side, new_topic("a-unknown", [1, 9]), label="a broker that is not there")
        create(side, new_topic("a-twice", [1, 1]), label="a broker twice")
        create(side, new_topic("a-empty", []), label="an empty assignment")
        create(side, new_topic("a-both", [1], partitions=1, factor=1), label="assignment and numbers")
        create(side, new_topic("a-valid", [1, 2]), validate_only=True, label="validate only")
        states = [delete_topics.DeleteTopicState(name) for name in ("a-three", "a-default")]
        side.ask_quietly(delete_topics.DeleteTopicsRequest(states, timeout_ms=TIMEOUT_MS))  # placed by chance

    check_alike(both, script)


def test_partitions_are_added_alike(both: Both) -> None:
    def script(side: Cluster) -> None:
        create_quietly(side, "p-topic", [1, 2, 3])
        for label, count, assignment in (
            ("a broker that is not there", 2, [[1, 9, 2]]),
            ("too few replicas", 2, [[1, 2]]),
            ("too many assignments", 2, [[1, 2, 3], [1, 2, 3]]),
            ("no more than before", 1, [[1, 2, 3]]),
            ("an assignment", 2, [[2, 3, 1]]),
        ):
            replicas = [create_partitions.CreatePartitionsAssignment(ids) for ids in assignment]
            topic = create_partitions.CreatePartitionsTopic("p-topic", count, replicas)
            side.ask(create_partitions.CreatePartitionsRequest([topic], TIMEOUT_MS), label=label)
        await_isr(side, "p-topic", [{1, 2, 3}] * 2)
        describe(side, "p-topic")

    check_alike(both, script)


def test_topics_and_nodes_are_described_alike(both: Both) -> None:
    def script(side: Cluster) -> None:
        create_quietly(side, "d-topic", [1, 2, 3], [2, 3, 1], [3, 1, 2])
        describe(side, "d-topic", "d-unknown")
        side.ask(describe_cluster.DescribeClusterRequest())
        side.ask(
            describe_cluster.DescribeClusterRequest(include_fenced_brokers=True), label="with fenced ones"
        )

    check_alike(both, script)


def test_the_minimal_isr_is_described_and_changed_alike(both: Both) -> None:
    def script(side: Cluster) -> None:
        create_quietly(side, "c-topic", [1, 2, 3])
        for kind, name in ((TOPIC, "c-topic"), (BROKER, "1"), (BROKER, "")):
            side.ask(described(kind, name, MIN_ISR), label=f"of {name or 'all brokers'}")
        side.ask(changed(BROKER, "1", MIN_ISR, SET, "1"), label="of one broker")
        side.ask(changed(BROKER, "1", MIN_ISR, DELETE), label="of one broker, deleted")
        side.ask(changed(BROKER, "", MIN_ISR, DELETE), label="of all brokers, deleted")
        resource = alter_configs.AlterConfigsResource(BROKER, "", [])
        side.ask(alter_configs.AlterConfigsRequest([resource]), label="all of all brokers, deleted")
        side.ask(changed(BROKER, "", MIN_ISR, SET, "0"), label="of all brokers, too low")
        side.ask(changed(BROKER, "", MIN_ISR, SET, "2"), label="of all brokers, the same")
        side.ask(changed(TOPIC, "c-topic", MIN_ISR, SET, "3"), label="of a topic")

    check_alike(both, script)


def test_leaders_are_elected_alike(both: Both) -> None:
    def script(side: Cluster) -> None:
        create_quietly(side, "e-topic", [1, 2, 3])
        elect(side, PREFERRED, "preferred, not needed", **{"e-topic": [0]})
        elect(side, UNCLEAN, "unclean, not needed", **{"e-topic": [0]})
        elect(side, PREFERRED, "unknown", **{"e-topic": [7], "e-unknown": [0]})
        elect(side, UNCLEAN, "unclean, unknown", **{"e-unknown": [0]})
        elect(side, PREFERRED, "all")
        elect(side, UNCLEAN, "all, unclean")

    check_alike(both, script)


def test_features_are_updated_alike(both: Both) -> None:
    elr = "eligible.leader.replicas.version"

    def script(side: Cluster) -> None:
        side.ask(feature(elr, 1), label="as it is")
        side.ask(feature(elr, 2), label="too high")
        side.ask(feature(elr, -1), label="too low")
        side.ask(feature(elr, 1, kind=9), label="of no kind")
        side.ask(feature("no.feature", 1), label="unknown")
        side.ask(feature("metadata.version", 99), label="metadata too new")
        side.ask(feature("metadata.version", 2, kind=2), label="metadata too old")

    check_alike(both, script)


def test_eligible_leader_replicas_are_a_feature_of_both(both: Both) -> None:
    name = "eligible.leader.replicas.version"
    for side in connect(both):
        response = side.ask_quietly(api_versions.ApiVersionsRequest("peer-test", "1"), 4)
        supported = {one.name: one.max_version for one in response.supported_features}
        finalized = {
            one.name: (one.min_version_level, one.max_version_level) for one in response.finalized_features
        }
        assert (supported[name], finalized[name]) == (1, (1, 1))
        assert finalized["metadata.version"][0] > 0 and response.finalized_features_epoch > 0
        side.close()


def test_what_clients_may_not_ask_a_broker_is_refused_alike(both: Both) -> None:
    def script(side: Cluster) -> None:
        side.ask(alter_partition.AlterPartitionRequest(1, 1, []), 3, label="AlterPartition")
        side.ask(unregister_broker.UnregisterBrokerRequest(77), label="a broker that is not there")

    check_alike(both, script)
    for side in connect(both):
        assert side.ask(alter_partition.AlterPartitionRequest(1, 1, []), 3) is None, CLOSED
        side.close()


# One of them stands still, then it is gone


def pause(pid: int) -> None:
    """Returns once every thread of that process stands still: on a busy machine they go on for a moment."""
    os.kill(pid, signal.SIGSTOP)
    tasks = Path(f"/proc/{pid}/task")
    until(
        lambda: all(
            (task / "stat").read_text().rpartition(")")[2].split()[0] == "T" for task in tasks.iterdir()
        ),
        f"process {pid} stands still",
    )


def test_a_follower_that_stands_still_lets_acks_all_time_out_alike(both: Both) -> None:
    """And its leaving of the ISR, after the append, changes nothing about that."""

    def script(side: Cluster, victim: int) -> None:
        for name in ("w-topic", "w-probe"):
            create_quietly(side, name, [1, VICTIM])
        produce_to(side, "w-topic", -1, "acks=all")
        pause(victim)
        try:
            produce_to(side, "w-topic", -1, "acks=all while one stands still", timeout_ms=8000)
            await_isr(side, "w-topic", [{1}])
            await_refusal(side, "w-probe")
            produce_to(side, "w-topic", -1, "acks=all with an ISR too small")
            produce_to(side, "w-topic", 1, "acks=1 with an ISR too small")
            describe(side, "w-topic", label="with one in sync")
        finally:
            os.kill(victim, signal.SIGCONT)
        await_isr(side, "w-topic", [{1, VICTIM}])
        describe(side, "w-topic", label="with both in sync again")
        produce_to(side, "w-topic", -1, "acks=all again")

    victims = both.kafka.processes[VICTIM].pid, both.ours[VICTIM].process.pid
    sides = connect(both)
    for side, victim in zip(sides, victims, strict=True):
        script(side, victim)
        side.close()
    found = [line for line in compare(*sides) if not re.search("|".join(ACCEPTED), line)]
    assert not found, "\n" + "\n".join(found)


def test_a_broker_that_is_killed_is_missed_alike(both: Both) -> None:
    layout = {
        "k-two": [1, VICTIM],  # falls below the minimum
        "k-three": [1, 2, VICTIM],  # does not
        "k-led": [VICTIM, 1, 2],  # has another leader
        "k-only": [VICTIM],  # has none
        "k-probe": [1, VICTIM],
    }

    def prepare(side: Cluster) -> None:
        for name, replicas in layout.items():
            create_quietly(side, name, replicas)

    def script(side: Cluster) -> None:
        for name, replicas in layout.items():
            await_isr(side, name, [set(replicas) - {VICTIM}])
        await_refusal(side, "k-probe")
        describe(side, *(name for name in layout if name != "k-probe"))
        produce_to(side, "k-two", -1, "acks=all with an ISR too small")
        produce_to(side, "k-two", 1, "acks=1 with an ISR too small")
        produce_to(side, "k-three", -1, "acks=all with enough")
        elect(side, PREFERRED, "the preferred one is gone", **{"k-led": [0]})
        elect(side, UNCLEAN, "nobody is there", **{"k-only": [0]})
        elect(side, PREFERRED, "all")
        create(side, new_topic("k-large", partitions=1, factor=3), label="more replicas than brokers")
        create(side, new_topic("k-gone", [1, VICTIM]), label="a replica on a broker that is gone")
        side.ask(describe_cluster.DescribeClusterRequest())
        side.ask(
            describe_cluster.DescribeClusterRequest(include_fenced_brokers=True), label="with fenced ones"
        )
        side.ask(unregister_broker.UnregisterBrokerRequest(VICTIM))
        side.until(
            describe_cluster.DescribeClusterRequest(include_fenced_brokers=True),
            lambda found: len(found.brokers) == 2,
        )
        describe(side, *(name for name in layout if name != "k-probe"), label="without its registration")

    sides = connect(both)
    for side in sides:
        prepare(side)
        side.close()
    both.signal(VICTIM, signal.SIGKILL)
    check_alike(both, script)
