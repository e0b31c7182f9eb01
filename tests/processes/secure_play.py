"""Faults of protected nodes under load, and what must come of them: no record is lost, no write fails.

A node is killed, restarted or paused; all nodes are killed; a certificate is replaced; the password of a user changes,
and is needed by whoever connects from then on; what a user may do changes, on all nodes. The load has a user that may
do what its ACLs allow, and nothing else.
"""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

from odradek.client.cluster import borrow_cluster
from odradek.testing import Login
from tests.processes.nodes import TIMEOUT_S, until
from tests.processes.record_faults import (
    FINAL_READ_TIMEOUT_S,
    PARTITIONS,
    SETTINGS,
    TOPIC,
    await_all_committed,
    check_committed,
    ends_of,
)
from tests.processes.record_ledger import RecordLedger
from tests.processes.record_load import GROUPS, RecordLoad, read_all
from tests.processes.secure_nodes import SecureNode, SecureNodes, secure_nodes
from tests.support import run_command

RECORDS_BETWEEN = 5
Fault = Callable[["SecureStage"], None]


class SecureStage:
    def __init__(
        self, nodes: SecureNodes, ledger: RecordLedger, load: RecordLoad, rng: random.Random
    ) -> None:
        self.nodes, self.ledger, self.load, self.rng = nodes, ledger, load, rng
        self.passwords = self.guests = 0

    def node(self) -> SecureNode:
        return self.rng.choice(list(self.nodes))

    def await_records(self) -> None:
        self.ledger.wait_for(RECORDS_BETWEEN, TIMEOUT_S)
        self.load.check()


def kill(stage: SecureStage) -> None:
    node = stage.node()
    node.kill()
    stage.await_records()
    node.start()


def restart(stage: SecureStage) -> None:
    node = stage.node()
    assert node.stop() == 0, node.log
    stage.await_records()
    node.start()


def pause(stage: SecureStage) -> None:
    node = stage.node()
    node.pause()
    stage.await_records()
    node.resume()


def kill_all(stage: SecureStage) -> None:
    for node in stage.nodes:
        node.kill()
    stage.nodes.start()


def renew_certificate(stage: SecureStage) -> None:
    """It is used for new connections; those that there are stay."""
    node = stage.node()
    seen = node.log.count("uses new certificates")
    stage.nodes.renew(node)
    until(lambda: node.log.count("uses new certificates") > seen, "the new certificate is used")
    stage.await_records()


def change_password(stage: SecureStage) -> None:
    """A client that connects anew needs the new one, and one that is connected stays."""
    stage.passwords += 1
    user = f"user-{stage.passwords}"
    before = stage.nodes.rotate(user, "first")
    after = stage.nodes.rotate(user, "second")
    until(lambda: lets_in(stage.nodes, after), "the new password is known")
    until(lambda: not lets_in(stage.nodes, before), "the old password is refused")
    stage.await_records()


def lets_in(nodes: SecureNodes, login: Login) -> bool:
    file = str(nodes.client_file(login))
    done = run_command("topic", "list", "-b", nodes.bootstrap, "--command-config", file)
    return done.returncode == 0


def change_access(stage: SecureStage) -> None:
    """A user is allowed to see the topic, and then it is denied: on each node, though a node was just killed."""
    stage.guests += 1
    login = stage.nodes.rotate(f"guest-{stage.guests}", "password")
    who, what = f"User:{login.username}", ("--operation", "Describe", "--topic", TOPIC)
    node = stage.node()
    node.kill()
    stage.nodes.acl("add", "--allow-principal", who, *what)
    node.start()
    for each in stage.nodes:
        until(lambda each=each: sees(stage.nodes, each, login), "what was allowed is known")
    stage.nodes.acl("add", "--deny-principal", who, *what)
    for each in stage.nodes:
        until(lambda each=each: not sees(stage.nodes, each, login), "what was denied is known")
    stage.await_records()


def sees(nodes: SecureNodes, node: SecureNode, login: Login) -> bool:
    file = str(nodes.client_file(login))
    done = run_command("topic", "list", "-b", nodes.address_of(node.id), "--command-config", file)
    assert done.returncode == 0, done.stderr
    return TOPIC in done.stdout


FAULTS: tuple[Fault, ...] = (
    *(kill, restart, pause, kill_all),
    *(renew_certificate, change_password, change_access),
)


def play(home: Path, faults: Iterator[Fault], rng: random.Random) -> RecordLedger:
    """Protected nodes with records, through these faults."""
    ledger = RecordLedger(PARTITIONS)
    with secure_nodes(home, **SETTINGS) as nodes:
        settings = nodes.login().client_settings(nodes.bootstrap)
        made = run_command(
            *("topic", "create", TOPIC, "--partitions", str(PARTITIONS), "--replication-factor", "3"),
            *("-b", nodes.bootstrap, "--command-config", str(nodes.client_file(nodes.login()))),
        )
        assert made.returncode == 0, made.stderr
        login = nodes.rotate("load", "load-password")
        nodes.acl("add", "--allow-principal", "User:load", "--producer", "--topic", TOPIC)
        nodes.acl("add", "--allow-principal", "User:load", "--consumer", "--topic", TOPIC, "--group", "*")
        with borrow_cluster(settings) as own, RecordLoad(nodes.bootstrap, TOPIC, ledger, login) as load:
            until(lambda: set(ledger.groups) == set(GROUPS), "every group has committed")
            stage = SecureStage(nodes, ledger, load, rng)
            stage.await_records()
            for fault in faults:
                ledger.phase = fault.__name__
                fault(stage)
                stage.await_records()
                check_committed(own, ledger)
            load.stop_producing()
            await_all_committed(own, ledger)
        ends = {partition.partition: end for partition, end in ends_of(own, TOPIC).items()}
        records = read_all(nodes.bootstrap, TOPIC, ends, FINAL_READ_TIMEOUT_S, login)
        ledger.check_records(records)
        ledger.check_groups(records)
        assert not ledger.doubts, f"a write failed: {ledger.doubts[:5]}"
    return ledger
