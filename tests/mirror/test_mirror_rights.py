"""docs/MIRROR.md's file, on two clusters with passwords and ACLs: the rights that it names suffice to mirror, to fail
over and to fail back; each that is missing is named."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import pytest
from confluent_kafka import Consumer, KafkaError

from odradek.acls.acl import Acl
from odradek.acls.codes import Operation, Pattern, Resource
from odradek.admin.access import Access
from odradek.admin.resources import Kind
from odradek.admin.settings import alter_resource
from odradek.admin.topics import add_partitions
from odradek.cli.mirror import lags_now
from odradek.mirror import work
from odradek.mirror.file import load
from odradek.mirror.positions import NAME
from odradek.mirror.running import MirrorRun
from odradek.testing.port import KeptPort
from tests.documented_acls import DOCS, acl, allow, documented, take_all_away
from tests.mirror.conftest import SETTINGS
from tests.mirror.lab import Inside, client, commit, committed, fill, ledger, running
from tests.processes.nodes import until
from tests.security_cluster import configured_broker, guarded_settings, login_of
from tests.spark.spark_topics import Topics
from tests.support import run_command

USER = "User:ada"
FILE = re.findall(r"```toml\n(.*?)```", (DOCS / "MIRROR.md").read_text(), re.DOTALL)[0]
DOCUMENTED = documented("MIRROR.md", USER)
OTHER = {"west": "east", "east": "west"}
GROUP = "billing"
TOPICS = {"orders": 2, "payments": 1, "shop-1": 1}


@dataclass
class Side:
    """A cluster: `guarded` is the listener of the mirror, and at `open` everybody is a super user."""

    name: str
    guarded: str
    open: str

    def grant(self, *acls: Acl) -> None:
        with closing(client(self.open)) as admin:
            allow(admin, *acls)

    def take_away(self) -> None:
        with closing(client(self.open)) as admin:
            take_all_away(admin, USER)


def side(name: str, tmp_path_factory) -> Iterator[Side]:
    port = KeptPort(must_be_known=True)
    settings = guarded_settings() | {key.replace("_", "."): value for key, value in SETTINGS.items()}
    settings["listeners"] += f",PLAINTEXT://localhost:{port.number}"
    settings["super.users"] += ";User:ANONYMOUS"
    with closing(port), configured_broker(tmp_path_factory.mktemp(name), settings) as broker:
        yield Side(name, broker.bootstrap, f"localhost:{port.number}")


@pytest.fixture(scope="module")
def guarded_west(tmp_path_factory) -> Iterator[Side]:
    yield from side("west", tmp_path_factory)


@pytest.fixture(scope="module")
def guarded_east(tmp_path_factory) -> Iterator[Side]:
    yield from side("east", tmp_path_factory)


@pytest.fixture
def sides(guarded_west, guarded_east) -> Iterator[dict[str, Side]]:
    """Without topics and rights."""
    found = {"west": guarded_west, "east": guarded_east}
    yield found
    for one in found.values():
        one.take_away()
        with closing(client(one.open)) as cluster:
            names = cluster.topic_names()
        for name in names:
            Topics(one.open).delete(name)


@pytest.fixture
def file(sides, tmp_path, monkeypatch):
    """The documentation's file, and with `exchanged` the one for failing back."""
    monkeypatch.setattr(work, "RETRY_S", 0.5)
    monkeypatch.setenv("JAAS", login_of("ada")["sasl.jaas.config"])

    def write(*, exchanged: bool = False):
        text = FILE
        for name, one in sides.items():
            login = {"bootstrap.servers": one.guarded, **login_of("ada"), "sasl.jaas.config": "${JAAS}"}
            shown = ", ".join(f'"{key}" = "{value}"' for key, value in login.items())
            text = re.sub(f"kafka = .*{name}-1.*", f"kafka = {{ {shown} }}", text)
        if exchanged:
            text = text.replace("[source]", "[other]").replace("[target]", "[source]")
            text = text.replace("[other]", "[target]")
        path = tmp_path / ("east-to-west.toml" if exchanged else "west-to-east.toml")
        path.write_text(text)
        return path

    return write


