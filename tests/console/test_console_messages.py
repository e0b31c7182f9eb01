"""Messages of the console: read forward and back, shown safely, searched in a child, downloaded, sent."""

import csv
import io
import json
import subprocess
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer

from odradek.admin.failures import AdminError
from odradek.admin.message_filter import compile_filters
from odradek.console.messages import child, searches
from odradek.console.messages.scanning import AsMessage
from odradek.console.messages.schemas import Schemas
from odradek.console.messages.showing import ALONE, IN_A_LIST, show
from odradek.records.record import Record
from tests.console.conftest import API, Browser


def produce(browser: Browser, topic: str, **body: Any) -> dict[str, Any]:
    response = browser.send("POST", f"{API}/topics/{topic}/messages", body)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


@pytest.fixture
def ten(browser: Browser, topic: str) -> str:
    """A topic with ten messages in partition 0."""
    for number in range(10):
        value = json.dumps({"number": number, "name": f"book {number}"})
        produce(browser, topic, key=f"key-{number}", value=value, headers=[["source", "web"]], partition=0)
    return topic


def read(browser: Browser, topic: str, query: str = "") -> Any:
    response = browser.get(f"{API}/topics/{topic}/messages?{query}")
    assert response.status_code == 200, response.text
    return response.json()


def offsets(page: Any) -> list[int]:
    return [one["offset"] for one in page["records"]]


def test_the_newest_come_first_and_older_ones_follow(browser: Browser, ten: str) -> None:
    page = read(browser, ten, "limit=4")
    assert offsets(page) == [9, 8, 7, 6]
    older = read(browser, ten, f"limit=4&before={page['older']}")
    assert offsets(older) == [5, 4, 3, 2]
    last = read(browser, ten, f"limit=4&before={older['older']}")
    assert offsets(last) == [1, 0]
    assert last["older"] == ""


def test_from_the_beginning_from_an_offset_and_on(browser: Browser, ten: str) -> None:
    page = read(browser, ten, "start=earliest&limit=3")
    assert offsets(page)[:3] == [0, 1, 2]
    assert offsets(read(browser, ten, f"limit=3&after={page['newer']}")) == [3, 4, 5]
    assert offsets(read(browser, ten, "start=8&partition=0")) == [8, 9]
    assert offsets(read(browser, ten, "start=@-1h&partition=0&limit=500")) == list(range(10))
    assert offsets(read(browser, ten, "start=@2100-01-01")) == []


def test_following_returns_only_what_is_new(browser: Browser, ten: str) -> None:
    cursor = read(browser, ten)["newer"]
    assert offsets(read(browser, ten, f"after={cursor}")) == []
    produce(browser, ten, value="new", partition=0)
    assert offsets(read(browser, ten, f"after={cursor}")) == [10]


def test_bad_starts_are_refused(browser: Browser, ten: str) -> None:
    for query in (
        "start=yesterday",
        "start=@noon",
        "start=-5",
        "before=x",
        "view=html",
        "partition=99",
        "start=" + "9" * 30,
    ):
        assert browser.get(f"{API}/topics/{ten}/messages?{query}").status_code in (400, 404), query
    assert browser.get(f"{API}/topics/no-such-topic-here/messages").status_code == 404


def test_one_record_has_a_link(browser: Browser, ten: str) -> None:
    page = browser.get(f"/c/test/topics/{ten}/messages/0/3")
    assert "book 3" in page.text
    assert browser.get(f"{API}/topics/{ten}/messages/0/99").status_code == 404


def test_nothing_that_came_from_a_record_is_html(browser: Browser, topic: str) -> None:
    script = "<script>alert(1)</script>"
    sent = produce(browser, topic, key=script, value=script, headers=[[script, script]], partition=0)
    for path in ("messages", f"messages/0/{sent['offset']}"):
        page = browser.get(f"/c/test/topics/{topic}/{path}").text
        assert script not in page
        assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 4


def test_a_record_is_sent_again(browser: Browser, ten: str) -> None:
    response = browser.send("POST", f"{API}/topics/{ten}/messages/0/3/again", {})
    assert response.status_code == 200, response.text
    sent = response.json()
    again = browser.get(f"{API}/topics/{ten}/messages/{sent['partition']}/{sent['offset']}").json()["record"]
    assert again["key"]["text"] == "key-3"
    assert again["headers"][0][0] == "source"


