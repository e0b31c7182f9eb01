"""Three nodes with ACLs that change, while nodes lose power and links are cut: what is acknowledged is in force.

Clients and nodes have the names of their machines for principals: the simulated network has no logins.
"""

import asyncio
from typing import Any

import pytest

from odradek.acls.acl import Acl
from odradek.acls.codes import Operation, Resource
from odradek.broker.protection import Protection
from odradek.config.authorizer import STANDARD_AUTHORIZER
from odradek.errors import ErrorCode
from odradek.model import Caller, Principal
from odradek.serving.session import Session
from odradek.wire.messages.create_acls import AclCreation, CreateAclsRequest
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from odradek.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.acls import reference
from tests.cluster.clusters import Cluster, new_cluster
from tests.simulation.connection import Disconnected

OPERATOR, CLIENTS = "operator", ("alice", "bob")
TOPICS = ("a", "ab", "abc", "b")
CHANGES = 40
SETTINGS = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": ";".join(f"User:{name}" for name in (OPERATOR, "node1", "node2", "node3")),
}


def by_machine(caller: Caller, certificate: bytes | None = None) -> Session:
    """Takes the name of a machine for the user that has logged in."""
    return Session(caller._replace(principal=Principal("User", caller.host)))


@pytest.fixture(autouse=True)
def names_are_principals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Protection, "new_session_of", lambda self, config, image: by_machine)


def an_acl(rng: Any) -> Acl:
    return Acl(
        Resource.TOPIC,
        rng.choice((*TOPICS, "*")),
        rng.choice((3, 4)),
        rng.choice(("User:alice", "User:bob", "User:*")),
        "*",
        rng.choice((Operation.DESCRIBE, Operation.READ, Operation.ALL)),
        rng.choice((2, 3, 3)),
    )


async def visible(cluster: Cluster, node_id: int, client: str) -> tuple[set[str], set[str]]:
    """The topics that a node shows to a client who names them, and to one who lists them."""
    asked = MetadataRequest([MetadataRequestTopic(name=name) for name in TOPICS], False)
    named = await cluster.ask(node_id, asked, 12, client)
    codes = {topic.name: topic.error_code for topic in named.topics}
    assert set(codes.values()) <= {0, ErrorCode.TOPIC_AUTHORIZATION_FAILED}, codes
    listed = await cluster.ask(node_id, MetadataRequest(None, False), 12, client)
    return {name for name, code in codes.items() if not code}, {topic.name for topic in listed.topics}


def expected(acls: set[Acl], client: str) -> tuple[set[str], set[str]]:
    seen = {
        name
        for name in TOPICS
        if reference.may(acls, f"User:{client}", client, Operation.DESCRIBE, Resource.TOPIC, name)
    }
    return seen, seen


def acls_at(cluster: Cluster, node_id: int) -> set[Acl]:
    return set(cluster.image(node_id).acls.values()) if cluster.machines[node_id].is_on else set()


async def check_node(cluster: Cluster, node_id: int, client: str) -> None:
    """A node decides by what it has applied. (One that cannot reach the controller has not applied the last change.)"""
    before = acls_at(cluster, node_id)
    try:
        found = await visible(cluster, node_id, client)
    except (Disconnected, OSError):
        return
    if acls_at(cluster, node_id) == before:
        assert found == expected(before, client)