def grant_documented(sides: dict[str, Side], *, exchanged: bool = False, without: Acl | None = None) -> None:
    for bootstrap, granted in DOCUMENTED:
        name, one = bootstrap.partition("-")[0], granted
        if exchanged:
            swapped = re.sub("west|east", lambda found: OTHER[found[0]], granted.resource_name)
            name, one = OTHER[name], granted._replace(resource_name=swapped)
        if granted != without:
            sides[name].grant(one)


def create_topics(bootstrap: str, values: int = 40) -> None:
    for name, partitions in TOPICS.items():
        Topics(bootstrap).create(partitions, name)
        fill(bootstrap, name, values, partitions=partitions)


def mirror(*arguments: object) -> str:
    """Return the output of a command that succeeds."""
    result = run_command("mirror", *map(str, arguments))
    assert result.returncode == 0, result.stderr
    return result.stdout


def is_copied(file) -> bool:
    found = lags_now(load(file))
    return bool(found) and all(one.lag == 0 for one in found)


def has_positions(side: Side) -> bool:
    return NAME in client(side.open).topic_names()


def read_on(bootstrap: str, *topics: str) -> list[bytes]:
    """Everything that the group reads from where it is, to the ends; it commits, and leaves."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(list(topics))
    values: list[bytes] = []
    ended: set[tuple[str, int]] = set()
    while not ended or len(ended) < len(consumer.assignment()):
        message = consumer.poll(30)
        assert message is not None, "the group reads to the end"
        if message.error():
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            ended.add((message.topic(), message.partition()))
        else:
            values.append(message.value())
    consumer.commit(asynchronous=False)
    consumer.close()
    return values


def values_of(bootstrap: str, topic: str) -> list[bytes]:
    return [one.value or b"" for records in ledger(bootstrap, topic).values() for one in records]


def test_failing_over_and_back_with_the_rights_that_are_documented(sides, file):
    """The steps of the page, in its order."""
    west, east = sides.values()
    grant_documented(sides)
    create_topics(west.open, 200)
    commit(west.open, GROUP, {("orders", 0): 60, ("orders", 1): 80})
    forth = file()
    assert "would create west.orders with 2 partitions" in mirror("check", forth)
    first = Inside(forth)
    with running(first):
        until(lambda: has_positions(east) and is_copied(forth), "everything is copied")
        until(lambda: len(committed(east.open, GROUP, "west.orders")) == 2, "the group is carried over")
        assert first.end(), first.events
    assert not [one for one in first.events if one["event"] == "problem"]

    # Over: producers write to topics of the east, and consumers read both.
    Topics(east.open).create(2, "orders")
    fill(east.open, "orders", 50)
    over = read_on(east.open, "^(west\\.)?orders$")
    from_west = values_of(west.open, "orders")
    unread = set(from_west[60:100] + from_west[180:]) | set(values_of(east.open, "orders"))
    assert set(over) >= unread, "the group skips nothing"
    assert len(over) <= len(unread) + 20, "and repeats few"

    # Back: the other mirror beside the first one.
    grant_documented(sides, exchanged=True)
    back = file(exchanged=True)
    mirrors = [Inside(forth), Inside(back)]
    with running(*mirrors):
        until(lambda: has_positions(west) and is_copied(forth) and is_copied(back), "both are in step")
        fill(east.open, "orders", 10)
        mirror("offsets", forth, "--group", GROUP, "--back", "--execute")
        until(lambda: is_copied(back), "what was written last is copied")
        mirror("offsets", back, "--group", GROUP, "--execute")
        assert all(one.end() for one in mirrors)
    assert values_of(west.open, "east.orders") == values_of(east.open, "orders")
    returned = read_on(west.open, "orders", "east.orders")
    written_last = set(values_of(east.open, "orders")) - set(over)
    assert set(returned) >= written_last, "the group skips nothing on its way back"
    assert len(returned) <= len(written_last) + 20, "and repeats few"


# Rights that are missing


class Told:
    """A mirror in this process, and all that it says."""

    def __init__(self, file) -> None:
        self.said: list[str] = []
        self._run = MirrorRun(load(file), lambda event: self.said.append(json.dumps(event)), upkeep_s=0.2)
        self._thread = threading.Thread(target=self._until_it_ends)

    def _until_it_ends(self) -> None:
        try:
            self._run.run()
        except Exception as error:
            self.said.append(str(error))

    def says(self, pattern: str) -> bool:
        self.said.append(json.dumps(self._run.facts()))
        return any(re.search(pattern, one) for one in self.said)

    def __enter__(self) -> "Told":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._run.stop()
        self._thread.join()
        print(*dict.fromkeys(self.said), sep="\n")
        for partition, progress in self._run.share.progress().items():
            assert progress.state in work.ENDED, f"{partition} is not waited for in vain: {progress}"


def right(kind: Resource, name: str, operation: Operation) -> Acl:
    is_prefix = name.endswith(".")
    return acl(kind, name, operation, Pattern.PREFIXED if is_prefix else Pattern.LITERAL, USER)


ORDERS, COPIES, POSITIONS = (
    lambda operation, name=name: right(Resource.TOPIC, name, operation) for name in ("orders", "west.", NAME)
)
MISSING = {
    ORDERS(Operation.READ): "west has no topic orders yet, or this user has no right to DESCRIBE it",
    ORDERS(Operation.DESCRIBE_CONFIGS): "settings of orders: .*; grant DESCRIBE_CONFIGS on the topic at west",
    right(
        Resource.GROUP, GROUP, Operation.DESCRIBE
    ): f"group {GROUP}: .*; grant DESCRIBE on the group at west",
    COPIES(Operation.CREATE): "cannot create west.orders: .*; grant CREATE on the topic at east",
    COPIES(
        Operation.WRITE
    ): "west.orders-0: TOPIC_AUTHORIZATION_FAILED; grant WRITE on the topic at the target",
    COPIES(Operation.READ): f"group {GROUP}: .*; grant READ on the group and on the topics at east",
    COPIES(Operation.ALTER): "add partitions to west.orders: .*; grant ALTER on the topic at east",
    COPIES(Operation.ALTER_CONFIGS): "settings of west.orders: .*; grant ALTER_CONFIGS on the topic at east",
    POSITIONS(Operation.CREATE): f"cannot create topic {NAME} on the target: .*; grant CREATE",
    POSITIONS(
        Operation.WRITE
    ): f"{NAME}-.: TOPIC_AUTHORIZATION_FAILED; grant WRITE on the topic at the target",
    POSITIONS(Operation.READ): f"{NAME}-.: TOPIC_AUTHORIZATION_FAILED; grant READ on the topic",
    right(
        Resource.TRANSACTIONAL_ID, "odradek-mirror.west.", Operation.WRITE
    ): "TRANSACTIONAL_ID_AUTHORIZATION_FAILED; grant WRITE on transactional ids that begin with odradek-mirror.",
    right(
        Resource.GROUP, "odradek-mirror.west", Operation.READ
    ): "cannot share the work in group odradek-mirror.west: .*; grant READ on the group at the target",
    right(Resource.GROUP, GROUP, Operation.READ): f"group {GROUP}: .*; grant READ on the group at east",
}
LATER = (COPIES(Operation.ALTER), COPIES(Operation.ALTER_CONFIGS), POSITIONS(Operation.READ))


@pytest.mark.parametrize(
    "missing", [pytest.param(one, id=f"{one.operation.name} {one.resource_name}") for one in MISSING]
)
def test_a_right_that_is_missing_is_named(sides, file, missing):
    """Most are needed for the first copy, some only once something has changed."""
    west = sides["west"]
    create_topics(west.open, 8)
    commit(west.open, GROUP, {("orders", 0): 2})
    if missing in LATER:
        grant_documented(sides)
        with Told(file()) as told:
            until(lambda: has_positions(sides["east"]) and is_copied(file()), "everything is copied")
        for one in sides.values():
            one.take_away()
        add_partitions(Access(west.open, {}), "orders", 3)
        alter_resource(Access(west.open, {}), Kind.TOPIC, "orders", {"retention.ms": "86400000"})
        fill(west.open, "orders", 8)
    grant_documented(sides, without=missing)
    with Told(file()) as told:
        until(lambda: told.says(MISSING[missing]), MISSING[missing])


def test_every_right_that_is_documented_is_one_that_is_missed():
    """The rights on topics other than `orders` are alike, and left out."""
    same = ("payments", "shop-")
    assert {one.acl for one in DOCUMENTED if one.acl.resource_name not in same} == set(MISSING)
