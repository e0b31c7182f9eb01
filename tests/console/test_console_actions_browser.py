"""Tests of what people do with the console, in a real browser: each action from its button to what the page says
afterwards.
"""

import json
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.admin.access import Access
from odradek.console.app import build_app
from odradek.console.settings import ConsoleSettings
from odradek.console.users import Role, write_user
from tests.console.test_console_browser import PATIENCE_MS, chromium, page  # noqa: F401
from tests.console.test_console_pipelines import letter_headers

playwright = pytest.importorskip("playwright.sync_api")

MORE_THAN_HTTP_ALLOWS = 7  # connections of a browser to one host


@contextmanager
def served(settings: ConsoleSettings) -> Iterator[tuple[str, Any]]:
    """A console in a thread of this process: its address, and itself."""
    app = build_app(settings)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=1))
    with socket.create_server(("localhost", 0)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://localhost:{listening.getsockname()[1]}", app.state.console
        finally:
            app.state.console.hub.close()
            server.should_exit = True
            thread.join(30)


@pytest.fixture(scope="module")
def running(bootstrap: str) -> Iterator[tuple[str, Any]]:
    access = Access(bootstrap, {})
    with served(ConsoleSettings({"test": access, "other": Access(bootstrap, {})})) as found:
        yield found


@pytest.fixture(scope="module")
def address(running: tuple[str, Any]) -> str:
    return running[0]


@pytest.fixture
def orders(bootstrap: str) -> str:
    """A topic with ten records."""
    name = f"orders-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(name, 1, 1)]).values():
        future.result(20)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(10):
        producer.produce(name, f"book {number}", f"key-{number}")
    assert producer.flush(20) == 0
    return name


def until(condition: Callable[[], object]) -> None:
    limit_s = time.monotonic() + PATIENCE_MS / 1000
    while not condition():
        assert time.monotonic() < limit_s
        time.sleep(0.02)


def test_offsets_are_reset_after_a_preview_and_the_group_deleted(
    page: Any,  # noqa: F811
    bootstrap: str,
    orders: str,
) -> None:
    group = f"<b>readers</b> of {orders}"
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(orders, 0, 4)], asynchronous=False)
    consumer.close()
    page.goto("/c/test/groups")
    page.keyboard.press("/")
    page.keyboard.type(orders)
    page.get_by_role("link", name=group).click()
    page.get_by_role("button", name="Reset offsets").click()
    page.get_by_label("Move to").select_option("by a number of records (back if negative)")
    page.get_by_label("Value").fill("-3")
    page.get_by_role("button", name="Preview").click()
    row = page.locator("#preview tbody tr")
    row.wait_for()
    assert row.all_inner_texts() == [f"{orders}-0\t4\t1\t-3"]
    page.get_by_role("button", name="Set these offsets").click()
    page.get_by_text("Set the offsets of").wait_for()
    page.locator("td", has_text=re.compile("^9$")).first.wait_for()
    page.get_by_role("button", name="Delete").click()
    page.locator("#delete").get_by_label("Name").fill(group)
    page.locator("#delete").get_by_role("button", name="Delete").click()
    page.get_by_text(f"Deleted group {group}.").wait_for()


def test_an_open_transaction_is_aborted_by_force(page: Any, bootstrap: str, orders: str) -> None:  # noqa: F811
    name = f"tx-{uuid.uuid4().hex[:8]}"
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(orders, b"in it")
    assert producer.flush(20) == 0
    page.goto("/c/test/transactions")
    page.get_by_role("link", name=name).click()
    row = page.get_by_role("row").filter(has_text=f"{orders}-0")
    row.get_by_role("button", name="Abort").click()
    row.get_by_text("does not hang").wait_for()
    row.get_by_role("combobox").select_option("true")
    row.get_by_role("button", name="Abort").click()
    page.get_by_text("Aborted the transaction of producer").wait_for()


def test_dead_letters_are_sent_again(page: Any, bootstrap: str, orders: str) -> None:  # noqa: F811
    dead = f"{orders}-dead"
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(3):
        producer.produce(dead, b"value", b"key", headers=letter_headers(orders, number))
    assert producer.flush(20) == 0
    page.goto("/c/test/pipelines")
    page.get_by_role("link", name=dead).click()
    page.get_by_text("amount is not a number").first.wait_for()
    for choice, said in (("true", "Would send"), ("false", "Sent")):
        page.get_by_role("button", name="Send them again").click()
        page.get_by_label("Do it").select_option(choice)
        page.get_by_role("button", name="Go").click()
        page.get_by_text(f"{said} 3 records to {orders}.").wait_for()


def test_users_and_quotas(page: Any, orders: str) -> None:  # noqa: F811
    user = orders.replace("orders", "alice")
    page.goto("/c/test/users")
    page.get_by_role("button", name="Add user").click()
    page.get_by_label("Name").first.fill(user)
    page.get_by_label("Password").fill("secret")
    page.get_by_role("button", name="Add", exact=True).click()
    page.get_by_text(f"User {user} logs in with SCRAM-SHA-512.").wait_for()
    page.get_by_role("row").filter(has_text=user).get_by_role("button", name="Remove").click()
    page.locator("#remove").get_by_label("Name").fill(user)
    page.locator("#remove").get_by_role("button", name="Remove").click()
    page.get_by_text(f"Removed user {user}.").wait_for()

    page.get_by_role("link", name="Quotas").click()
    page.get_by_role("button", name="Set quota").click()
    page.get_by_label("User", exact=True).fill(user)
    page.locator("#set select[name=quota]").select_option("consumer_byte_rate")
    page.get_by_label("Value").fill("2048")
    page.get_by_role("button", name="Set", exact=True).click()
    page.get_by_text(f"Set consumer_byte_rate of user {user} to 2.0 KB/s.").wait_for()
    row = page.get_by_role("row").filter(has_text=user)
    row.get_by_role("button", name="Change").click()
    assert page.get_by_label("User", exact=True).input_value() == user
    page.get_by_role("button", name="Cancel").first.click()
    row.get_by_role("button", name="Remove").click()
    page.locator("#remove", has_text=f"consumer_byte_rate=2.0 KB/s of user {user}").wait_for()
    page.locator("#remove").get_by_role("button", name="Remove").click()
    page.get_by_text(f"Removed consumer_byte_rate of user {user}.").wait_for()


