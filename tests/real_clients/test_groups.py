"""Groups of real consumers: who shares partitions with whom, and how they change hands."""

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConsumerGroupDescription, NewTopic

from tests.real_clients.adapters import Kafkajs
from tests.real_clients.members import Member, Place, group_of, wait_until
from tests.support import RunningBroker

TIMEOUT_S = 60  # of what takes milliseconds, on a busy machine too
CONSUMER_PROTOCOL = {"group.protocol": "consumer"}
COOPERATIVE = {"partition.assignment.strategy": "cooperative-sticky"}
ROUND_ROBIN = {"partition.assignment.strategy": "roundrobin"}


@pytest.fixture
def admin(broker: RunningBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def create(admin: AdminClient, topic: str, partitions: int) -> set[Place]:
    for future in admin.create_topics([NewTopic(topic, partitions)]).values():
        future.result(TIMEOUT_S)
    return {(topic, index) for index in range(partitions)}


def produce(broker: RunningBroker, topic: str, values: list[str], partitions: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % partitions)
    assert producer.flush(TIMEOUT_S) == 0


def describe(admin: AdminClient, group: str) -> ConsumerGroupDescription:
    (future,) = admin.describe_consumer_groups([group]).values()
    return future.result(TIMEOUT_S)


def owners(description: ConsumerGroupDescription) -> list[Place]:
    """Every place that the coordinator says somebody owns; one that has two owners is in it twice."""
    return [
        (place.topic, place.partition)
        for member in description.members
        for place in member.assignment.topic_partitions
    ]


def test_every_client_in_one_classic_group(
    broker: RunningBroker, admin: AdminClient, topic: str, group: str
) -> None:
    Kafkajs().check_installed()
    places = create(admin, topic, 8)
    with group_of(broker.bootstrap, group, [topic]) as members:
        members.add("confluent", settings=ROUND_ROBIN)
        members.add("aiokafka")
        members.add("kafka-python")
        members.add("kafkajs")
        members.wait_until_shared(places)
        described = describe(admin, group)
        assert sorted(owners(described)) == sorted(places)
        assert described.partition_assignor == "roundrobin"
        produce(broker, topic, values := [str(number) for number in range(80)], 8)
        members.wait_for_values(set(values))
        assert all(member.values for member in members.all)
        for leaving in members.all[:3]:
            leaving.leave()
        members.wait_until_shared(places)


def test_one_group_is_a_queue_two_groups_are_publish_subscribe(
    broker: RunningBroker, admin: AdminClient, topic: str, group: str
) -> None:
    create(admin, topic, 4)
    produce(broker, topic, values := [str(number) for number in range(40)], 4)
    with (
        group_of(broker.bootstrap, group, [topic]) as one,
        group_of(broker.bootstrap, f"{group}-2", [topic]) as two,
    ):
        one.add()
        one.add()
        two.add()
        one.wait_for_values(set(values))
        two.wait_for_values(set(values))


@pytest.mark.parametrize("settings", [COOPERATIVE, CONSUMER_PROTOCOL], ids=["cooperative", "consumer"])
def test_only_what_must_move_moves(
    broker: RunningBroker, admin: AdminClient, topic: str, group: str, settings: dict[str, str]
) -> None:
    """A newcomer gets its share; what the others keep they never give up in between."""
    places = create(admin, topic, 6)
    with group_of(broker.bootstrap, group, [topic]) as members:
        first = members.add(settings=settings)
        second = members.add(settings=settings)
        members.wait_until_shared(places)
        before = [first.owned, second.owned]
        seen = [len(first.events), len(second.events)]
        third = members.add(settings=settings)
        members.wait_until_shared(places)
        assert len(third.owned) == 2
        for member, had, start in zip((first, second), before, seen, strict=True):
            assert member.owned < had
            later = [event for event in member.events[start:] if event["event"] == "assigned"]
            assert all(member.owned <= {tuple(place) for place in event["partitions"]} for event in later)


def test_the_consumer_protocol(broker: RunningBroker, admin: AdminClient, topic: str, group: str) -> None:
    places = create(admin, topic, 4)
    with group_of(broker.bootstrap, group, [topic]) as members:
        first = members.add(settings=CONSUMER_PROTOCOL)
        members.add(settings=CONSUMER_PROTOCOL)
        members.wait_until_shared(places)
        described = describe(admin, group)
        assert described.type.name == "CONSUMER"
        assert sorted(owners(described)) == sorted(places)
        produce(broker, topic, values := [str(number) for number in range(40)], 4)
        members.wait_for_values(set(values))
        first.leave()
        members.wait_until_shared(places)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_static_member_comes_back_without_a_rebalance(
    broker: RunningBroker, admin: AdminClient, topic: str, group: str, protocol: str
) -> None:
    places = create(admin, topic, 4)

    def settings(instance: str) -> dict[str, str]:
        return {"group.instance.id": instance, "group.protocol": protocol}

    with group_of(broker.bootstrap, group, [topic]) as members:
        stays = members.add(settings=settings("stays"), session_timeout_ms=30_000)
        returns = members.add(settings=settings("returns"), session_timeout_ms=30_000)
        members.wait_until_shared(places)
        had, rebalances = returns.owned, len(stays.of("assigned"))
        if protocol == "classic":
            returns.kill()
        else:
            returns.leave()  # here one that was killed blocks its name until its session ends
        again = members.add(settings=settings("returns"), session_timeout_ms=30_000)
        members.wait_until_shared(places)
        assert again.owned == had
        assert len(stays.of("assigned")) == rebalances


PATTERN_MEMBERS = {
    "confluent-classic": ("confluent", {"settings": {}}),
    "confluent-consumer": ("confluent", {"settings": CONSUMER_PROTOCOL}),
    "aiokafka": ("aiokafka", {}),
    "kafka-python": ("kafka-python", {}),
}


@pytest.mark.parametrize("name", PATTERN_MEMBERS)
def test_a_pattern_finds_topics_created_later(
    broker: RunningBroker, admin: AdminClient, topic: str, group: str, name: str
) -> None:
    client, options = PATTERN_MEMBERS[name]
    prefix = f"ipl-{topic}"
    first = create(admin, f"{prefix}-2024", 2)
    create(admin, f"not-{prefix}", 2)
    with group_of(broker.bootstrap, group, [f"^{prefix}.*"]) as members:
        member = members.add(client, pattern=f"^{prefix}.*", **options)
        members.wait_until_shared(first)
        second = create(admin, f"{prefix}-2025", 2)
        members.wait_until_shared(first | second)
        produce(broker, f"{prefix}-2025", ["six", "four"], 2)
        member.wait_for(lambda it: it.values == {"six", "four"}, "consumed from the newer topic")


def test_offsets_are_where_the_group_left_them(
    broker: RunningBroker, admin: AdminClient, topic: str, group: str
) -> None:
    create(admin, topic, 1)
    produce(broker, topic, ["a", "b"], 1)
    with group_of(broker.bootstrap, group, [topic]) as members:
        members.add().wait_for(lambda it: len(it.of("committed")) == 2, "committed both")
        members.all[0].leave()
        produce(broker, topic, ["c"], 1)
        later = members.add()
        later.wait_for(lambda it: bool(it.values), "consumed what came later")
        assert later.values == {"c"}


def test_a_group_is_listed_described_and_deleted(
    broker: RunningBroker, admin: AdminClient, topic: str, group: str
) -> None:
    create(admin, topic, 1)
    with group_of(broker.bootstrap, group, [topic]) as members:
        member = members.add()
        member.wait_for(lambda it: bool(it.owned), "joined")
        listed = admin.list_consumer_groups().result(TIMEOUT_S).valid
        assert group in {item.group_id for item in listed}
        assert describe(admin, group).state.name == "STABLE"
        member.leave()
        wait_until(lambda: describe(admin, group).state.name == "EMPTY", "empty")
    for future in admin.delete_consumer_groups([group]).values():
        future.result(TIMEOUT_S)
    listed = admin.list_consumer_groups().result(TIMEOUT_S).valid
    assert group not in {item.group_id for item in listed}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_paused_beyond_its_session_loses_its_partitions_and_its_late_commit(
    broker: RunningBroker, admin: AdminClient, topic: str, group: str, protocol: str
) -> None:
    settings = {"group.protocol": protocol}
    places = create(admin, topic, 1)
    produce(broker, topic, ["only"], 1)

    def committed(member: Member) -> list[int]:
        return [event["offset"] for event in member.of("committed")]

    with group_of(broker.bootstrap, group, [topic]) as members:
        paused = members.add(hold=True, session_timeout_ms=2000, settings=settings)
        paused.wait_for(lambda it: bool(it.of("holding")), "got the record")
        paused.pause()
        heir = members.add(session_timeout_ms=2000, settings=settings)
        heir.wait_for(lambda it: committed(it) == [1], "took over and committed")
        assert heir.owned == places
        paused.resume()
        paused.go_on()
        paused.wait_for(lambda it: bool(it.of("commit_refused")), "was refused")
        assert committed(paused) == []
