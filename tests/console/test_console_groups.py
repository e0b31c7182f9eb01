"""Groups of the console: listed, described, their offsets reset after a preview, deleted."""

import uuid
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from odradek.admin.access import Access
from odradek.admin.groups import delete_groups
from tests.console.conftest import API, Browser
from tests.console.test_console_topics import until

HOSTILE = "a/b <img src=x> %2F"


@pytest.fixture
def filled(bootstrap: str, topic: str) -> str:
    """The topic, with ten records in each of its two partitions."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(20):
        producer.produce(topic, b"value", partition=number % 2, timestamp=1000 * (number // 2 + 1))
    assert producer.flush(20) == 0
    return topic


@pytest.fixture
def group(bootstrap: str, filled: str) -> Iterator[str]:
    """A group without members that has read four and six records; its name is one that people try. It is deleted
    afterwards: the overview shows the groups with the largest lag."""
    name = f"{HOSTILE} {uuid.uuid4().hex[:8]}"
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": name})
    consumer.commit(offsets=[TopicPartition(filled, 0, 4), TopicPartition(filled, 1, 6)], asynchronous=False)
    consumer.close()
    yield name
    delete_groups(Access(bootstrap, {}), [name])


@pytest.fixture
def member(bootstrap: str, group: str, filled: str) -> Iterator[Consumer]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "client.id": "reader"})
    consumer.subscribe([filled])
    until(lambda: consumer.poll(0.1) or consumer.assignment())
    yield consumer
    consumer.close()


def described(browser: Browser, group: str) -> dict:  # type: ignore[type-arg]
    found = browser.get(f"{API}/group?name={quote(group)}")
    assert found.status_code == 200, found.text
    return found.json()  # type: ignore[no-any-return]


def committed(browser: Browser, group: str) -> dict[int, int]:
    return {one["partition"]: one["current_offset"] for one in described(browser, group)["partitions"]}


def reset(browser: Browser, group: str, to: str, value: str = "", path: str = "", **more: object):  # type: ignore[no-untyped-def]
    return browser.send(
        "POST", f"{API}/group/offsets{path}", {"group": group, "to": to, "value": value, **more}
    )


def test_a_group_is_found_with_its_lag(browser: Browser, group: str) -> None:
    browser.seen().nudge("offsets", "groups")

    def listed():  # type: ignore[no-untyped-def]
        groups = browser.get(f"{API}/groups?search={quote(group)}").json()["groups"]
        return [one for one in groups if one["lag"] is not None]

    (found,) = until(listed)
    assert (found["lag"], found["state"], found["type"]) == (10, "Empty", "Classic")
    page = browser.get(f"/c/test/groups?search={quote(group)}").text
    assert "<img" not in page and "&lt;img" in page


def test_a_group_is_described_by_partition_and_member(browser: Browser, group: str, member: Consumer) -> None:
    page = until(lambda: (found := described(browser, group)) and found["state"] == "Stable" and found)
    assert page["total_lag"] == 10
    assert [(one["partition"], one["lag"], one["reader"]) for one in page["partitions"]] == [
        (0, 6, "reader"),
        (1, 4, "reader"),
    ]
    assert [one["client_id"] for one in page["members"]] == ["reader"]
    html = browser.get(f"/c/test/group?name={quote(group)}").text
    assert "Reset offsets" in html and "<img" not in html


@pytest.mark.parametrize(
    ("to", "value", "expected"),
    [
        ("earliest", "", {0: 0, 1: 0}),
        ("latest", "", {0: 10, 1: 10}),
        ("offset", "3", {0: 3, 1: 3}),
        ("shift", "-2", {0: 2, 1: 4}),
        ("time", "5000", {0: 4, 1: 4}),
        ("time", "1970-01-01T00:00:08Z", {0: 7, 1: 7}),
    ],
)
def test_offsets_are_set_after_a_preview(
    browser: Browser, group: str, to: str, value: str, expected: dict[int, int]
) -> None:
    before = committed(browser, group)
    shown = reset(browser, group, to, value, "/preview").json()
    assert {one["partition"]: one["new_offset"] for one in shown["moves"]} == expected
    assert committed(browser, group) == before
    assert reset(browser, group, to, value).status_code == 200
    assert committed(browser, group) == expected


def test_one_partition_is_moved_alone_and_kept_within_its_log(
    browser: Browser, group: str, filled: str
) -> None:
    done = reset(browser, group, "offset", "99", topics=[f"{filled}:1"])
    assert done.json()["warnings"] == [f"{filled}-1 holds 0 to 10: 10 is taken for 99"]
    assert committed(browser, group) == {0: 4, 1: 10}


def test_the_second_of_two_people_is_told_of_the_first(browser: Browser, group: str, filled: str) -> None:
    expected = {f"{filled}-0": 4, f"{filled}-1": 6}
    assert reset(browser, group, "earliest", expected=expected).status_code == 200
    late = reset(browser, group, "latest", expected=expected)
    assert late.status_code == 409
    assert "somebody else has moved it" in late.json()["error"]
    assert committed(browser, group) == {0: 0, 1: 0}


def test_offsets_of_a_group_with_members_stay(browser: Browser, group: str, member: Consumer) -> None:
    refused = reset(browser, group, "earliest")
    assert refused.status_code == 409
    assert "has 1 active member" in refused.json()["error"]
    assert browser.send("DELETE", f"{API}/group", {"group": group, "confirm": group}).status_code == 409


@pytest.mark.parametrize(
    ("to", "value"), [("offset", "-1"), ("offset", "x"), ("shift", ""), ("time", "soon"), ("nowhere", "")]
)
def test_nonsense_is_refused_in_a_sentence(browser: Browser, group: str, to: str, value: str) -> None:
    refused = reset(browser, group, to, value)
    assert refused.status_code == 400
    assert refused.json()["error"]


def test_a_group_is_deleted_by_typing_its_name(browser: Browser, group: str) -> None:
    assert browser.send("DELETE", f"{API}/group", {"group": group, "confirm": "x"}).status_code == 400
    assert browser.send("DELETE", f"{API}/group", {"group": group, "confirm": group}).status_code == 200
    assert browser.get(f"{API}/group?name={quote(group)}").status_code == 404
    assert browser.get(f"/c/test/group?name={quote(group)}").status_code == 404


def test_a_group_of_the_new_protocol_is_described_alike(
    browser: Browser, bootstrap: str, filled: str
) -> None:
    name = f"kip-848-{uuid.uuid4().hex[:8]}"
    settings = {"bootstrap.servers": bootstrap, "group.id": name, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings | {"group.protocol": "consumer", "client.id": "reader"})
    consumer.subscribe([filled])
    until(lambda: consumer.poll(0.1) and len(consumer.assignment()) == 2)
    try:
        page = described(browser, name)
        assert page["type"] == "Consumer"
        assert [len(one["partitions"]) for one in page["members"]] == [2]
        assert "KIP-848" in browser.get(f"/c/test/group?name={name}").text
    finally:
        consumer.close()