class Operator:
    """Changes ACLs, one after the other, each until it is acknowledged."""

    def __init__(self, cluster: Cluster, rng: Any) -> None:
        self._cluster, self._rng = cluster, rng
        self.acls: set[Acl] = set()

    async def change(self) -> int:
        """Returns the node that has acknowledged it."""
        acl = an_acl(self._rng)
        request: Any = CreateAclsRequest([AclCreation(*acl)])
        changed = self.acls | {acl}
        if self.acls and self._rng.random() < 0.4:
            acl = self._rng.choice(sorted(self.acls))
            request, changed = DeleteAclsRequest([DeleteAclsFilter(*acl)]), self.acls - {acl}
        while True:
            node_id = self._rng.choice(list(self._cluster.machines))
            try:
                response = await self._ask(node_id, request)
            except (Disconnected, OSError):
                await asyncio.sleep(0.1)
                continue
            results = response.results if hasattr(response, "results") else response.filter_results
            if not results[0].error_code:
                self.acls = changed
                return node_id
            assert results[0].error_code != ErrorCode.CLUSTER_AUTHORIZATION_FAILED, (
                "a node's principal is lost"
            )
            await asyncio.sleep(0.1)

    async def _ask(self, node_id: int, request: Any) -> Any:
        """Ask with patience: a broker that cannot reach the controller tries for 30 s."""
        machine = self._cluster.machines[node_id]
        connection = await self._cluster.world.connect(OPERATOR, machine)
        try:
            return await connection.ask(request, 3, seconds=60.0)
        finally:
            connection.close()


async def trouble(cluster: Cluster, rng: Any) -> None:
    world = cluster.world
    world.network.heal_all()  # one thing at a time: a majority is there, and whoever starts finds it
    chance = rng.random()
    node_id = rng.choice(list(cluster.machines))
    others = [other for other in cluster.machines if other != node_id]
    if chance < 0.15:
        cluster.machines[node_id].cut_power(world.new_rng())
        await asyncio.sleep(rng.random() * 3)
        await cluster.machines[node_id].start()
    elif chance < 0.3:
        world.network.cut_both_ways(f"node{node_id}", f"node{rng.choice(others)}")


@pytest.mark.parametrize("seed", range(3))
def test_what_was_acknowledged_is_in_force(seed: int) -> None:
    world, cluster = new_cluster(seed, settings=SETTINGS)
    rng = world.new_rng()

    async def main() -> None:
        await cluster.start()
        created = [CreatableTopic(name, 1, 1) for name in TOPICS]
        response = await cluster.ask(1, CreateTopicsRequest(created), 7, OPERATOR)
        assert [topic.error_code for topic in response.topics] == [0] * len(TOPICS)
        refused = await cluster.ask(2, CreateTopicsRequest(created), 7, "alice")
        assert {topic.error_code for topic in refused.topics} == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        operator = Operator(cluster, rng)
        for _ in range(CHANGES):
            await trouble(cluster, rng)
            async with asyncio.timeout(300):
                told_by = await operator.change()
            for client in CLIENTS:
                await check_node(cluster, told_by, client)
        world.network.heal_all()
        async with asyncio.timeout(300):
            while any(
                set(cluster.image(node_id).acls.values()) != operator.acls for node_id in cluster.machines
            ):
                await asyncio.sleep(0.05)
        for node_id in cluster.machines:
            for client in CLIENTS:
                assert await visible(cluster, node_id, client) == expected(operator.acls, client)

    world.run(main())


def test_a_change_is_in_force_on_all_brokers_within_a_second() -> None:
    world, cluster = new_cluster(5, settings=SETTINGS)
    acl = Acl(Resource.TOPIC, "a", 3, "User:alice", "*", Operation.DESCRIBE, 3)

    async def codes() -> set[int]:
        asked = ListOffsetsRequest(topics=[ListOffsetsTopic("a", [ListOffsetsPartition(0, timestamp=-1)])])
        found = set()
        for node_id in cluster.machines:
            response = await cluster.ask(node_id, asked, 10, "alice")
            found.add(response.topics[0].partitions[0].error_code)
        return found

    async def main() -> None:
        await cluster.start()
        await cluster.ask(1, CreateTopicsRequest([CreatableTopic("a", 1, 3)]), 7, OPERATOR)
        denied = {int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)}
        assert await codes() == denied
        await cluster.ask(1, CreateAclsRequest([AclCreation(*acl)]), 3, OPERATOR)
        await asyncio.sleep(1)
        assert not await codes() & denied
        await cluster.ask(2, DeleteAclsRequest([DeleteAclsFilter(*acl)]), 3, OPERATOR)
        await asyncio.sleep(1)
        assert await codes() == denied

    world.run(main())
