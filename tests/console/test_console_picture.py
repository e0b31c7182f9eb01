"""The picture of the console, on one broker: a group of three that is started and stopped, and what is told of it."""

import pytest

from odradek.admin.access import Access
from tests.console.conftest import API, Browser
from tests.console.test_console_topics import until


@pytest.fixture
def seen(browser: Browser, topic: str) -> str:
    """The topic, as soon as the poller has seen it."""
    poller = browser.seen()
    until(lambda: poller.seen.topology is not None and topic in poller.seen.topology.topics)
    return topic


def picture(browser: Browser, topic: str) -> dict:  # type: ignore[type-arg]
    response = browser.get(f"{API}/picture?topic={topic}")
    assert response.status_code == 200, response.text
    return response.json()  # type: ignore[no-any-return]


def readers(browser: Browser, topic: str) -> dict[str, str]:
    browser.seen().nudge("groups")
    return {one["name"]: one["reads"] for one in picture(browser, topic)["drawing"]["readers"]}


def test_a_topic_is_drawn_with_its_offsets(browser: Browser, seen: str) -> None:
    drawn = picture(browser, seen)
    assert [one["high_watermark"] for one in drawn["scene"]["partitions"]] == [0, 0]
    assert [one["log_end"] for one in drawn["scene"]["partitions"]] == [0, 0]
    html = browser.get(f"/c/test/picture?topic={seen}").text
    assert html.count("★ leader") >= 2 and "style=" not in html and "Start a group of three" in html
    assert browser.get(f"{API}/picture?topic=no-such").status_code == 404


def test_the_cluster_is_drawn_with_its_topics(browser: Browser, seen: str) -> None:
    drawn = browser.get(f"{API}/picture?whole=true").json()
    assert [one["problem"] for one in drawn["brokers"]] == [None]
    assert seen in [one["name"] for one in drawn["topics"]]
    assert "broker" in browser.get("/c/test/picture?whole=true").text


def test_a_group_of_three_is_started_rebalanced_and_stopped(browser: Browser, seen: str) -> None:
    started = browser.send("POST", f"{API}/picture/group", {"topic": seen})
    assert started.json()["said"] == f"Started 3 consumers of group picture-{seen}."
    assert (
        browser.send("POST", f"{API}/picture/group", {"topic": seen}).json()["said"] == "All 3 run already."
    )

    def shared() -> list[str] | None:
        found = readers(browser, seen)
        reads = sorted(found.values())
        return list(found) if reads == ["reads 0", "reads 1", "reads nothing"] else None

    until(shared, 40)
    idle = next(name for name, reads in readers(browser, seen).items() if reads != "reads nothing")
    assert picture(browser, seen)["running"] == ["picture-1", "picture-2", "picture-3"]
    browser.send("DELETE", f"{API}/picture/group", {"topic": seen, "consumer": idle})
    until(lambda: len(readers(browser, seen)) == 2 and shared_by_two(browser, seen), 40)
    told = [one["text"] for one in picture(browser, seen)["events"]]
    assert f"{idle} left group picture-{seen}" in told
    assert any("reads partition" in one for one in told)
    stopped = browser.send("DELETE", f"{API}/picture/group", {"topic": seen})
    assert idle not in stopped.json()["said"]
    until(lambda: picture(browser, seen)["running"] == [])


def shared_by_two(browser: Browser, topic: str) -> bool:
    return sorted(readers(browser, topic).values()) == ["reads 0", "reads 1"]


def test_only_few_and_only_topics_that_exist_have_a_group(browser: Browser, seen: str) -> None:
    for topic in ("no-such", "__consumer_offsets"):
        assert browser.send("POST", f"{API}/picture/group", {"topic": topic}).status_code == 404
    refused = browser.send("POST", f"{API}/picture/group", {"topic": seen, "producer": True})
    assert refused.status_code == 400
    assert "exercise alone" in refused.json()["error"]


def test_viewers_may_look_but_not_start_anything(consoles, seen: str) -> None:  # type: ignore[no-untyped-def]
    reader = consoles(read_only=True)
    page = until(lambda: (found := reader.get(f"/c/test/picture?topic={seen}")).status_code == 200 and found)
    assert "Start a group" not in page.text
    assert reader.send("POST", f"{API}/picture/group", {"topic": seen}).status_code == 403


def test_the_topic_of_the_exercise_can_be_drawn_as_soon_as_it_is_created(browser: Browser) -> None:
    made = browser.send("POST", f"{API}/picture/topic")
    assert made.json()["said"] == "Created topic exercise with 3 partitions of 1 replica."
    assert len(picture(browser, "exercise")["drawing"]["rows"]) == 3
    assert browser.send("POST", f"{API}/picture/topic").status_code == 409
    sending = {"topic": "exercise", "producer": True}
    assert browser.send("POST", f"{API}/picture/group", sending).status_code == 200
    until(lambda: any(one["log_end"] for one in picture(browser, "exercise")["scene"]["partitions"]))
    assert (
        browser.send("DELETE", f"{API}/picture/group", sending).json()["said"] == "Stopped picture-producer."
    )


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("picture", 200),
        ("picture?topic=orders", 200),
        ("groups", 200),
        ("group?name=x", 502),
        ("transactions", 200),
        ("transactions?hanging=true", 200),
        ("transaction?id=x", 200),
        ("pipelines", 200),
        ("dead-letters?topic=x", 502),
    ],
)
def test_pages_of_a_cluster_that_is_away_say_so(away: Browser, path: str, status: int) -> None:
    page = away.get(f"/c/test/{path}")
    assert page.status_code == status, page.text
    assert "localhost:1" in page.text and "Traceback" not in page.text


@pytest.fixture(scope="module")
def away(consoles) -> Browser:  # type: ignore[no-untyped-def]
    browser: Browser = consoles(clusters={"test": Access("localhost:1", {})})
    until(lambda: browser.seen().seen.problem is not None)
    return browser
