"""Brokers die one after the other, or all at once, or lose their disks: what is committed stays, and who may lead does.

Three brokers, or three nodes that are controllers too, with one partition on all of them.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer

from odradek.errors import ErrorCode
from odradek.model import TopicPartition
from odradek.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from odradek.wire.messages.metadata import MetadataResponsePartition
from tests.processes.nodes import BOTH, BROKER, CONTROLLER, TIMEOUT_S, Node, Nodes, cluster, until
from tests.processes.record_faults import client, ends_of
from tests.processes.record_load import read_all
from tests.processes.replica_scan import check_replicas
from tests.support import run_command

TOPIC = "t"
PARTITION = TopicPartition(TOPIC, 0)
SETTINGS = {"default_replication_factor": "3", "min_insync_replicas": "2"}
APART = {4: CONTROLLER, 1: BROKER, 2: BROKER, 3: BROKER}
COMBINED = {1: BOTH, 2: BOTH, 3: BOTH}
PREFERRED, UNCLEAN = 0, 1
MARKER, REFUSED = "marker", "refused"


def create(nodes: Nodes, *settings: str) -> None:
    options = [word for setting in settings for word in ("--config", setting)]
    command("topic", "create", TOPIC, "--partitions", "1", *options, "-b", nodes.bootstrap)


def command(*arguments: str) -> str:
    done = run_command(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def produce(broker: Node, values: Iterable[str], **settings: object) -> set[int | None]:
    """To the only partition, with acks=all; the error codes that came back, None where a record was acknowledged."""
    told: list[KafkaError | None] = []
    producer = Producer(
        {
            "bootstrap.servers": broker.address("PLAINTEXT"),
            "acks": "all",
            "log_level": 0,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )
    for value in values:
        producer.produce(TOPIC, value, partition=0, on_delivery=lambda error, _: told.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    return {None if error is None else error.code() for error in told}


def produce_so_that_all_know(broker: Node, records: list[str]) -> None:
    """Each follower that is in sync knows that these are committed: it was told with the marker, and asked for more."""
    assert produce(broker, records) == {None}
    assert produce(broker, [MARKER]) == {None}


def read(*brokers: Node) -> list[str]:
    """Return what the partition holds up to its high watermark, but for markers and what was refused."""
    bootstrap = ",".join(broker.address("PLAINTEXT") for broker in brokers)
    found = [value.decode() for value in read_all(bootstrap, TOPIC, {0: 0}, TIMEOUT_S)[0].values()]
    return [value for value in found if not value.startswith((MARKER, REFUSED))]


def await_records(expected: list[str], *brokers: Node) -> None:
    """A new leader learns from its followers what is committed."""

    def look() -> bool:
        found = read(*brokers)
        assert found == expected[: len(found)]
        return found == expected

    until(look, f"{len(expected)} records are read")


def partition_as_told_by(broker: Node) -> MetadataResponsePartition | None:
    topic = broker.topics().get(TOPIC)
    return topic.partitions[0] if topic is not None else None


def has_leader(broker: Node) -> bool:
    found = partition_as_told_by(broker)
    return found is not None and found.leader_id >= 0


def await_partition(
    broker: Node, what: str, is_so: Callable[[MetadataResponsePartition], bool]
) -> MetadataResponsePartition:
    def look() -> MetadataResponsePartition | None:
        found = partition_as_told_by(broker)
        return found if found is not None and is_so(found) else None

    return until(look, f"broker {broker.id} says: {what}")


def await_in_sync(*brokers: Node) -> None:
    """All of them say that all of them are in sync, and which one leads."""
    wanted = sorted(broker.id for broker in brokers)
    for broker in brokers:
        await_partition(
            broker,
            f"{wanted} are in sync",
            lambda found: sorted(found.isr_nodes) == wanted and found.leader_id > 0,
        )


def elect(broker: Node, election: int) -> ErrorCode:
    """Return what the controller says to an election that an operator asks for."""
    request = ElectLeadersRequest(election, [TopicPartitions(TOPIC, [0])], timeout_ms=30_000)
    response = broker.ask(request, ElectLeadersResponse)
    return ErrorCode(response.replica_election_results[0].partition_result[0].error_code)


def values(name: str) -> list[str]:
    return [f"{name}-{number}" for number in range(10)]


def kill_in_turn(nodes: Nodes) -> tuple[Node, Node, Node]:
    """Two of three brokers, with writes in between: who was killed first, second, and who is left."""
    first = nodes[await_partition(nodes[1], "somebody leads", lambda found: found.leader_id > 0).leader_id]
    second, last = (nodes[number] for number in (1, 2, 3) if number != first.id)
    produce_so_that_all_know(last, values("three"))
    first.kill()
    await_in_sync(second, last)
    produce_so_that_all_know(last, values("two"))
    second.kill()
    await_in_sync(last)
    return first, second, last


def test_brokers_killed_one_after_the_other(tmp_path: Path) -> None:
    with cluster(tmp_path, APART, **SETTINGS) as nodes:
        create(nodes)
        first, second, last = kill_in_turn(nodes)
        await_records(values("three") + values("two"), last)
        refused = produce(last, values("one"), enable_idempotence=False, retries=0)
        assert refused == {KafkaError.NOT_ENOUGH_REPLICAS}
        await_records(values("three") + values("two"), last)

        last.kill()
        first.start()
        offline = await_partition(first, "nobody leads", lambda found: found.leader_id == -1)
        assert (offline.error_code, offline.isr_nodes) == (ErrorCode.LEADER_NOT_AVAILABLE, [])
        assert elect(first, PREFERRED) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        assert not has_leader(first), "it is alive, and left the ISR before the last write"

        server = ("-b", first.address("PLAINTEXT"))
        command("config", "alter", "topic", TOPIC, "--set", "unclean.leader.election.enable=true", *server)
        await_in_sync(first)

        nodes.start(second, last)
        await_in_sync(first, second, last)
        await_records(values("three"), first, second, last)  # that is what unclean means
        assert produce(last, values("after")) == {None}
        await_records(values("three") + values("after"), first, second, last)
        check_equal(nodes)


def check_equal(nodes: Nodes) -> None:
    with client(nodes) as own:
        high_watermarks = ends_of(own, TOPIC)
    assert high_watermarks[PARTITION] > 0
    nodes.stop()
    assert check_replicas({node.id: node.data_dir for node in nodes.brokers}, high_watermarks)


def test_an_eligible_leader_leads_when_it_is_back(tmp_path: Path) -> None:
    """It was stopped, not killed, when the ISR was too small already: so it has all that is committed."""
    with cluster(tmp_path, APART, **SETTINGS) as nodes:
        create(nodes)
        _, _, last = kill_in_turn(nodes)
        assert last.stop() == 0
        last.start()
        await_in_sync(last)
        await_records(values("three") + values("two"), last)


@pytest.mark.parametrize(
    "killed",
    [pytest.param(2, marks=pytest.mark.long, id="two killed"), pytest.param(3, id="all killed")],
)
def test_nodes_killed_at_once_lose_nothing(tmp_path: Path, killed: int) -> None:
    with cluster(tmp_path, COMBINED, **SETTINGS) as nodes:
        create(nodes)
        await_in_sync(*nodes)
        assert produce(nodes[1], values("before")) == {None}
        controller = nodes.leader()
        gone = [controller, *nodes.others(controller)][:killed]
        for node in gone:
            node.kill()
        for left in (node for node in nodes if node not in gone):
            until(lambda left=left: left.quorum("CONTROLLER") is None, f"node {left.id} leads no quorum")
            refused = produce(
                left, values(REFUSED), message_timeout_ms=1000, enable_idempotence=False, retries=0
            )
            assert None not in refused, "one replica is not enough"
        nodes.start(*gone)
        await_in_sync(*nodes)
        await_records(values("before"), *nodes)
        assert produce(nodes[1], values("after")) == {None}
        await_records(values("before") + values("after"), *nodes)
        check_equal(nodes)


def test_a_node_whose_disk_was_wiped_catches_up(tmp_path: Path) -> None:
    with cluster(tmp_path, COMBINED, **SETTINGS) as nodes:
        create(nodes)
        await_in_sync(*nodes)
        wiped = nodes.leader()
        left = nodes.others(wiped)
        assert produce(left[0], values("before")) == {None}
        wiped.kill()
        nodes.replace_disk(wiped)
        await_in_sync(*left)
        assert produce(left[0], values("meanwhile")) == {None}
        wiped.start()
        await_in_sync(*nodes)

        server = ("-b", left[0].address("CONTROLLER"))
        command("quorum", "remove-controller", str(wiped.id), *server)
        nodes.await_caught_up()
        command("quorum", "add-controller", "--config", str(wiped.config_file), *server)
        left[0].kill()
        await_in_sync(wiped, left[1])
        await_records(values("before") + values("meanwhile"), wiped)
        assert produce(wiped, values("after")) == {None}
        left[0].start()
        await_in_sync(*nodes)
        check_equal(nodes)


def test_the_last_one_in_sync_comes_back_without_its_disk(tmp_path: Path) -> None:
    """It would lead again had it been killed only. Empty, it must not: others would throw away what they have."""
    with cluster(tmp_path, APART, **SETTINGS | {"min_insync_replicas": "1"}) as nodes:
        create(nodes)
        first, second, last = kill_in_turn(nodes)
        last.kill()
        nodes.replace_disk(last)
        last.start()
        await_partition(last, "nobody leads", lambda found: found.leader_id == -1)
        first.start()
        assert elect(first, PREFERRED) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        assert not has_leader(first)
        assert elect(first, UNCLEAN) is ErrorCode.NONE
        await_in_sync(first, last)
        await_records(values("three"), first, last)  # not what is empty, but who has something leads
        second.start()
        await_in_sync(first, second, last)
        check_equal(nodes)
