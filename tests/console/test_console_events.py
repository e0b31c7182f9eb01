"""Tests of the sentences about what happened between two looks: pure."""

from array import array

from odradek.admin.places import Place
from odradek.admin.status import BrokerStatus, ClusterStatus, PartitionStatus
from odradek.console.pages.overview import overview_of
from odradek.console.pages.topics import TopicsQuery, find_topics
from odradek.console.watch.events import group_events, topology_events
from odradek.console.watch.groups import lag_of
from odradek.console.watch.metrics import percentile, read_numbers
from odradek.console.watch.offsets import rates
from odradek.console.watch.seen import GroupSeen, Offsets, Seen, TopicSeen, Topology

ALL = (1, 2, 3)


def topology(
    alive: tuple[int, ...] = ALL,
    leaders: tuple[int | None, ...] = (1, 2, 3),
    isr: tuple[int, ...] = ALL,
    controller: int = 1,
    names: tuple[str, ...] = ("orders",),
) -> Topology:
    topics = {name: TopicSeen(name, "id", False, leaders, (ALL,) * 3, (isr,) * 3) for name in names}
    brokers = [BrokerStatus(one, "host", 9092, None, one not in alive, 1) for one in ALL]
    offline = [
        PartitionStatus("orders", number, None, list(ALL), list(isr))
        for number, leader in enumerate(leaders)
        if leader is None
    ]
    short = [PartitionStatus("orders", 0, 1, list(ALL), list(isr))] if len(isr) < 2 else []
    return Topology(controller, topics, ClusterStatus("id", brokers, None, 3, [], short, offline))


def told(before: Topology, after: Topology) -> list[str]:
    return [one.text for one in topology_events(before, after, 0)]


def test_nothing_changed() -> None:
    assert told(topology(), topology()) == []


def test_a_broker_that_leaves_is_one_event_with_its_consequences() -> None:
    assert told(topology(), topology(alive=(1, 3), leaders=(1, 3, 3), isr=(1, 3), controller=3)) == [
        "broker 2 left; 3 partitions affected",
        "controller 3 is active, after 1",
        "broker 3 became the leader of 1 partition",
        "broker 2 fell out of sync in 3 partitions",
    ]
    assert told(topology(alive=(1, 3), isr=(1, 3)), topology()) == [
        "broker 2 joined",
        "broker 2 is in sync again in 3 partitions",
    ]


def test_partitions_without_a_leader() -> None:
    (event,) = topology_events(topology(), topology(leaders=(1, None, None)), 0)
    assert event.text == "2 partitions lost the last replica that could lead"
    assert event.is_bad


def test_topics_come_and_go() -> None:
    many = tuple(f"topic-{number}" for number in range(5))
    assert told(topology(), topology(names=("orders", "new"))) == ["created topic new"]
    assert told(topology(names=many), topology(names=())) == [
        "deleted 5 topics: topic-0, topic-1, topic-2 and 2 more"
    ]


def group(name: str, state: str, lag: int | None = 0) -> GroupSeen:
    return GroupSeen(name, "Classic", state, "consumer", 1, lag, ())


def test_groups_that_change() -> None:
    before = {"a": group("a", "Stable")}
    assert [one.text for one in group_events(before, {"a": group("a", "Empty")}, 0)] == [
        "group a has no members left"
    ]
    many = {str(number): group(str(number), "Stable") for number in range(9)}
    later = {name: group(name, "PreparingRebalance") for name in many}
    assert [one.text for one in group_events(many, later, 0)] == ["9 groups changed their state"]


def test_what_refuses_writes_and_why() -> None:
    seen = Seen(topology=topology(alive=(1,), leaders=(1, None, 1), isr=(1,)))
    view = overview_of(seen)
    assert not view.is_healthy
    assert [(one.topic, one.partition) for one in view.refusing] == [("orders", 1), ("orders", 0)]
    assert view.refusing[0].reason == "no leader: start brokers 2 and 3"
    assert view.refusing[1].reason.endswith("refuses acks=all; start brokers 2 and 3")
    assert view.advice == ["start brokers 2 and 3, or remove them with 'odradek cluster remove-broker'"]


def test_a_replica_that_is_behind_needs_time_and_not_a_start() -> None:
    (refusing,) = overview_of(Seen(topology=topology(isr=(1,)))).refusing
    assert refusing.reason.endswith("wait until brokers 2 and 3 caught up")


def test_rates_come_from_offsets_that_are_known() -> None:
    before = Offsets(10.0, {"a": array("q", [5, -1, 7]), "gone": array("q", [1])}, {})
    assert rates(before, {"a": array("q", [25, 100, 7, 3]), "new": array("q", [9])}, 12.0) == {"a": 10.0}
    assert rates(None, {"a": array("q", [1])}, 1.0) == {}


def test_lag_counts_partitions_whose_end_is_known() -> None:
    ends = Offsets(0.0, {"a": array("q", [10, -1])}, {})
    committed = {Place("a", 0): 4, Place("a", 1): 1, Place("a", 9): 1, Place("b", 0): 1}
    assert lag_of(committed, ends) == 6
    assert lag_of({}, ends) is None
    assert lag_of(committed, None) is None


def test_ten_thousand_topics_come_in_pages() -> None:
    seen = Seen(topology=topology(names=tuple(f"topic-{number:05}" for number in range(10_000))))
    page = find_topics(seen, TopicsQuery(search="TOPIC-09", page=2))
    assert (page.count, page.total, page.pages, len(page.topics)) == (1000, 10_000, 20, 50)
    assert page.topics[0].topic == "topic-09050"
    assert find_topics(seen, TopicsQuery(page=999)).page == 200


def test_load_comes_from_the_metrics_of_a_broker() -> None:
    page = """# TYPE odradek_requests_total counter
odradek_requests_total{api="Produce"} 10
odradek_requests_total{api="Fetch"} 5.0
odradek_received_bytes_total{side="clients"} 1e3
odradek_received_bytes_total{side="nodes"} 7
odradek_sync_seconds_bucket{le="0.005"} 90
odradek_sync_seconds_bucket{le="0.05"} 99
odradek_sync_seconds_bucket{le="+Inf"} 100
odradek_event_loop_lag_seconds_bucket{le="0.001"} 7
odradek_event_loop_lag_seconds_bucket{le="+Inf"} 7
"""
    numbers = read_numbers(page)
    assert (numbers["requests"], numbers["received"]) == (15.0, 1000.0)
    assert percentile(numbers, "sync", 0.99) == 0.05
    assert percentile(numbers, "sync", 0.5) == 0.005
    assert percentile(numbers, "sync", 0.999) == 0.05, "the highest bound that there is"
    assert percentile({}, "sync", 0.99) is None
    assert percentile(numbers, "lag", 0.99) == 0.001