def test_a_tombstone_and_bytes(browser: Browser, topic: str) -> None:
    produce(browser, topic, key="gone", value=None, partition=0)
    produce(browser, topic, value={"base64": "AAECAwT/"}, partition=0)
    newest, tombstone = read(browser, topic)["records"]
    assert tombstone["value"]["text"] is None
    assert newest["value"]["view"] == "hex"
    assert "00 01 02 03 04 ff" in newest["value"]["text"]


def search(browser: Browser, topic: str, **body: Any) -> Any:
    begun = browser.send("POST", f"{API}/topics/{topic}/searches", body)
    assert begun.status_code == 200, begun.text
    limit_s = time.monotonic() + 30
    while True:
        found = browser.get(f"{API}/topics/{topic}/searches/{begun.json()['id']}").json()
        if not found["is_running"]:
            return found
        assert time.monotonic() < limit_s
        time.sleep(0.05)


def test_a_search_finds_by_the_filters_of_the_command_line(browser: Browser, ten: str) -> None:
    found = search(browser, ten, filters=["value.$.number>=7", "header.source=web"])
    assert offsets(found) == [7, 8, 9]
    assert (found["scanned"], found["total"], found["error"]) == (10, 10, None)
    assert offsets(search(browser, ten, filters=["key=key-4"])) == [4]
    limited = search(browser, ten, filters=["book"], limit=2)
    assert len(limited["records"]) == 2
    assert limited["is_limited"]


def test_a_search_that_cannot_be_is_refused(browser: Browser, ten: str) -> None:
    assert browser.send("POST", f"{API}/topics/{ten}/searches", {"filters": ["value~("]}).status_code == 400
    assert "no such topic" in search(browser, "no-such-topic-here", filters=["x"])["error"]
    assert browser.get(f"{API}/topics/{ten}/searches/unknown").status_code == 404


def test_downloads(browser: Browser, ten: str) -> None:
    lines = browser.get(f"{API}/topics/{ten}/download?format=jsonl&filter=key%3Dkey-2").text.splitlines()
    assert [json.loads(line)["key"] for line in lines] == ["key-2"]
    produce(browser, ten, key="=1+1", value="x", partition=0)
    response = browser.get(f"{API}/topics/{ten}/download?format=csv")
    assert "attachment" in response.headers["content-disposition"]
    rows = list(csv.DictReader(io.StringIO(response.text)))
    assert [row["key"] for row in rows][-1] == "'=1+1"


def test_a_download_that_fails_is_no_file(browser: Browser, ten: str) -> None:
    response = browser.get(f"{API}/topics/no-such-topic-here/download?format=csv")
    assert (response.status_code, "no such topic" in response.json()["error"]) == (409, True)


def test_few_downloads_run_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searches, "start_child", waiting_child)
    downloads = searches.Downloads()
    running = [downloads.start({}) for _ in range(searches.MOST_DOWNLOADS)]
    with pytest.raises(AdminError, match="downloads are running"):
        downloads.start({})
    running.pop()
    running.append(downloads.start({}))


def waiting_child(job: object) -> subprocess.Popen[bytes]:
    """It says something, and goes on until it is ended."""
    return subprocess.Popen(["/bin/sh", "-c", "echo begun; exec sleep 600"], stdout=subprocess.PIPE)


def test_a_search_that_nobody_asks_about_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searches, "start_child", lambda job: subprocess.Popen(["sleep", "600"], stdout=-1))
    monkeypatch.setattr(searches, "FORGOTTEN_S", 0.0)
    monkeypatch.setattr(searches, "LOOK_S", 0.01)
    search = searches.Searches().start("somebody", {"limit": 1})
    limit_s = time.monotonic() + 30
    while search.is_running:
        assert time.monotonic() < limit_s
        time.sleep(0.02)


def test_conditions_are_bounded(browser: Browser, ten: str) -> None:
    for filters in (["x"] * 21, ["x" * 2001]):
        response = browser.send("POST", f"{API}/topics/{ten}/searches", {"filters": filters})
        assert (response.status_code, "at most 20 conditions" in response.text) == (400, True)


def test_a_record_is_not_sent_into_an_internal_topic(browser: Browser, ten: str) -> None:
    path = f"{API}/topics/{ten}/messages/0/0/again"
    response = browser.send("POST", path, {"topic": "__consumer_offsets"})
    assert (response.status_code, "internal topics" in response.text) == (400, True)


