"""Transactions of the console: open ones with what they block, and an abort by the rules of the command line."""

import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from tests.console.conftest import API, Browser
from tests.console.test_console_topics import until


@pytest.fixture
def transaction(bootstrap: str, topic: str) -> Iterator[str]:
    """An open transaction with one record, and a record after it that belongs to nobody."""
    name = f"tx-{uuid.uuid4().hex[:8]}"
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic, b"in it", partition=0)
    assert producer.flush(20) == 0
    other = Producer({"bootstrap.servers": bootstrap})
    other.produce(topic, b"after it", partition=0)
    assert other.flush(20) == 0
    yield name
    try:
        producer.abort_transaction(20)
    except Exception:  # a test has aborted it
        pass


def abort(browser: Browser, topic: str, force: bool):  # type: ignore[no-untyped-def]
    body = {"topic": topic, "partition": 0, "start_offset": 0, "force": force}
    return browser.send("POST", f"{API}/transactions/abort", body)


def test_an_open_transaction_is_listed_with_what_it_blocks(
    browser: Browser, topic: str, transaction: str
) -> None:
    def listed():  # type: ignore[no-untyped-def]
        browser.seen().nudge("offsets", "transactions")
        rows = browser.get(f"{API}/transactions").json()["open"]
        return [one for one in rows if one["transactional_id"] == transaction and one["blocked"] == 2]

    (row,) = until(listed)
    assert (row["state"], row["topics"], row["is_late"]) == ("Ongoing", [topic], False)
    page = browser.get(f"{API}/transaction?id={transaction}").json()
    assert [(one["topic"], one["partition"], one["start_offset"]) for one in page["partitions"]] == [
        (topic, 0, 0)
    ]
    for path in ("transactions", f"transaction?id={transaction}"):
        assert transaction in browser.get(f"/c/test/{path}").text


def test_one_that_its_coordinator_will_end_is_aborted_only_by_force(
    browser: Browser, topic: str, transaction: str
) -> None:
    refused = abort(browser, topic, force=False)
    assert refused.status_code == 409
    assert "this transaction does not hang" in refused.json()["error"]
    assert abort(browser, topic, force=True).status_code == 200
    gone = abort(browser, topic, force=True)
    assert gone.status_code == 409
    assert "no open transaction" in gone.json()["error"]


def test_a_transaction_that_its_coordinator_knows_does_not_hang(
    browser: Browser, topic: str, transaction: str
) -> None:
    found = browser.get(f"{API}/transactions?hanging=true&minutes=0&topic={topic}").json()
    assert (found["hanging"], found["searched_partitions"], found["problem"]) == ([], 2, None)
    missing = browser.get(f"{API}/transactions?hanging=true&topic=no-such").json()
    assert "does not exist" in missing["problem"]


def test_internal_topics_need_force(browser: Browser) -> None:
    assert abort(browser, "__consumer_offsets", force=False).status_code == 400
    assert browser.get(f"{API}/transaction?id=no-such").json()["known"] is None
