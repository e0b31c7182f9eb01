"""The picture in a real browser, on a cluster of three: before and after a kill and a rebalance."""

import subprocess
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest

from odradek.testing import Cluster, cluster
from tests.console.test_console_browser import chromium, page  # noqa: F401
from tests.support import odradek_command

playwright = pytest.importorskip("playwright.sync_api")

TOPIC = "orders"
PATIENCE_MS = 60_000


@pytest.fixture(scope="module")
def three() -> Iterator[Cluster]:
    with cluster(group_initial_rebalance_delay_ms="0") as kafka:
        kafka.create_topic(TOPIC, replicas=[[1, 2, 3], [2, 3, 1], [3, 1, 2]], partitions=3)
        yield kafka


@pytest.fixture(scope="module")
def address(three: Cluster) -> Iterator[str]:
    command = odradek_command("console", "-b", three.bootstrap, "--port", "0", "--name", "test", "--lifeline")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().split()[-1].rstrip("/")
        process.terminate()


def roles(page: Any) -> dict[str, str]:  # noqa: F811
    """Return what each replica is, by partition and broker."""
    script = "all => all.map(one => [one.id, one.getAttribute('class')])"
    found = page.locator("#drawing g.replica").evaluate_all(script)
    return {name.removeprefix("replica-"): role.removeprefix("replica ") for name, role in found}


def test_the_picture_before_and_after_a_rebalance_and_a_kill(page: Any, three: Cluster) -> None:  # noqa: F811
    expect = playwright.expect
    page.set_default_timeout(PATIENCE_MS)
    page.goto(f"/c/test/picture?topic={TOPIC}")
    page.locator("#drawing").wait_for()
    assert roles(page) == {
        f"{number}-{broker}": "leader" if broker == number + 1 else "follower"
        for number in range(3)
        for broker in (1, 2, 3)
    }

    page.get_by_role("button", name="Start a group of three").click()
    for number in range(3):
        page.locator("#drawing .consumer", has_text=f"reads {number}").wait_for()
    assert page.locator("#drawing .reading").count() == 3
    page.get_by_role("button", name="Stop picture-2").click()
    page.locator("#told", has_text="picture-2 left group picture-orders").wait_for()
    expect(page.locator("#drawing .consumer")).to_have_count(2, timeout=PATIENCE_MS)
    expect(page.locator("#drawing .reading")).to_have_count(3, timeout=PATIENCE_MS)

    kept = page.locator("#replica-0-2").element_handle()
    three[1].crash()
    page.locator("#told", has_text="broker 1 is away").wait_for()
    page.locator("#told", has_text="leads partition 0 now, after broker 1").wait_for()
    after = roles(page)
    assert [after[f"{number}-1"] for number in range(3)] == ["broker-away"] * 3
    assert "leader" in (after["0-2"], after["0-3"])
    assert kept.evaluate("one => one.isConnected"), "what stays is moved, not drawn again"
    page.locator("#broker-1", has_text="away").wait_for()
    three[1].start()
    page.locator("#told", has_text="broker 1 is back").wait_for()
    page.locator("#broker-1", has_text="alive").wait_for()


def test_pages_fit_into_a_narrow_window(chromium: Any, address: str) -> None:  # noqa: F811
    context = chromium.new_context(
        base_url=address, viewport={"width": 400, "height": 800}, color_scheme="dark"
    )
    page = context.new_page()  # noqa: F811
    for path in (f"picture?topic={TOPIC}", "picture?whole=true", "groups", "transactions", "pipelines"):
        with (
            page.expect_response(lambda response: "width=" in response.url)
            if "picture" in path
            else nullcontext()
        ):
            page.goto(f"/c/test/{path}")
        page.get_by_role("heading", level=1).wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 400, path
    context.close()