def test_text_that_a_spreadsheet_would_run_is_quoted() -> None:
    assert [child._text_cell(text) for text in ("-A1", "=1", "@x", "-1.5", "a")] == [
        "'-A1",
        "'=1",
        "'@x",
        "-1.5",
        "a",
    ]


def test_a_value_that_is_nested_too_deeply_ends_no_search() -> None:
    passes = compile_filters(["value.$.a=1"])
    deep = Record(0, 0, None, b"[" * 100_000)
    assert not passes(AsMessage(deep))


def no_schema(data: bytes) -> object:
    return Schemas(None).decode(data)


def test_what_a_value_looks_like() -> None:
    assert show(b'{"a": 1}', "auto", IN_A_LIST, no_schema).text == '{"a": 1}'
    assert show(b'{"a":1}', "json", ALONE, no_schema).text == '{\n  "a": 1\n}'
    assert show(b"plain", "json", ALONE, no_schema).note == "this is not JSON"
    assert show("a\u202eb".encode(), "text", ALONE, no_schema).text == "a\\u202eb"
    long = show("ä".encode() * 5000, "auto", IN_A_LIST, no_schema)
    assert long.is_cut
    assert long.text == "ä" * IN_A_LIST
    assert show(b"[" * 100_000, "auto", ALONE, no_schema).view == "text"
    avro = show(b"\0\0\0\0\7abc", "avro", ALONE, no_schema)
    assert "schema 7" in (avro.note or "")


def test_a_large_message_is_cut_in_lists(browser: Browser, topic: str) -> None:
    produce(browser, topic, value="x" * 900_000, partition=0)
    (found,) = read(browser, topic)["records"]
    assert found["value"]["is_cut"]
    assert len(found["value"]["text"]) == IN_A_LIST
    assert found["value"]["size_bytes"] == 900_000


def test_the_newest_of_many_large_messages_are_found_within_bounds(
    browser: Browser, topic: str, bootstrap: str
) -> None:
    """More than a page may read of a partition: fewer are shown, and they are the newest."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for _ in range(12):
        producer.produce(topic, b"x" * 900_000, partition=0)
    producer.flush()
    found = offsets(read(browser, topic))
    assert found[0] == 11
    assert len(found) < 12
    assert found == sorted(found, reverse=True)


def test_a_message_of_ten_megabytes(browser: Browser, bootstrap: str) -> None:
    topic = f"large-{uuid.uuid4().hex[:8]}"
    settings = {"max.message.bytes": "11000000"}
    browser.send("POST", f"{API}/topics", {"topic": topic, "partitions": 1, "configs": settings})
    producer = Producer({"bootstrap.servers": bootstrap, "message.max.bytes": 11_000_000})
    for letter in (b"a", b"b"):
        producer.produce(topic, letter * 10_000_000, partition=0)
    assert producer.flush(30) == 0
    newest = read(browser, topic)["records"][0]["value"]
    assert (newest["text"], newest["size_bytes"]) == ("b" * IN_A_LIST, 10_000_000)
    page = browser.get(f"/c/test/topics/{topic}/messages/0/1").text
    assert "Download all of it" in page
    assert len(page) < 300_000
    file = browser.get(f"{API}/topics/{topic}/download?start=1&limit=1").content
    assert json.loads(file)["value"] == "b" * 10_000_000


def test_a_search_can_be_cancelled(browser: Browser, ten: str) -> None:
    begun = browser.send("POST", f"{API}/topics/{ten}/searches", {"filters": ["book"]}).json()
    assert browser.send("DELETE", f"{API}/topics/{ten}/searches/{begun['id']}").status_code == 200
    limit_s = time.monotonic() + 30
    while (found := browser.get(f"{API}/topics/{ten}/searches/{begun['id']}").json())["is_running"]:
        assert time.monotonic() < limit_s
        time.sleep(0.05)
    assert found["error"] is None


def test_a_search_belongs_to_its_session(
    browser: Browser, ten: str, consoles: Callable[..., Browser]
) -> None:
    begun = browser.send("POST", f"{API}/topics/{ten}/searches", {"filters": ["book"]}).json()
    cookies = dict(browser.client.cookies)
    browser.client.cookies.clear()
    assert browser.get(f"{API}/topics/{ten}/searches/{begun['id']}").status_code == 404
    browser.client.cookies.clear()
    browser.client.cookies.update(cookies)
