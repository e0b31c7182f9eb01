"""Pipelines of the console: the ledger, groups of queries, and dead letters that are sent again."""

import time
import uuid

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from odradek.client.cluster import borrow_cluster
from odradek.client.properties import parse_properties
from odradek.client.settings import ProduceSettings
from odradek.client.transactions import TransactionalProducer
from odradek.console.watch.ledger import LedgerWatch
from odradek.console.watch.looked import Looked
from odradek.ledger.counts import CountsTopic, sink_counts
from odradek.ledger.record import Entry
from odradek.ledger.topic import Ledger
from tests.console.conftest import API, Browser
from tests.console.test_console_topics import until

SCRIPT = "<script>alert(1)</script>"


def letter_headers(topic: str | None, number: int, content: str = "record") -> list[tuple[str, bytes]]:
    facts = {
        "pipeline": "shop",
        "stage": "decode",
        "name": "orders",
        "content": content,
        "reason": f"not JSON {SCRIPT}" if number % 2 else "amount is not a number",
        "topic": topic,
        "partition": "0",
        "offset": str(number),
        "timestamp": str(1_000_000 + number),
    }
    ours = [(f"odradek.{name}", value.encode()) for name, value in facts.items() if value is not None]
    return [("own", b"kept"), *ours]


@pytest.fixture
def letters(bootstrap: str, browser: Browser, topic: str) -> str:
    """A topic of dead letters: three with whole records of `topic`, one with a row, and one that is none."""
    name = f"{topic}-dead"
    assert browser.send("POST", f"{API}/topics", {"topic": name, "partitions": 1}).status_code == 200
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(3):
        producer.produce(
            name, b"value %d" % number, b"key %d" % number, headers=letter_headers(topic, number)
        )
    producer.produce(name, b"{}", headers=letter_headers(topic, 3, "row"))
    producer.produce(name, SCRIPT.encode())
    assert producer.flush(20) == 0
    return name


