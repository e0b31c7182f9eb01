"""Three nodes whose users change while nodes lose power and links are cut: what is acknowledged is in force everywhere,
and whoever does not exist has the same challenge on every node, before and after."""

import asyncio
from random import Random
from typing import Any

import pytest

from odradek.errors import ErrorCode
from odradek.metadata.image import DECOYS, MetadataImage
from odradek.security.credentials import MIN_ITERATIONS, SHA_256
from odradek.security.decoys import SALT_SIZE, new_salt
from odradek.services.cluster.authentication import ScramCredentials
from odradek.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from tests.cluster.clusters import Cluster, new_cluster
from tests.cluster.test_cluster_acls import trouble
from tests.simulation.connection import Disconnected

USERS = ("ada", "bob", "eve")
CHANGES = 30
NOBODY = "nobody"


class Operator:
    """Sets and removes passwords, one after the other, each until it is acknowledged. The iterations of a credential
    tell which one it is."""

    def __init__(self, cluster: Cluster, rng: Random) -> None:
        self._cluster, self._rng = cluster, rng
        self._passwords = 0
        self.iterations: dict[str, int] = {}  # of those who have a password

    async def change(self) -> None:
        user = self._rng.choice(USERS)
        if user in self.iterations and self._rng.random() < 0.4:
            await self._until_told(AlterUserScramCredentialsRequest([ScramCredentialDeletion(user, 1)], []))
            del self.iterations[user]
            return
        self._passwords += 1
        iterations = MIN_ITERATIONS + self._passwords
        password = ScramCredentialUpsertion(
            user, SHA_256.code, iterations, new_salt(self._rng.randbytes(SALT_SIZE)), self._rng.randbytes(32)
        )
        await self._until_told(AlterUserScramCredentialsRequest([], [password]))
        self.iterations[user] = iterations

    async def _until_told(self, request: AlterUserScramCredentialsRequest) -> None:
        """The first attempt may have succeeded without a response: then a removed user is not there any more."""
        done = {ErrorCode.NONE, ErrorCode.RESOURCE_NOT_FOUND}
        while True:
            try:
                response = await self._ask(self._rng.choice(list(self._cluster.machines)), request)
            except (Disconnected, OSError):
                pass
            else:
                if response.results[0].error_code in done:
                    return
            await asyncio.sleep(0.1)

    async def _ask(self, node_id: int, request: Any) -> Any:
        connection = await self._cluster.world.connect("operator", self._cluster.machines[node_id])
        try:
            return await connection.ask(request, 0, seconds=60.0)
        finally:
            connection.close()


def users_in(image: MetadataImage) -> dict[str, int]:
    return {
        user.name: credential.iterations for user, credential in image.credentials.items() if user != DECOYS
    }


def challenge_of(image: MetadataImage) -> bytes:
    found, decoy = ScramCredentials(lambda: image).find(SHA_256, NOBODY)
    assert found is None
    return decoy.salt


@pytest.mark.parametrize("seed", range(3))
def test_users_that_were_acknowledged_are_everywhere(seed: int) -> None:
    world, cluster = new_cluster(seed)
    rng = world.new_rng()

    async def main() -> None:
        await cluster.start()
        operator = Operator(cluster, rng)
        async with asyncio.timeout(300):
            await operator.change()
        first = challenge_of(cluster.image(await a_node_with_users(cluster)))
        for _ in range(CHANGES):
            await trouble(cluster, rng)
            async with asyncio.timeout(300):
                await operator.change()
        world.network.heal_all()
        images = [cluster.image(node_id) for node_id in cluster.machines]
        async with asyncio.timeout(300):
            while any(users_in(image) != operator.iterations for image in images):
                await asyncio.sleep(0.05)
                images = [cluster.image(node_id) for node_id in cluster.machines]
        assert {challenge_of(image) for image in images} == {first}

    world.run(main())


async def a_node_with_users(cluster: Cluster) -> int:
    while True:
        for node_id in cluster.machines:
            if DECOYS in cluster.image(node_id).credentials:
                return node_id
        await asyncio.sleep(0.05)
