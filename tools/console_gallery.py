"""Every page of the console as pictures, light and dark, wide and narrow, for whoever changes it and looks at it.

    python tools/console_gallery.py DIRECTORY [--only large broken]

    empty     a cluster of three without anything in it
    store     the same with a bookstore, and then with a broker killed
    busy      one broker with pipelines, an open transaction, members, users, ACLs and quotas
    large     30 brokers, 1,000 partitions of a topic, 2,000 topics: not real, only what a poller might have seen
    broken    brokers away, a full disk, partitions without a leader and under min.insync.replicas: not real either

They are taken by Debian's chromium (`make chromium`). For each page there is also a sheet with its four pictures.
"""

import argparse
import base64
import random
import socket
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import uvicorn
from confluent_kafka import Consumer, Producer
from playwright.sync_api import sync_playwright
from screenshots import CHROMIUM, FLAGS, console, read, seed

from odradek.acls.acl import Acl
from odradek.acls.codes import Operation, Pattern, Permission, Resource
from odradek.admin.access import Access
from odradek.admin.acls import create_acls
from odradek.admin.capabilities import APIS
from odradek.admin.quotas import alter_quotas
from odradek.admin.status import BrokerStatus, ClusterStatus, PartitionStatus
from odradek.admin.users import set_password
from odradek.client.cluster import borrow_cluster
from odradek.client.properties import parse_properties
from odradek.client.settings import ProduceSettings
from odradek.client.transactions import TransactionalProducer
from odradek.config.authorizer import STANDARD_AUTHORIZER
from odradek.console.app import build_app
from odradek.console.pages import picture
from odradek.console.picture.scene import (
    BrokerScene,
    ConsumerScene,
    GroupScene,
    PartitionScene,
    ReplicaScene,
    Scene,
)
from odradek.console.settings import ConsoleSettings
from odradek.console.watch.metrics import Load
from odradek.console.watch.poller import Poller
from odradek.console.watch.seen import (
    Disks,
    Event,
    GroupSeen,
    Offsets,
    OpenTransactionSeen,
    Seen,
    TopicSeen,
    Topology,
)
from odradek.ledger.record import Entry
from odradek.ledger.topic import Ledger
from odradek.testing import cluster

LOOKS = {
    "wide-light": ((1280, 860), "light"),
    "wide-dark": ((1280, 860), "dark"),
    "narrow-light": ((400, 860), "light"),
    "narrow-dark": ((400, 860), "dark"),
}
TALLEST = 2400
PAGES = {
    "overview": "",
    "picture": "/picture?topic=returns",
    "servers": "/picture?whole=true",
    "topics": "/topics",
    "topic": "/topics/orders",
    "messages": "/topics/orders/messages",
    "message": "/topics/orders/messages/0/0",
    "settings": "/topics/orders/settings",
    "groups": "/groups",
    "group": "/group?name=billing",
    "transactions": "/transactions",
    "pipelines": "/pipelines",
    "dead-letters": "/dead-letters?topic=dead-letters",
    "users": "/users",
    "acls": "/acls",
    "quotas": "/quotas",
    "missing": "/topics/nothing",
}
OF_SEEN = ("overview", "picture", "servers", "topics", "groups")  # pages that ask no broker
GIB = 2**30


