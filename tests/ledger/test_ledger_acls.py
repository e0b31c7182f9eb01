"""The rights that docs/SPARK.md names suffice to write exactly once; each that is missing is named, and nothing is
written."""

import itertools
import re
import uuid
from collections.abc import Iterator
from contextlib import closing

import pytest

from odradek.acls.acl import Acl
from odradek.acls.codes import Operation, Pattern, Resource
from odradek.client.cluster import Cluster
from odradek.client.properties import parse_properties
from odradek.client.settings import ProduceSettings
from odradek.errors import KafkaError
from odradek.ledger import topic
from odradek.ledger.protocol import Adoption, Order
from odradek.ledger.topic import NAME, TRANSACTIONAL_ID, Ledger
from odradek.ledger.writer import Writer
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tests.documented_acls import acl, allow, documented, take_all_away
from tests.ledger import program
from tests.ledger.test_ledger_broker import Tagged
from tests.pipeline.lab import wait_until
from tests.security_cluster import configured_broker, guarded_settings, login_of
from tests.spark.committed import committed_of
from tests.support import RunningBroker

USER = "User:ada"
DOCUMENTED = {one.acl for one in documented("SPARK.md", USER)}
_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory) -> Iterator[RunningBroker]:
    with configured_broker(tmp_path_factory.mktemp("broker"), guarded_settings()) as running:
        yield running


@pytest.fixture(scope="module")
def admin(broker) -> Iterator[Cluster]:
    with closing(client_of(broker, "admin")) as cluster:
        wanted = CreateTopicsRequest(topics=[CreatableTopic(program.TOPIC, 2, 1)], timeout_ms=30_000)
        cluster.ask("create a topic", wanted, CreateTopicsResponse)
        yield cluster


@pytest.fixture
def sink(admin, monkeypatch) -> Iterator[str]:
    """A new sink, with a ledger of its own that does not exist yet; ada has no rights but to the topic of its rows."""
    monkeypatch.setattr(topic, "NAME", f"{NAME}-{uuid.uuid4()}")
    yield f"sink-{next(_numbers)}"
    take_all_away(admin, USER)


def client_of(broker: RunningBroker, user: str) -> Cluster:
    settings = {"bootstrap.servers": broker.bootstrap, **login_of(user)}
    return Cluster(parse_properties(settings).client)


ROWS = acl(Resource.TOPIC, program.TOPIC, Operation.WRITE)
IDS = acl(Resource.TRANSACTIONAL_ID, TRANSACTIONAL_ID, Operation.WRITE, Pattern.PREFIXED)
LEDGERS = {
    one: acl(Resource.TOPIC, NAME, one)
    for one in (Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.CREATE)
}


def grant(admin: Cluster, acls: set[Acl]) -> None:
    """In the ledger of the test."""
    allow(
        admin, *(one._replace(resource_name=topic.NAME) if one.resource_name == NAME else one for one in acls)
    )


def problem_of(broker: RunningBroker, sink: str, batch: int = 0) -> str:
    """Why ada cannot write; empty if she has written."""
    adopted: list[Adoption] = []
    with closing(client_of(broker, "ada")) as cluster:
        writer = Writer(cluster, sink, ProduceSettings())
        try:
            writer.write(Order(sink, batch, "f"), Tagged(sink, batch), adopted.append)
        except KafkaError as error:
            return str(error)
    return ""


def rows_of(admin: Cluster, sink: str) -> list[str]:
    found = ((one.value or b"").decode() for one in committed_of(admin, program.TOPIC))
    return [value for value in found if value.startswith(f"{sink}:")]


def test_the_rights_that_are_documented_suffice(broker, admin, sink):
    assert {IDS, *LEDGERS.values()} == DOCUMENTED
    grant(admin, DOCUMENTED | {ROWS})
    wait_until(lambda: not problem_of(broker, sink), lambda: problem_of(broker, sink), 30)
    assert len(rows_of(admin, sink)) == program.ROWS
    entry = Ledger(admin).read(sink)
    assert entry is not None and entry.batch == 0


each_missing = pytest.mark.parametrize(
    ("missing", "wanted"),
    [
        (IDS, f"transactional id {TRANSACTIONAL_ID}.*grant WRITE on the transactional id"),
        (LEDGERS[Operation.CREATE], f"cannot create topic {NAME}.*create it yourself, compacted"),
        (LEDGERS[Operation.READ], f"{NAME}.*grant READ on the topic"),
        (LEDGERS[Operation.WRITE], f"{NAME}.*grant WRITE on the topic"),
        (ROWS, f"{program.TOPIC}-0: TOPIC_AUTHORIZATION_FAILED; grant WRITE on the topic"),
    ],
    ids=["ids", "create", "read", "write", "rows"],
)


@each_missing
def test_a_right_that_is_missing_is_named(broker, admin, sink, missing, wanted):
    if missing != LEDGERS[Operation.CREATE]:
        Ledger(admin).ensure()
    described = acl(Resource.TOPIC, program.TOPIC, Operation.DESCRIBE)
    grant(admin, (DOCUMENTED | {ROWS, described}) - {missing})
    wait_until(
        lambda: re.search(wanted, problem_of(broker, sink)), lambda: problem_of(broker, sink) or "written", 30
    )
    assert rows_of(admin, sink) == []
