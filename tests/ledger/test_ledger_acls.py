"""The rights that docs/SPARK.md names suffice to write exactly once; each that is missing is named, and nothing is
written."""

import argparse
import itertools
import re
import shlex
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from odradek.acls.acl import Acl
from odradek.acls.codes import Operation, Pattern, Permission, Resource
from odradek.client.cluster import Cluster
from odradek.client.properties import parse_properties
from odradek.client.settings import ProduceSettings
from odradek.config.authorizer import STANDARD_AUTHORIZER
from odradek.errors import KafkaError
from odradek.ledger import topic
from odradek.ledger.protocol import Adoption, Order
from odradek.ledger.topic import NAME, TRANSACTIONAL_ID, Ledger
from odradek.ledger.writer import Writer
from odradek.security.jaas import PLAIN
from odradek.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from odradek.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from tests.ledger import program
from tests.ledger.test_ledger_broker import Tagged
from tests.pipeline.lab import wait_until
from tests.security_cluster import PASSWORDS, configured_broker, users
from tests.spark.committed import committed_of
from tests.support import RunningBroker

DOCS = Path(__file__).parent.parent.parent / "docs" / "SPARK.md"
USER = "User:ada"
ALL_OF_USER = DeleteAclsFilter(1, None, 1, USER, None, 1, 1)
_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory) -> Iterator[RunningBroker]:
    settings = {
        "listeners": "SASL_PLAINTEXT://localhost:0",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": users(),
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:admin",
    }
    with configured_broker(tmp_path_factory.mktemp("broker"), settings) as running:
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
    admin.ask("delete ACLs", DeleteAclsRequest([ALL_OF_USER]), DeleteAclsResponse)


def client_of(broker: RunningBroker, user: str) -> Cluster:
    login = f'{PLAIN} required username="{user}" password="{PASSWORDS[user]}";'
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": login,
    }
    return Cluster(parse_properties(settings).client)


def documented() -> set[Acl]:
    """What the commands in the documentation grant."""
    parser = argparse.ArgumentParser()
    for name in ("--bootstrap-server", "--allow-principal", "--topic", "--transactional-id"):
        parser.add_argument(name)
    parser.add_argument("--resource-pattern-type", type=str.upper, default="LITERAL")
    parser.add_argument("--operation", action="append", type=str.upper)
    parser.add_argument("--add", action="store_true")
    lines = DOCS.read_text().replace("\\\n", " ").splitlines()
    found = set()
    for line in lines:
        if line.startswith("kafka-acls"):
            given = parser.parse_args(shlex.split(line)[1:])
            kind = Resource.TRANSACTIONAL_ID if given.transactional_id else Resource.TOPIC
            name, pattern = given.transactional_id or given.topic, Pattern[given.resource_pattern_type]
            found |= {acl(kind, name, Operation[one], pattern) for one in given.operation}
    return found


def acl(kind: Resource, name: str, operation: Operation, pattern: Pattern = Pattern.LITERAL) -> Acl:
    return Acl(kind, name, pattern, USER, "*", operation, Permission.ALLOW)


ROWS = acl(Resource.TOPIC, program.TOPIC, Operation.WRITE)
IDS = acl(Resource.TRANSACTIONAL_ID, TRANSACTIONAL_ID, Operation.WRITE, Pattern.PREFIXED)
LEDGERS = {
    one: acl(Resource.TOPIC, NAME, one)
    for one in (Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.CREATE)
}


def allow(admin: Cluster, acls: set[Acl]) -> None:
    named = [one._replace(resource_name=topic.NAME) if one.resource_name == NAME else one for one in acls]
    request = CreateAclsRequest([AclCreation(*one) for one in named])
    response = admin.ask("create ACLs", request, CreateAclsResponse)
    assert not any(one.error_code for one in response.results), response


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
    assert documented() == {IDS, *LEDGERS.values()}
    allow(admin, documented() | {ROWS})
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
    allow(admin, (documented() | {ROWS, described}) - {missing})
    wait_until(
        lambda: re.search(wanted, problem_of(broker, sink)), lambda: problem_of(broker, sink) or "written", 30
    )
    assert rows_of(admin, sink) == []