def test_a_search_is_cancelled_and_records_are_downloaded(
    page: Any,  # noqa: F811
    bootstrap: str,
    orders: str,
    tmp_path: Path,
) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(orders, "x" * 40 + "!")  # a pattern below takes for ever with it
    assert producer.flush(20) == 0
    page.goto(f"/c/test/topics/{orders}/messages")
    page.locator("#search").fill("value~^(x+)+$")
    page.get_by_role("button", name="Search").click()
    page.get_by_role("button", name="Cancel").first.click()
    page.get_by_text(re.compile(r"Found 0 in .* s\.")).wait_for()
    page.get_by_role("button", name="Search").click()
    page.get_by_role("button", name="Cancel").first.wait_for()
    page.locator("#search").fill("key=key-3")
    page.get_by_role("button", name="Search").click()  # while the other one runs
    page.get_by_text(re.compile(r"Found 1 in 11 of 11 records, .* s\.")).wait_for()
    page.locator("#search").fill("key=key-7")
    for kind in ("JSON lines", "CSV"):
        with page.expect_download() as download:
            page.get_by_role("link", name=kind).click()
        file = tmp_path / download.value.suggested_filename
        download.value.save_as(file)
        assert "book 7" in file.read_text()
        assert "book 6" not in file.read_text()
    assert json.loads((tmp_path / f"{orders}.jsonl").read_text())["offset"] == 7


def test_a_record_has_a_link_for_a_colleague(page: Any, orders: str) -> None:  # noqa: F811
    page.goto(f"/c/test/topics/{orders}/messages/0/7")
    page.get_by_text("book 7").wait_for()
    page.get_by_role("link", name="hex").click()
    page.get_by_text("62 6f 6f 6b 20 37").wait_for()


def test_many_tabs_have_one_stream_which_hidden_tabs_do_not_need(
    chromium: Any,  # noqa: F811
    bootstrap: str,
) -> None:
    settings = ConsoleSettings({"test": Access(bootstrap, {})})
    with served(settings) as (address, console), ExitStack() as stack:
        context = chromium.new_context(base_url=address)
        context.set_default_timeout(PATIENCE_MS)
        stack.callback(context.close)
        tabs = [context.new_page() for _ in range(MORE_THAN_HTTP_ALLOWS)]
        for tab in tabs:
            tab.goto("/c/test/topics")
        until(lambda: console.hub.count == 1)
        name = f"seen-{uuid.uuid4().hex[:8]}"
        admin = AdminClient({"bootstrap.servers": bootstrap})
        for future in admin.create_topics([NewTopic(name, 1, 1)]).values():
            future.result(20)
        for tab in tabs:
            tab.get_by_role("link", name=name).wait_for()
        hide = (
            "Object.defineProperty(document, 'hidden', {get: () => true}); "
            "document.dispatchEvent(new Event('visibilitychange'))"
        )
        for tab in tabs[1:]:
            tab.evaluate(hide)
        tabs[0].wait_for_timeout(100)
        assert console.hub.count == 1
        tabs[0].evaluate(hide)
        until(lambda: console.hub.count == 0)


def test_several_clusters_are_chosen_from_the_top(page: Any) -> None:  # noqa: F811
    page.goto("/c/test/topics")
    page.get_by_role("navigation", name="Clusters").get_by_role("link", name="other").click()
    page.wait_for_url("**/c/other")


def test_a_login_a_viewer_and_an_end(chromium: Any, bootstrap: str, tmp_path: Path) -> None:  # noqa: F811
    users = tmp_path / "users.toml"
    write_user(users, "vera", "right", Role.VIEWER)
    settings = ConsoleSettings({"test": Access(bootstrap, {})}, users_file=users)
    with served(settings) as (address, _), ExitStack() as stack:
        context = chromium.new_context(base_url=address)
        context.set_default_timeout(PATIENCE_MS)
        stack.callback(context.close)
        page = context.new_page()
        page.goto("/c/test/topics?search=or")
        for password, said in (("wrong", "wrong user or password"), ("right", None)):
            page.get_by_label("User").fill("vera")
            page.get_by_label("Password").fill(password)
            page.get_by_role("button", name="Log in").click()
            if said:
                page.get_by_text(said).wait_for()
        page.wait_for_url("**/c/test/topics?search=or")
        page.get_by_role("heading", name="Topics").wait_for()
        assert page.get_by_role("button", name="Create topic").count() == 0
        assert page.get_by_role("link", name="Users").count() == 0
        other = context.new_page()
        other.goto("/c/test/topics?search=or")
        page.get_by_role("button", name="Log out").click()
        page.wait_for_url("**/login")
        other.get_by_label("Password").wait_for()
        page.goto("/c/test/topics")
        page.get_by_label("Password").wait_for()
