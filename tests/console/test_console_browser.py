"""The console in a real browser: Debian's chromium, driven by Playwright. `make chromium` installs it where that can be
done; elsewhere these tests are skipped, and fail in CI."""

import json
import os
import re
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import odradek_command

playwright = pytest.importorskip("playwright.sync_api")

CHROMIUM = "/usr/bin/chromium"
PATIENCE_MS = 60_000  # other tests run at the same time
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
]
SCRIPT = "<script>document.title='executed'</script><img src=x onerror=\"document.title='executed'\">"


@pytest.fixture(scope="module")
def address(bootstrap: str) -> Iterator[str]:
    command = odradek_command("console", "-b", bootstrap, "--port", "0", "--name", "test", "--lifeline")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        yield line.split()[-1].rstrip("/")
        process.terminate()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    if not Path(CHROMIUM).exists():
        assert "CI" not in os.environ, "chromium is not installed: run 'make chromium'"
        pytest.skip("chromium is not installed: run 'make chromium'")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def page(chromium: Any, address: str) -> Iterator[Any]:
    """A page; what the browser complains about, a refused script or style among it, fails the test."""
    context = chromium.new_context(base_url=address, viewport={"width": 1280, "height": 800})
    complaints: list[str] = []
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: message.type == "error" and complaints.append(message.text))
    yield page
    context.close()
    assert [one for one in complaints if "status of 4" not in one] == []


@pytest.fixture
def name() -> str:
    return f"browser-{uuid.uuid4().hex[:8]}"


def create(page: Any, name: str) -> None:
    page.goto("/c/test/topics")
    page.get_by_role("button", name="Create topic").click()
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("Partitions").fill("2")
    page.get_by_role("button", name="Create", exact=True).click()
    page.wait_for_url(f"**/topics/{name}")


def produce(page: Any, name: str, key: str, value: str, headers: str = "") -> None:
    page.goto(f"/c/test/topics/{name}/messages")
    page.get_by_role("button", name="Produce a record").click()
    page.get_by_label("Key", exact=True).fill(key)
    page.get_by_label("Value", exact=True).fill(value)
    page.get_by_label("Headers").fill(headers)
    page.get_by_role("button", name="Produce", exact=True).click()
    page.get_by_text("at offset").wait_for()


def test_a_topic_from_its_creation_to_its_end(page: Any, name: str) -> None:
    create(page, name)
    page.get_by_text(f"Created topic {name}.").wait_for()
    page.get_by_role("button", name="Add partitions").click()
    page.get_by_role("button", name="Add", exact=True).click()
    page.get_by_text(f"Altered topic {name}.").wait_for()
    page.get_by_role("link", name="Settings").click()
    page.keyboard.press("/")
    page.keyboard.type("retention.ms")
    row = page.locator('tr[data-key="retention.ms"]')
    row.get_by_role("button").click()
    page.get_by_label("New value").fill("1234567")
    page.get_by_role("button", name="Set", exact=True).click()
    page.locator('tr[data-key="retention.ms"]', has_text="1234567").wait_for()
    page.get_by_role("link", name="Partitions").click()
    page.get_by_role("button", name="Delete").click()
    page.locator("#delete").get_by_label("Name", exact=True).fill("something else")
    page.locator("#delete").get_by_role("button", name="Delete").click()
    page.get_by_text("type the name of the topic").wait_for()
    page.locator("#delete").get_by_label("Name", exact=True).fill(name)
    page.locator("#delete").get_by_role("button", name="Delete").click()
    page.get_by_text(f"Deleted topic {name}.").wait_for()


def test_the_list_refreshes_by_itself_and_is_searched_by_the_keyboard(
    page: Any, name: str, bootstrap: str
) -> None:
    page.goto(f"/c/test/topics?search={name}")
    page.get_by_text("No topic’s name contains").wait_for()
    subprocess.run(odradek_command("topic", "create", "-b", bootstrap, name), check=True, capture_output=True)
    page.get_by_role("link", name=name).wait_for()
    page.keyboard.press("/")
    page.keyboard.type("no-such-topic")
    page.get_by_text("No topic’s name contains").wait_for()
    assert "search=no-such-topic" in page.url


def test_messages_are_produced_searched_followed_and_never_executed(page: Any, name: str) -> None:
    create(page, name)
    produce(page, name, SCRIPT, json.dumps({"book": SCRIPT}), f"{SCRIPT.replace('=', '')}=value")
    produce(page, name, "second", "plain text")
    assert page.locator("#records tbody tr").count() == 2
    page.locator("#search").fill("key=second")
    page.get_by_role("button", name="Search").click()
    page.get_by_text(re.compile(r"Found 1 in 2 of 2 records, ")).wait_for()
    assert page.locator("#records tbody tr").count() == 1
    page.goto(f"/c/test/topics/{name}/messages")
    page.get_by_role("button", name="Follow").click()
    other = page.context.new_page()
    produce(other, name, "third", "while following")
    other.close()
    page.get_by_text("while following").wait_for()
    page.get_by_role("button", name="Pause").click()
    page.locator("#records tbody tr", has_text="document.title").get_by_role("link").click()
    page.wait_for_url("**/messages/*/*")
    page.get_by_role("button", name="Send again").click()
    page.get_by_text(f"Sent to {name}-").wait_for()
    assert page.title().startswith(name), "a script of a record was executed"


def test_light_dark_and_narrow(chromium: Any, address: str) -> None:
    for width, scheme in ((400, "dark"), (1280, "light")):
        context = chromium.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
        page = context.new_page()
        for path in ("/c/test", "/c/test/topics", "/c/test/users"):
            page.goto(address + path)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        ground = "getComputedStyle(document.body).backgroundColor"
        before = page.evaluate(ground)
        page.get_by_role("button", name="Light or dark").click()
        assert page.evaluate(ground) != before
        page.reload()
        assert page.evaluate(ground) != before, "the choice is kept"
        context.close()


def test_the_overview_shows_a_well_cluster(page: Any) -> None:
    page.goto("/c/test")
    page.get_by_text("Healthy").wait_for()
    page.get_by_role("heading", name="Metadata quorum").wait_for()
