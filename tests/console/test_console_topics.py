"""Topics of the console: the same function is a page and JSON, and changes reach the cluster."""

import asyncio
import json
import time
from collections.abc import Callable

from odradek.admin.access import Access
from odradek.console.stream import Hub
from tests.console.conftest import API, Browser


def until(condition, timeout_s: float = 60.0):  # type: ignore[no-untyped-def]
    """Wait for what the poller has to see first."""
    limit_s = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < limit_s, "not in time"
        time.sleep(0.05)
    return found


def test_a_topic_that_was_created_is_listed(browser: Browser, topic: str) -> None:
    def listed():  # type: ignore[no-untyped-def]
        return browser.get(f"{API}/topics?search={topic}").json()["topics"]

    (row,) = until(listed)
    assert (row["topic"], row["partition_count"], row["replication_factor"]) == (topic, 2, 1)
    assert topic in browser.get(f"/c/test/topics?search={topic}").text
    assert browser.get(f"{API}/topics?search=no-such-{topic}").json()["topics"] == []


def test_a_fragment_is_the_live_part_of_its_page(browser: Browser) -> None:
    fragment = browser.get("/c/test/topics", **{"X-Fragment": "1"}).text
    assert "<html" not in fragment
    assert "<html" in browser.get("/c/test/topics").text


def test_settings_are_changed_and_reset(browser: Browser, topic: str) -> None:
    def retention() -> tuple[str, str]:
        settings = browser.get(f"{API}/topics/{topic}/settings").json()["settings"]
        return next((one["value"], one["source"]) for one in settings if one["key"] == "retention.ms")

    before = retention()
    assert before[1] == "default"
    assert (
        browser.send("PATCH", f"{API}/topics/{topic}", {"set": {"retention.ms": "1234567"}}).status_code
        == 200
    )
    assert retention() == ("1234567", "topic")
    assert browser.send("PATCH", f"{API}/topics/{topic}", {"delete": ["retention.ms"]}).status_code == 200
    assert retention() == before


def test_a_refused_setting_is_told_in_a_sentence(browser: Browser, topic: str) -> None:
    response = browser.send("PATCH", f"{API}/topics/{topic}", {"set": {"retention.sm": "1"}})
    assert response.status_code == 409
    assert "retention.sm" in response.json()["error"]


def test_partitions_are_added_but_never_removed(browser: Browser, topic: str) -> None:
    assert browser.send("PATCH", f"{API}/topics/{topic}", {"partitions": 3}).status_code == 200
    assert browser.get(f"{API}/topics/{topic}").json()["partition_count"] == 3
    assert browser.send("PATCH", f"{API}/topics/{topic}", {"partitions": 1}).status_code == 409


def test_a_topic_is_deleted_only_by_typing_its_name(browser: Browser, topic: str) -> None:
    assert browser.send("DELETE", f"{API}/topics/{topic}", {"confirm": "another"}).status_code == 400
    assert browser.get(f"{API}/topics/{topic}").status_code == 200
    assert browser.send("DELETE", f"{API}/topics/{topic}", {"confirm": topic}).status_code == 200
    assert browser.get(f"{API}/topics/{topic}").status_code == 404
    page = browser.get(f"/c/test/topics/{topic}")
    assert page.status_code == 404
    assert "no such topic" in page.text


def test_internal_topics_are_not_changed(browser: Browser) -> None:
    response = browser.send("DELETE", f"{API}/topics/__consumer_offsets", {"confirm": "__consumer_offsets"})
    assert response.status_code == 400
    assert "internal" in response.json()["error"]


def test_unknown_fields_and_wrong_types_are_refused(browser: Browser) -> None:
    for body in ({"topic": "x", "replicas": 1}, {"topic": "x", "partitions": "many"}, {}, {"topic": 7}):
        assert browser.send("POST", f"{API}/topics", body).status_code == 400, body
    assert browser.get(f"{API}/topics?page=one").status_code == 400
    assert browser.get(f"{API}/topics?sort=colour").status_code == 400


def test_the_overview_has_the_sentences_of_cluster_status(browser: Browser) -> None:
    view = until(lambda: (found := browser.get(API).json())["is_known"] and found)
    assert view["problem"] is None
    assert view["problems"] == []
    assert [one["broker"] for one in view["brokers"]] == [1]
    assert "may lose" in view["tolerance"]
    assert "Healthy" in browser.get("/c/test").text


def test_the_api_describes_itself(browser: Browser) -> None:
    described = browser.get("/api").json()
    assert described["openapi"].startswith("3.")
    operation = described["paths"]["/api/clusters/{cluster}/topics"]["post"]
    assert operation["requestBody"]["content"]["application/json"]["schema"]["required"] == ["topic"]
    for path, operations in described["paths"].items():
        for method, one in operations.items():
            assert one["summary"].endswith("."), (method, path)


def test_users_are_added_and_removed_where_the_cluster_serves_them(browser: Browser) -> None:
    body = {"user": "alice", "password": "secret", "mechanism": "SCRAM-SHA-256"}
    assert browser.send("POST", f"{API}/users", body).status_code == 200
    listed = until(lambda: browser.get(f"{API}/users").json()["users"])
    assert [(one["user"], one["mechanism"]) for one in listed] == [("alice", "SCRAM-SHA-256")]
    assert browser.send("DELETE", f"{API}/users", {"user": "alice", "confirm": ""}).status_code == 400
    assert browser.send("DELETE", f"{API}/users", {"user": "alice", "confirm": "alice"}).status_code == 200


def test_several_clusters(consoles: Callable[..., Browser], bootstrap: str) -> None:
    clusters = {"test": Access(bootstrap, {}), "an other": Access(bootstrap, {})}
    browser = consoles(clusters=clusters)
    assert browser.get("/").headers["location"] == "/c/test"
    assert [one["cluster"] for one in browser.get("/api/clusters").json()] == list(clusters)
    assert 'href="/c/an%20other"' in browser.get("/c/test").text
    assert browser.get("/c/an%20other").status_code == 200
    assert browser.get("/c/a-third").status_code == 404


def test_the_stream_tells_of_changes(browser: Browser) -> None:
    """The poller is a thread, the stream a coroutine: what one publishes, the other sends."""

    async def first_event() -> bytes:
        hub = Hub()
        hub.open()
        lines = hub.lines()
        assert (await anext(lines)).startswith(b"retry")
        await asyncio.to_thread(hub.publish, "test", ["offsets"])
        await asyncio.to_thread(hub.publish, "test", ["topology"])
        told = await anext(lines)
        hub.close()
        await lines.aclose()  # type: ignore[attr-defined]
        assert hub.count == 0
        return told

    told = asyncio.run(first_event())
    assert told.startswith(b"event: changed\ndata: ")
    assert json.loads(told.split(b"data: ")[1])["cluster"] == "test"
