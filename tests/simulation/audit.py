"""Compares everything that a node says with what it has promised: topics, all records, committed offsets."""

import asyncio

from odradek.errors import ErrorCode
from odradek.wire.messages.metadata import MetadataRequest
from tests.lives.members import committed_offsets_request
from tests.simulation.connection import Disconnected, Violation
from tests.simulation.group_history import GroupHistory, committed_offsets
from tests.simulation.members import AGAIN
from tests.simulation.play import Client
from tests.simulation.reader import Refused, read_all

TRIES = 100


class Auditor(Client):
    async def audit(self) -> bool:
        """False if the node could not be asked to the end."""
        try:
            await self._check_topics()
            for topic in self.play.topics():
                for partition in list(topic.partitions):
                    try:
                        await read_all(self, partition)
                    except Refused:
                        self._check_refused(topic.is_stable)
            for group in self.play.groups.groups.values():
                await self._check_offsets(group)
        except Disconnected:
            return False
        self.play.count("audits")
        return True

    def _check_refused(self, should_serve: bool) -> None:
        if should_serve and self.play.is_over:
            raise Violation("a partition cannot be read, though all faults are over")

    async def _check_topics(self) -> None:
        before = self.play.logs.counts()
        response = await self.ask(MetadataRequest(topics=None), 12)
        found = {
            topic.name: (topic.topic_id, len(topic.partitions))
            for topic in response.topics
            if not topic.is_internal
        }
        self.play.logs.check_topics(before, found)

    async def _check_offsets(self, group: GroupHistory) -> None:
        for _ in range(TRIES):
            connection = await self.connection()
            sent, acknowledged = self.play.world.now(), group.acknowledged
            (found,) = (await connection.ask(committed_offsets_request(group.name), 9)).groups
            if found.error_code == ErrorCode.NONE:
                offsets = committed_offsets(found)
                group.check(sent, offsets)
                if offsets and acknowledged:
                    self.play.count("commits read back")
                return
            if found.error_code not in AGAIN:
                raise Violation(f"OffsetFetch was answered with {ErrorCode(found.error_code).name}")
            await asyncio.sleep(0.02)
        raise Violation(f"the offsets of {group.name} could not be read in {TRIES} tries")