class Gallery:
    def __init__(self, browser: Any, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._contexts = {
            look: browser.new_context(
                viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, timezone_id="UTC"
            )
            for look, (size, scheme) in LOOKS.items()
        }
        self._sheets = browser.new_context(viewport={"width": 2000, "height": 800})

    def take(self, name: str, address: str, do: Callable[[Any], None] = lambda page: None) -> None:
        files = [self._picture(name, look, address, do) for look in LOOKS]
        page = self._sheets.new_page()
        images = "".join(
            f'<img style="vertical-align:top;margin:4px;width:{width}px" src="data:image/png;base64,'
            f'{base64.b64encode(file.read_bytes()).decode()}">'
            for file, width in zip(files, (780, 780, 200, 200), strict=True)
        )
        page.set_content(f'<body style="margin:0;white-space:nowrap;background:#888">{images}')
        page.screenshot(path=self._directory / f"{name}.png", full_page=True)
        page.close()
        print(self._directory / f"{name}.png", flush=True)

    def _picture(self, name: str, look: str, address: str, do: Callable[[Any], None]) -> Path:
        page = self._contexts[look].new_page()
        page.goto(address)
        page.get_by_role("heading", level=1).wait_for(state="attached")
        do(page)
        page.wait_for_timeout(300)  # a picture is drawn again for its width
        file = self._directory / f"{name}-{look}.png"
        width, height = page.viewport_size["width"], page.evaluate("document.documentElement.scrollHeight")
        overflow = page.evaluate("document.documentElement.scrollWidth") - width
        page.screenshot(
            path=file,
            full_page=True,
            clip={"x": 0, "y": 0, "width": width, "height": min(height, TALLEST)},
        )
        page.close()
        if overflow > 0:
            print(f"{name} {look}: {overflow} pixels too wide", flush=True)
        return file


# Clusters that nobody has


def invented(brokers: int, topics: list[TopicSeen], *, away: tuple[int, ...] = (), full: int = 0) -> Seen:
    chance = random.Random(34)
    leads = [leader for topic in topics for leader in topic.leaders]
    nodes = [
        BrokerStatus(
            *(one, f"kafka-{one}.example.internal", 9092, f"rack-{one % 3}", one in away, leads.count(one)),
            *(GIB // 50 if one == full else 700 * GIB, one == full),
        )
        for one in range(1, brokers + 1)
    ]
    partitions = [
        PartitionStatus(topic.name, number, leader, list(replicas), list(isr))
        for topic in topics
        for number, (leader, replicas, isr) in enumerate(
            zip(topic.leaders, topic.replicas, topic.isr, strict=True)
        )
    ]
    offline = [one for one in partitions if one.leader is None]
    short = [one for one in partitions if one.leader is not None and len(one.isr) < 2]
    lacking = [one for one in partitions if len(one.isr) < len(one.replicas)]
    status = ClusterStatus("vWt0c4pWTkq", nodes, None, len(partitions), lacking, short, offline)
    now_ms = time.time_ns() // 1_000_000
    seen = Seen(
        apis=frozenset(APIS.values()),
        topology=Topology(1, {one.name: one for one in topics}, status),
        disks=Disks(
            {one.broker: one.free_bytes or 0 for one in nodes},
            {one.broker: 1000 * GIB for one in nodes},
            {one.name: chance.randrange(200 * GIB) for one in topics},
            {2: 400_000.0, full: 1800.0} if full else {2: 400_000.0},
        ),
        offsets=Offsets(
            0.0,
            {one.name: array("q", [100_000] * len(one.leaders)) for one in topics},
            {one.name: chance.random() * 3000 for one in topics},
        ),
        groups={
            name: GroupSeen(
                *(name, "Consumer" if number % 3 else "Classic", "Stable" if number % 5 else "Empty"),
                *("consumer", 1, 10 ** (number % 9), ("orders", "clicks")[: number % 3]),
                tuple(chance.randrange(10 ** (number % 9) + 1) for _ in range(40)),
            )
            for number in range(120)
            for name in [f"group-of-a-team-with-a-long-name-{number:03}"]
        },
        transactions=[
            OpenTransactionSeen(
                "billing-7", 4711, "Ongoing", 2, now_ms - 900_000, 60_000, ("orders", "returns")
            )
        ],
        load=Load(812e6, 1.7e9, 48_211.0, 0.005, 0.001, brokers - len(away)),
    )
    for number in range(150):
        seen.throughput.append((now_ms, 40_000 + 8_000 * chance.random() + 60 * number))
    for one in away:
        text = f"broker {one} left; {sum(one in p.replicas for p in partitions):,} partitions affected"
        seen.events.appendleft(Event(now_ms - 90_000, text, True))
    seen.seen_ms["topology"] = now_ms
    return seen


def topic(name: str, partitions: int, brokers: int, away: tuple[int, ...] = ()) -> TopicSeen:
    replicas = tuple(
        tuple((number + at) % brokers + 1 for at in range(min(3, brokers))) for number in range(partitions)
    )
    isr = tuple(tuple(one for one in places if one not in away) for places in replicas)
    leaders = tuple(places[0] if places else None for places in isr)
    return TopicSeen(name, "id", False, leaders, replicas, isr)


def large() -> Seen:
    away = (17,)
    others = [topic(f"team-{number % 40:02}.events.{number:04}", 3, 30, away) for number in range(2000)]
    return invented(30, [topic("clicks", 1000, 30, away), *others], away=away)


def broken() -> Seen:
    away = (1, 3)
    topics = [topic(name, 6, 4, away) for name in ("orders", "returns", "looks")]
    alone = TopicSeen("kept-once", "id", False, (None,), ((3,),), ((),))
    return invented(4, [*topics, alone], away=away, full=4)


def scene_of(_: object, seen: Seen, name: str, first: int, count: int, before: object) -> Scene:
    assert seen.topology is not None
    found = seen.topology.topics[name]
    alive = {one.broker for one in seen.topology.status.brokers if not one.is_fenced}
    numbers = range(first, min(first + count, len(found.leaders)))
    partitions = tuple(
        PartitionScene(
            number,
            found.leaders[number],
            tuple(
                ReplicaScene(
                    one, one == found.leaders[number], one in found.isr[number], one in alive, 10_000
                )
                for one in found.replicas[number]
            ),
            *(None, None) if found.leaders[number] is None else (99_990 + number, 100_000),
        )
        for number in numbers
    )
    readers = tuple(ConsumerScene(f"id-{at}", f"consumer-{at}", tuple(numbers[at::3])) for at in range(3))
    brokers = sorted({one for places in found.replicas for one in places})
    servers = tuple(BrokerScene(one, one in alive, one == 1) for one in brokers)
    return Scene(name, servers, partitions, (GroupScene("billing", "Stable", readers, {}),))


@contextmanager
def console_that_has_seen(seen: Seen) -> Iterator[str]:
    with mock.patch.object(Poller, "start"), mock.patch.object(picture, "ask_scene", scene_of):
        app = build_app(ConsoleSettings({"bookstore": Access("localhost:1", {})}))
        app.state.console.clusters["bookstore"].poller.seen = seen
        server = uvicorn.Server(uvicorn.Config(app, log_config=None))
        with socket.create_server(("localhost", 0)) as listening:
            thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
            thread.start()
            try:
                yield f"http://localhost:{listening.getsockname()[1]}/c/bookstore"
            finally:
                server.should_exit = True
                thread.join()


# What is taken


def take_seen(gallery: Gallery, name: str, seen: Seen, drawn: str) -> None:
    with console_that_has_seen(seen) as address:
        for page in OF_SEEN:
            path = PAGES[page].replace("returns", drawn)
            gallery.take(f"{name}-{page}", address + path)


def take_real(gallery: Gallery) -> None:
    with cluster(3) as kafka, console(kafka.bootstrap) as address:
        for page in (
            "overview",
            "servers",
            "topics",
            "groups",
            "transactions",
            "pipelines",
            "users",
            "quotas",
        ):
            gallery.take(f"empty-{page}", address + PAGES[page])
        for name, partitions in (("orders", 6), ("looks", 12), ("returns", 3), ("dead-letters", 1)):
            kafka.create_topic(name, partitions)
        seed(kafka.bootstrap)
        time.sleep(5)
        for page, path in PAGES.items():
            gallery.take(f"store-{page}", address + path)
        for page, button in (
            ("topics", "Create topic"),
            ("topic", "Delete"),
            ("messages", "Produce a record"),
            ("group", "Reset offsets"),
            ("quotas", "Set quota"),
        ):
            press = _presser(button)
            gallery.take(f"store-{page}-{button.split()[0].lower()}", address + PAGES[page], press)
        read(kafka.bootstrap, "billing", ["orders"], 100)
        kafka[2].crash()
        time.sleep(12)
        for page in ("overview", "picture", "servers", "topics", "topic", "messages", "group"):
            gallery.take(f"killed-{page}", address + PAGES[page])


def take_busy(gallery: Gallery) -> None:
    settings = {"authorizer_class_name": STANDARD_AUTHORIZER, "super_users": "User:ANONYMOUS"}
    with cluster(1, **settings) as kafka, console(kafka.bootstrap) as address:
        for name in ("orders", "looks", "returns", "dead-letters"):
            kafka.create_topic(name, 3)
        seed(kafka.bootstrap)
        reader, _ = busy(kafka.bootstrap)  # its transaction stays open for a minute
        time.sleep(8)
        for page in ("group", "transactions", "pipelines", "dead-letters", "users", "acls", "quotas"):
            path = PAGES[page].replace("billing", "odradek-pipeline-shop-totals")
            gallery.take(f"busy-{page}", address + path)
        gallery.take("busy-transaction", f"{address}/transaction?id=billing-7")
        gallery.take("busy-acls-add", address + PAGES["acls"], _presser("Add ACL"))
        gallery.take(
            "busy-acls-who",
            f"{address}/acls?principal=User:alice&operation=DESCRIBE&resource_type=TOPIC&resource_name=orders",
        )
        reader.close()


def busy(bootstrap: str) -> tuple[Consumer, Producer]:
    access, now_ms = Access(bootstrap, {}), time.time_ns() // 1_000_000
    set_password(access, "alice", "SCRAM-SHA-512", "secret", 4096)
    alter_quotas(access, {"user": "alice", "client-id": None}, {"producer_byte_rate": 2**20})
    alter_quotas(access, {"user": "alice"}, {"request_percentage": 50.0})
    alter_quotas(access, {"ip": None}, {"connection_creation_rate": 20.0})
    allow, deny = (Resource.TOPIC, "orders", Pattern.LITERAL, "User:alice", "*"), (Resource.GROUP, "team-a.")
    create_acls(access, [Acl(*allow, Operation.READ, Permission.ALLOW)])
    create_acls(access, [Acl(*deny, Pattern.PREFIXED, "User:*", "*", Operation.ALL, Permission.DENY)])
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "billing-7"})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce("returns", b"not yet")
    producer.flush()
    facts = {"pipeline": "shop", "stage": "decode", "name": "orders", "content": "record", "topic": "orders"}
    letters = Producer({"bootstrap.servers": bootstrap})
    for number in range(30):
        reason = "not JSON: Expecting value: line 1 column 1" if number % 3 else "amount is not a number"
        told = facts | {"reason": reason, "partition": "0", "offset": str(number), "timestamp": str(now_ms)}
        headers = [(f"odradek.{name}", value.encode()) for name, value in told.items()]
        letters.produce("dead-letters", b"{amount: many, and more that is not JSON}", headers=headers)
    letters.flush()
    with borrow_cluster(parse_properties({"bootstrap.servers": bootstrap}).client) as reached:
        ledger = Ledger(reached)
        sink = TransactionalProducer(reached, "odradek-once-shop", ProduceSettings(), 60_000)
        ledger.ensure()
        sink.initialize()
        phases = {"read": 210, "transform": 340, "send": 900, "commit": 120}
        entry = Entry(41, "f", 52_340, 1_600, now_ms, "shop totals", ("totals", "totals-by-hour"), phases)
        sink.send([ledger.encoded("5f1c-a-long-name-of-a-checkpoint", entry, now_ms)])
        sink.commit()
    group = {"group.id": "odradek-pipeline-shop-totals", "auto.offset.reset": "earliest"}
    reader = Consumer({"bootstrap.servers": bootstrap, "client.id": "reader-1", **group})
    reader.subscribe(["orders"])
    while not reader.consume(500, 1.0):
        pass
    reader.commit(asynchronous=False)
    return reader, producer


def _presser(button: str) -> Callable[[Any], None]:
    return lambda page: page.get_by_role("button", name=button).first.click()


def main() -> None:
    parser = argparse.ArgumentParser(description="Take pictures of every page of the console.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--only", nargs="*", choices=("real", "busy", "large", "broken"))
    options = parser.parse_args()
    wanted = options.only or ["real", "busy", "large", "broken"]
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        gallery = Gallery(browser, options.directory)
        if "large" in wanted:
            take_seen(gallery, "large", large(), "clicks")
        if "broken" in wanted:
            take_seen(gallery, "broken", broken(), "returns")
        if "real" in wanted:
            take_real(gallery)
        if "busy" in wanted:
            take_busy(gallery)
        browser.close()


if __name__ == "__main__":
    main()
