"""The console while a broker dies and comes back."""

import time
from collections.abc import Callable
from typing import Any

from odradek.admin.access import Access
from odradek.testing import cluster
from tests.console.conftest import API, Browser


def wait_for(browser: Browser, condition: Callable[[Any], bool]) -> Any:
    limit_s = time.monotonic() + 90
    while not condition(view := browser.get(API).json()):
        assert time.monotonic() < limit_s, view
        time.sleep(0.1)
    return view


def test_a_broker_that_dies_is_told_and_what_to_do(consoles: Callable[..., Browser]) -> None:
    with cluster(3) as kafka:
        kafka.create_topic("orders", 6)
        browser = consoles(clusters={"test": Access(kafka.bootstrap, {})})
        wait_for(browser, lambda view: view["is_known"] and not view["problems"] and view["topic_count"] == 1)
        kafka[2].crash()
        view = wait_for(browser, lambda view: any("broker 2 left" in one["text"] for one in view["events"]))
        assert "broker 2 fenced: down, or not ready yet" in view["problems"]
        assert view["advice"][0].startswith("start broker 2")
        assert "Not healthy" in browser.get("/c/test").text
        page = browser.get("/c/test/topics/orders")
        assert (page.status_code, "missing" in page.text) == (200, True)
        kafka[2].restart()
        wait_for(browser, lambda view: not view["problems"])
        assert "broker 2 joined" in [one["text"] for one in browser.get(API).json()["events"]]
