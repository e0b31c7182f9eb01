"""Pictures of the console, for README.md and docs/CONSOLE.md: a bookstore on three brokers, of which one is killed.

    python tools/screenshots.py [--directory docs/console]

They are taken by Debian's chromium (`make chromium`). `console_gallery.py` takes every page, for whoever changes one.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bookstore.processes import console_of
from confluent_kafka import Consumer, Producer
from playwright.sync_api import sync_playwright

from odradek.testing import cluster

ROOT = Path(__file__).resolve().parent.parent
CHROMIUM = "/usr/bin/chromium"
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
]
BOOKS = ("The Trial", "The Castle", "Amerika", "The Metamorphosis", "A Hunger Artist")
WIDE = (1280, 860)


def seed(bootstrap: str) -> None:
    chance = random.Random(17)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(2000):
        reader = f"reader-{chance.randrange(200)}"
        order = {
            "order": number,
            "book": chance.choice(BOOKS),
            "reader": reader,
            "copies": chance.randrange(1, 4),
        }
        producer.produce("orders", json.dumps(order), reader, headers=[("source", b"web")])
        producer.produce("looks", json.dumps({"reader": reader, "book": chance.choice(BOOKS)}), reader)
        if number % 20 == 0:
            producer.produce("returns", json.dumps({"order": number}), reader)
        producer.poll(0)
    producer.flush()
    for group, topics, wanted in (("billing", ["orders"], 1400), ("recommendations", ["looks"], 600)):
        read(bootstrap, group, topics, wanted)


def read(bootstrap: str, group: str, topics: list[str], wanted: int) -> None:
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.subscribe(topics)
    count, limit_s = 0, time.monotonic() + 30
    while count < wanted and time.monotonic() < limit_s:
        count += len(consumer.consume(100, 1.0))
        consumer.commit(asynchronous=False)
    consumer.close()


@contextmanager
def console(bootstrap: str) -> Iterator[str]:
    with (
        tempfile.TemporaryDirectory() as directory,
        console_of(bootstrap, Path(directory) / "console.log") as address,
    ):
        yield address + "c/bookstore"


class Camera:
    def __init__(self, browser: Any, directory: Path) -> None:
        self._browser, self._directory = browser, directory
        directory.mkdir(parents=True, exist_ok=True)

    def press(self, address: str, button: str, wait: str) -> None:
        """Press a button of a page, and wait until the page says something."""
        page = self._browser.new_page()
        page.goto(address)
        page.get_by_role("button", name=button).click()
        page.get_by_text(wait).first.wait_for()
        page.close()

    def take(
        self, name: str, address: str, size: tuple[int, int] = WIDE, scheme: str = "light", *, wait: str = ""
    ) -> None:
        context = self._browser.new_context(
            viewport={"width": size[0], "height": size[1]},
            color_scheme=scheme,
            timezone_id="UTC",
            locale="en-GB",
        )
        page = context.new_page()
        page.goto(address)
        if wait:
            page.get_by_text(wait).first.wait_for()
        page.wait_for_timeout(400)
        file = self._directory / f"{name}.png"
        page.screenshot(path=file)
        context.close()
        print(f"{file}: {file.stat().st_size // 1024} KB")


def main() -> None:
    parser = argparse.ArgumentParser(description="Take pictures of the console.")
    parser.add_argument("--directory", type=Path, default=ROOT / "docs" / "console")
    options = parser.parse_args()
    with cluster(3) as kafka, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        camera = Camera(browser, options.directory)
        with console(kafka.bootstrap) as address:
            for name, partitions in (("orders", 6), ("looks", 12), ("returns", 3), ("dead-letters", 1)):
                kafka.create_topic(name, partitions)
            seed(kafka.bootstrap)
            play = subprocess.Popen([sys.executable, __file__, "--play", kafka.bootstrap])
            try:
                take_all(camera, kafka, address)
            finally:
                play.terminate()
                play.wait()
        browser.close()


def take_all(camera: Camera, kafka: Any, address: str) -> None:
    time.sleep(12)  # a line of throughput needs some time to be one
    camera.take("overview", address, wait="Healthy")
    camera.take("topics", f"{address}/topics")
    camera.take("messages-dark", f"{address}/topics/orders/messages", scheme="dark")
    camera.press(f"{address}/picture?topic=returns", "Start a group of three", "reads 2")
    camera.press(f"{address}/picture?topic=returns", "Stop picture-2", "picture-2 left")
    kafka[2].crash()
    camera.take("picture", f"{address}/picture?topic=returns", wait="broker 2 is away")
    camera.take("broken", address, wait="broker 2 left")


def play_on(bootstrap: str) -> None:
    """Orders at a pace that changes."""
    producer = Producer({"bootstrap.servers": bootstrap})
    number = 0
    while True:
        for _ in range(20 + number % 70):
            producer.produce(
                "orders", json.dumps({"order": number, "book": BOOKS[number % 5]}), str(number % 200)
            )
            number += 1
        producer.flush()
        time.sleep(0.25)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--play"]:
        play_on(sys.argv[2])
    else:
        main()
