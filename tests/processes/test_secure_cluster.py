"""Three nodes: certificates between controllers, SCRAM over TLS between brokers and for clients."""

import uuid
from contextlib import ExitStack

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.cli.certificates import issue, new_authority
from odradek.security.jaas import SCRAM
from tests.processes.nodes import free_ports
from tests.security_cluster import ConfiguredBroker
from tests.support import run_command

NODES = (1, 2, 3)
PASSWORD = "between-nodes"


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    home = tmp_path_factory.mktemp("secure")
    new_authority(home)
    (home / "password").write_text(PASSWORD)
    ports = dict(zip(NODES, zip(*[iter(free_ports(2 * len(NODES)))] * 2, strict=True), strict=True))
    voters = {node: run_command("random-uuid").stdout.strip() for node in NODES}
    cluster_id = run_command("random-uuid").stdout.strip()
    with ExitStack() as stack:
        running = []
        for node in NODES:
            issue(home, f"node-{node}", ["localhost"])
            broker = ConfiguredBroker(home / f"node{node}", settings_of(node, home, ports))
            listed = ",".join(f"{one}@localhost:{ports[one][1]}:{voters[one]}" for one in NODES)
            user = f"SCRAM-SHA-512=[name=node,password-file={home}/password]"
            done = run_command(
                *("format", "-c", str(broker.file), "--data-dir", str(broker.data_dir), "-t", cluster_id),
                *("-I", listed, "--add-scram", user),
            )
            assert done.returncode == 0, done.stderr
            running.append(broker)
        for broker in running:
            broker.launch()
            stack.callback(broker.kill)
        for broker in running:
            broker._first_line()
        running[0].bootstrap = ",".join(f"localhost:{ports[node][0]}" for node in NODES)
        running[0].home = home
        yield running


def settings_of(node, home, ports):
    clients, controllers = ports[node]
    return {
        "node.id": str(node),
        "process.roles": "broker,controller",
        "listeners": f"CLIENTS://localhost:{clients},CONTROLLER://localhost:{controllers}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": ",".join(f"localhost:{ports[one][1]}" for one in NODES),
        "listener.security.protocol.map": "CLIENTS:SASL_SSL,CONTROLLER:SSL",
        "inter.broker.listener.name": "CLIENTS",
        "listener.name.controller.ssl.client.auth": "required",
        "ssl.keystore.location": f"{home}/node-{node}.pem",
        "ssl.truststore.location": f"{home}/ca.pem",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        "listener.name.clients.scram-sha-512.sasl.jaas.config": (
            f'{SCRAM} required username="node" password="{PASSWORD}";'
        ),
        "offsets.topic.replication.factor": "3",
        "offsets.topic.num.partitions": "1",
        "default.replication.factor": "3",
    }


def login(nodes):
    return {
        "bootstrap.servers": nodes[0].bootstrap,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "node",
        "sasl.password": PASSWORD,
        "ssl.ca.location": f"{nodes[0].home}/ca.pem",
    }


def test_records_are_replicated_and_read_and_outlive_a_killed_node(nodes):
    topic = f"t-{uuid.uuid4().hex[:8]}"
    settings = login(nodes)
    admin = AdminClient(settings)
    admin.create_topics([NewTopic(topic, 3, 3)])[topic].result(60)
    producer = Producer({**settings, "acks": "all"})
    for number in range(100):
        producer.produce(topic, str(number))
    assert producer.flush(60) == 0
    nodes[2].kill()
    for number in range(100, 200):
        producer.produce(topic, str(number))
    assert producer.flush(120) == 0
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found = set()
    while len(found) < 200:
        message = consumer.poll(60)
        assert message is not None
        if message.error() is None:
            found.add(int(message.value()))
    consumer.close()