def records(bootstrap: str, topic: str) -> list:  # type: ignore[type-arg]
    """All records of a topic of two partitions."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False})
    places = [TopicPartition(topic, number, 0) for number in range(2)]
    count = sum(consumer.get_watermark_offsets(place, 10)[1] for place in places)
    consumer.assign(places)
    found: list = []  # type: ignore[type-arg]
    while len(found) < count:
        found += consumer.consume(count, 10)
    consumer.close()
    return found


def replay(browser: Browser, letters: str, **more: object):  # type: ignore[no-untyped-def]
    response = browser.send("POST", f"{API}/dead-letters/replay", {"topic": letters, **more})
    assert response.status_code == 200, response.text
    return response.json()


def test_dead_letters_are_shown_with_their_reasons(browser: Browser, topic: str, letters: str) -> None:
    page = browser.get(f"{API}/dead-letters?topic={letters}").json()
    assert (page["waiting"], page["is_more_waiting"]) == (4, False)
    assert dict(page["reasons"]) == {f"not JSON {SCRIPT}": 2, "amount is not a number": 2}
    assert (page["counted"], page["others"]) == (4, 1)
    assert [one["can_be_sent"] for one in page["letters"]] == [False, True, True, True]
    assert page["letters"][-1]["origin"] == f"{topic}-0 at 0"
    html = browser.get(f"/c/test/dead-letters?topic={letters}").text
    assert SCRIPT not in html and "Send them again" in html


def test_dead_letters_are_sent_again_once(browser: Browser, bootstrap: str, topic: str, letters: str) -> None:
    assert replay(browser, letters, dry_run=True)["sent"] == {topic: 3}
    assert records(bootstrap, topic) == []
    done = replay(browser, letters)
    assert (done["sent"], done["kept"], done["is_all"]) == ({topic: 3}, 1, True)
    found = sorted(records(bootstrap, topic), key=lambda one: one.value())
    assert [(one.key(), one.value()) for one in found] == [
        (b"key %d" % number, b"value %d" % number) for number in range(3)
    ]
    assert found[0].headers() == [("own", b"kept"), ("odradek.replayed", f"{letters}/0/0".encode())]
    assert found[0].timestamp()[1] == 1_000_000
    assert replay(browser, letters)["said"] == "There is nothing to replay."
    assert browser.get(f"{API}/dead-letters?topic={letters}").json()["waiting"] == 0
    assert replay(browser, letters, everything=True)["sent"] == {topic: 3}
    assert len(records(bootstrap, topic)) == 6


def test_they_may_go_elsewhere_but_not_in_a_circle(browser: Browser, topic: str, letters: str) -> None:
    for target, status in ((letters, 400), ("no-such-topic", 404), ("__consumer_offsets", 400)):
        response = browser.send("POST", f"{API}/dead-letters/replay", {"topic": letters, "to": target})
        assert response.status_code == status, response.text
    assert replay(browser, letters, to=topic)["sent"] == {topic: 3}


def test_a_sink_that_writes_the_ledger_is_listed(browser: Browser, bootstrap: str) -> None:
    sink = f"sink-{uuid.uuid4().hex[:8]}"
    now_ms = time.time_ns() // 1_000_000
    entry = Entry(
        7, "f", 500, 250, now_ms, f"shop {SCRIPT}", ("totals",), {"read": 50, "send": 200, "none": 0}
    )
    with borrow_cluster(parse_properties({"bootstrap.servers": bootstrap}).client) as cluster:
        ledger = Ledger(cluster)
        producer = TransactionalProducer(cluster, f"odradek-once-{sink}", ProduceSettings(), 60_000)
        ledger.ensure()
        producer.initialize()
        producer.send([ledger.encoded(sink, entry, now_ms)])
        producer.commit()
    browser.client.app.state.console.clusters["test"].ledger = LedgerWatch()  # type: ignore[attr-defined]
    rows = browser.get(f"{API}/pipelines").json()["sinks"]
    (row,) = [one for one in rows if one["sink"] == sink]
    assert (row["batch"], row["rows"], row["batch_rows_per_second"]) == (7, 500, 2000.0)
    assert [(one["name"], one["share"]) for one in row["phases"]] == [("send", 0.8), ("read", 0.2)]
    html = browser.get("/c/test/pipelines").text
    assert sink in html and SCRIPT not in html


def test_what_requirements_have_counted_is_shown(browser: Browser, bootstrap: str) -> None:
    pipeline = f"shop-{uuid.uuid4().hex[:8]}"
    unmet = [
        {"stage": "good", "requirement": "an amount is positive", "action": "drop", "rows": 2},
        {"stage": "good", "requirement": f"the amount is plausible {SCRIPT}", "action": "warn", "rows": 1234},
    ]
    with borrow_cluster(parse_properties({"bootstrap.servers": bootstrap}).client) as cluster:
        counts = CountsTopic(cluster)
        counts.write([sink_counts(pipeline, "out", unmet[:1]), sink_counts(pipeline, "all", [])], 10)
        counts.write([sink_counts(pipeline, "out", unmet)], 10)
    browser.seen().nudge("topology")

    def shown() -> list[dict[str, object]]:
        browser.client.app.state.console.clusters["test"].counts = Looked()  # type: ignore[attr-defined]
        page = browser.get(f"{API}/pipelines").json()
        assert page["unmet_problem"] is None
        return [one for one in page["unmet"] if one["pipeline"] == pipeline]

    found = until(shown)
    assert [(one["requirement"], one["rows"]) for one in found] == [
        (unmet[1]["requirement"], 1234), (unmet[0]["requirement"], 2),
    ]  # fmt: skip
    html = browser.get("/c/test/pipelines").text
    assert f"{pipeline}.out" in html and "an amount is positive" in html and SCRIPT not in html
    assert "1,234" in html or "1\u202f234" in html or "1 234" in html


def test_a_query_that_commits_to_a_group_is_listed(
    browser: Browser, bootstrap: str, topic: str, letters: str
) -> None:
    name = f"odradek-pipeline-{topic}-totals"
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": name})
    consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    consumer.close()
    browser.seen().nudge("topology", "groups")

    def listed():  # type: ignore[no-untyped-def]
        page = browser.get(f"{API}/pipelines").json()
        has_letters = letters in [one["topic"] for one in page["letter_topics"]]
        return has_letters and [one for one in page["queries"] if one["group"] == name]

    (row,) = until(listed)
    assert row["topics"] == [topic]
