"""`odradek acl`, and real clients, on a broker with Kafka's authorizer."""

import json
import uuid

import pytest

from odradek.config.authorizer import STANDARD_AUTHORIZER
from tests.security_cluster import configured_broker, users

PASSWORDS = {"admin": "admin-secret", "ada": "ada-secret"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    settings = {
        "listeners": "SASL_PLAINTEXT://localhost:0",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": users(PASSWORDS),
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:admin",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "1",
    }
    directory = tmp_path_factory.mktemp("acls")
    with configured_broker(directory, settings) as running:
        running.logins = {}
        for user, password in PASSWORDS.items():
            file = directory / f"{user}.properties"
            file.write_text(
                f"bootstrap.servers={running.bootstrap}\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
                f'sasl.jaas.config=Login required username="{user}" password="{password}";\n'
            )
            running.logins[user] = ["--command-config", str(file)]
        yield running


@pytest.fixture
def acl(broker, run_here):
    def run(*arguments, who="admin", status=0):
        done = run_here("acl", *arguments, *broker.logins[who])
        assert done.returncode == status, (done.stdout, done.stderr)
        return done

    yield run
    run("remove", "--principal", "User:ada", "--yes")


def listed(acl, *arguments):
    return json.loads(acl("list", "--json", *arguments).stdout)


def operations(acl, *arguments):
    return {(each["resource_type"], each["operation"]) for each in listed(acl, *arguments)}


def test_acls_are_added_listed_and_removed(acl, topic):
    added = acl("add", "--allow-principal", "User:ada", "--operation", "Read", "--topic", topic)
    assert added.stdout == f"ALLOW User:ada from * to READ TOPIC {topic} (LITERAL)\n"
    assert listed(acl, "--topic", topic) == [
        {
            "resource_type": "TOPIC",
            "resource_name": topic,
            "pattern_type": "LITERAL",
            "principal": "User:ada",
            "host": "*",
            "operation": "READ",
            "permission": "ALLOW",
        }
    ]
    acl("add", "--deny-principal", "User:ada", "--deny-host", "10.0.0.1", "--topic", topic[:8],
        "--resource-pattern-type", "prefixed")  # fmt: skip
    assert len(listed(acl, "--topic", topic)) == 1
    assert len(listed(acl, "--topic", topic, "--resource-pattern-type", "match")) == 2
    assert acl("list", "--principal", "User:ada").stdout.splitlines()[0].split()[:2] == ["RESOURCE", "NAME"]
    gone = acl("remove", "--deny-principal", "User:ada", "--topic", topic[:8], "--yes")
    assert gone.stdout.endswith("Removed 1 ACL.\n")
    assert operations(acl, "--principal", "User:ada") == {("TOPIC", "READ")}
    assert acl("remove", "--topic", "nothing", "--yes").stdout == "No ACL matches.\n"


def test_what_producers_and_consumers_need(acl, topic):
    acl("add", "--allow-principal", "User:ada", "--producer", "--topic", topic, "--transactional-id", "tx")
    assert operations(acl, "--principal", "User:ada") == {
        *(("TOPIC", "WRITE"), ("TOPIC", "DESCRIBE"), ("TOPIC", "CREATE")),
        *(("TRANSACTIONAL_ID", "WRITE"), ("TRANSACTIONAL_ID", "DESCRIBE")),
    }
    acl("add", "--allow-principal", "User:ada", "--consumer", "--topic", topic, "--group", "*")
    assert {("TOPIC", "READ"), ("GROUP", "READ")} <= operations(acl, "--principal", "User:ada")
    acl("remove", "--producer", "--topic", topic, "--transactional-id", "tx", "--yes")
    assert operations(acl, "--principal", "User:ada") == {("TOPIC", "READ"), ("GROUP", "READ")}


@pytest.mark.parametrize(
    "arguments",
    [
        ["add", "--topic", "t"],
        ["add", "--allow-principal", "ada", "--topic", "t"],
        ["add", "--allow-principal", "User:ada"],
        ["add", "--allow-principal", "User:ada", "--topic", "t", "--operation", "Fly"],
        ["add", "--allow-principal", "User:ada", "--group", "g", "--operation", "Write"],
        ["add", "--allow-principal", "User:ada", "--consumer", "--topic", "t"],
        ["add", "--deny-principal", "User:ada", "--producer", "--topic", "t"],
        ["remove", "--yes"],
        ["explain", "User:ada", "Read", "table:t"],
    ],
)
def test_bad_usage(acl, arguments):
    acl(*arguments, status=2)


def test_explain_says_which_rule_decides(acl, topic):
    def explained(*question, status=0, **more):
        return json.loads(acl("explain", *question, "--json", status=status).stdout)

    assert explained("User:ada", "Read", f"topic:{topic}", status=1)["reason"] == "this resource has no ACL"
    assert "super.users" in explained("User:admin", "Alter", "cluster")["reason"]
    acl("add", "--allow-principal", "User:ada", "--operation", "Write", "--topic", topic)
    told = acl("explain", "User:ada", "Describe", f"topic:{topic}").stdout
    assert told == (
        f"User:ada may DESCRIBE topic:{topic}: decided by: ALLOW User:ada from * to WRITE TOPIC {topic} (LITERAL), "
        "which implies DESCRIBE.\n"
    )
    refused = explained("User:ada", "Read", f"topic:{topic}", status=1)
    assert refused["reason"] == "none of the 1 ACLs of this resource allows it" and refused["acl"] is None
    acl("add", "--deny-principal", "User:ada", "--deny-host", "10.0.0.0/8", "--topic", topic)
    denied = explained("User:ada", "Write", f"topic:{topic}", "--host", "10.1.2.3", status=1)
    assert denied["acl"]["permission"] == "DENY" and "a denial wins" in denied["reason"]
    assert explained("User:ada", "Write", f"topic:{topic}", "--host", "127.0.0.1")["is_allowed"]


def test_a_user_without_rights_is_told_so(acl, broker, run_here, topic):
    assert "authori" in acl("list", who="ada", status=1).stderr.lower()
    refused = run_here("produce", topic, *broker.logins["ada"], stdin="hello\n")
    assert refused.returncode == 1
    acl("add", "--allow-principal", "User:ada", "--producer", "--topic", topic)
    assert run_here("produce", topic, *broker.logins["ada"], stdin="hello\n").returncode == 0
    assert run_here("consume", "--from-beginning", "-n", "1", topic, *broker.logins["ada"]).returncode == 1
    acl("add", "--allow-principal", "User:ada", "--consumer", "--topic", topic, "--group", "*")
    read = run_here("consume", "--from-beginning", "-n", "1", topic, *broker.logins["ada"])
    assert (read.returncode, read.stdout) == (0, "hello\n"), read.stderr


# --- real clients ---


def librdkafka(broker, user):
    return {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": PASSWORDS[user],
    }


def test_confluents_admin_client(broker, topic):
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import (
        AclBinding,
        AclBindingFilter,
        AclOperation,
        AclPermissionType,
        AdminClient,
        ResourcePatternType,
        ResourceType,
    )

    admin = AdminClient(librdkafka(broker, "admin"))
    binding = AclBinding(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.PREFIXED,
        "User:ada",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    for future in admin.create_acls([binding], request_timeout=30).values():
        assert future.result() is None
    every = AclBindingFilter(
        *(ResourceType.TOPIC, topic, ResourcePatternType.ANY, None, None),
        *(AclOperation.ANY, AclPermissionType.ANY),
    )
    assert admin.describe_acls(every, request_timeout=30).result() == [binding]
    (deleted,) = admin.delete_acls([every], request_timeout=30).values()
    assert deleted.result() == [binding]
    assert admin.describe_acls(every, request_timeout=30).result() == []
    ada = AdminClient(librdkafka(broker, "ada"))
    assert ada.describe_acls(every, request_timeout=30).result() == [], "librdkafka drops the error"
    with pytest.raises(KafkaException) as refusal:
        next(iter(ada.create_acls([binding], request_timeout=30).values())).result()
    assert refusal.value.args[0].name() == "CLUSTER_AUTHORIZATION_FAILED"


def test_kafka_pythons_admin_client(broker, topic):
    kafka = pytest.importorskip("kafka.admin")
    admin = kafka.KafkaAdminClient(
        bootstrap_servers=broker.bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_plain_username="admin",
        sasl_plain_password=PASSWORDS["admin"],
    )
    try:
        pattern = kafka.ResourcePattern(kafka.ResourceType.TOPIC, topic)
        one = kafka.ACL("User:ada", "*", kafka.ACLOperation.READ, kafka.ACLPermissionType.ALLOW, pattern)
        assert admin.create_acls([one])["succeeded"] == [one]
        wanted = kafka.ACLFilter(
            "User:ada",
            "*",
            kafka.ACLOperation.ANY,
            kafka.ACLPermissionType.ANY,
            kafka.ResourcePatternFilter(kafka.ResourceType.TOPIC, topic, kafka.ACLResourcePatternType.ANY),
        )
        found, _ = admin.describe_acls(wanted)
        assert found == [one]
        ((_, deleted, _),) = admin.delete_acls([wanted])
        assert deleted == [one]
    finally:
        admin.close()


def test_a_transactional_producer_and_a_consumer(broker, topic, acl):
    from confluent_kafka import Consumer, KafkaException, Producer

    name = f"tx-{uuid.uuid4().hex[:8]}"
    producer = Producer({**librdkafka(broker, "ada"), "transactional.id": name})
    with pytest.raises(KafkaException) as refusal:
        producer.init_transactions(30)
    assert refusal.value.args[0].name() == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
    acl("add", "--allow-principal", "User:ada", "--producer", "--topic", topic, "--transactional-id", name)
    acl("add", "--allow-principal", "User:ada", "--consumer", "--topic", topic, "--group", "g")
    producer = Producer({**librdkafka(broker, "ada"), "transactional.id": name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"hello")
    producer.commit_transaction(30)
    consumer = Consumer(
        {**librdkafka(broker, "ada"), "group.id": "g", "auto.offset.reset": "earliest"},
    )
    try:
        consumer.subscribe([topic])
        message = None
        for _ in range(60):
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                break
        assert message is not None and message.value() == b"hello"
    finally:
        consumer.close()
