"""Tests of what a leader proposes to the controller, and proposes again when nobody responds."""

import asyncio
import errno
from typing import Any, cast
from uuid import UUID

import pytest

from odradek.errors import ErrorCode
from odradek.host.simulated import VirtualLoop
from odradek.metadata.image import Broker, MetadataImage, Topic
from odradek.replication.leader import Leader
from odradek.replication.replicas import Replicas
from odradek.services.cluster.metadata import BrokerMetadata
from odradek.services.partitions.isr import InSyncReplicas
from odradek.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionDataInResponse,
    TopicDataInResponse,
)
from tests.replication.fakes import NAME, NODE, FakeLog, lead, registration

FOLLOWER = 2


class FakeMetadata:
    """A controller that always says the same: at first that it is none."""

    def __init__(self) -> None:
        self.error = ErrorCode.NOT_CONTROLLER
        topic = Topic(NAME.topic, UUID(int=7), {0: registration(replicas=(NODE, FOLLOWER))})
        brokers = {
            id: Broker(id, epoch, UUID(int=id), (), None, False, False, ())
            for id, epoch in ((NODE, 10), (FOLLOWER, 20))
        }
        self.image = MetadataImage("c", topics={NAME.topic: topic}, brokers=brokers)
        self.asked: list[AlterPartitionRequest] = []

    async def ask(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        self.asked.append(request)
        if self.error is ErrorCode.NOT_CONTROLLER:
            return AlterPartitionResponse(error_code=self.error)
        responses = [PartitionDataInResponse(0, self.error)]
        return AlterPartitionResponse(topics=[TopicDataInResponse(UUID(int=7), responses)])


def members(request: AlterPartitionRequest) -> list[tuple[int, int]]:
    (partition,) = request.topics[0].partitions
    return [(member.broker_id, member.broker_epoch) for member in partition.new_isr_with_epochs]


def catch_up(metadata: FakeMetadata, *leaders: Leader) -> "asyncio.Task[None]":
    """Lets the follower catch up with these leaders, whose broker then proposes it to the controller."""
    replicas = Replicas(lambda topic, index: None)
    in_sync = InSyncReplicas(NODE, cast(BrokerMetadata, metadata), replicas, cast(Any, None), 1_000_000_000)
    running = asyncio.get_running_loop().create_task(in_sync.run())
    for leader in leaders:
        leader.replica_fetched(FOLLOWER, 20, 5, 0)
        in_sync.fetched(leader)
    return running


def test_a_replica_is_proposed_by_the_broker_epoch_in_which_it_caught_up() -> None:
    """And again by that one, though its broker was restarted meanwhile and has to begin anew: the controller refuses it
    then."""
    metadata = FakeMetadata()
    leader = lead(FakeLog(end_offset=5, synced_offset=5), replicas=(NODE, FOLLOWER))

    async def main() -> None:
        running = catch_up(metadata, leader)
        while len(metadata.asked) < 1:
            await asyncio.sleep(0.1)
        leader.replica_fetched(FOLLOWER, 30, 0, 0)
        while len(metadata.asked) < 2:
            await asyncio.sleep(0.1)
        running.cancel()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())
    assert [members(request) for request in metadata.asked[:2]] == [[(NODE, 10), (FOLLOWER, 20)]] * 2


@pytest.mark.parametrize(
    ("error", "counts"), [(ErrorCode.INELIGIBLE_REPLICA, False), (ErrorCode.FENCED_LEADER_EPOCH, True)]
)
def test_a_proposal_stands_unless_the_controller_refused_the_replica(error: ErrorCode, counts: bool) -> None:
    """Another epoch may have begun after an earlier copy of the proposal was in force: the replica is in sync then, and
    what is committed without it would be lost with the others."""
    metadata = FakeMetadata()
    leader = lead(FakeLog(end_offset=5, synced_offset=5), replicas=(NODE, FOLLOWER))

    async def main() -> None:
        running = catch_up(metadata, leader)
        while len(metadata.asked) < 1:
            await asyncio.sleep(0.1)
        metadata.error = error
        while len(metadata.asked) < 2:
            await asyncio.sleep(0.1)
        await asyncio.sleep(10)
        running.cancel()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())
    assert len(metadata.asked) == 2
    assert (FOLLOWER in leader.maximal_isr) == counts


def test_a_proposal_that_cannot_be_written_for_want_of_descriptors_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its messages are imported when they are first needed, which may fail."""
    metadata = FakeMetadata()
    leader = lead(FakeLog(end_offset=5, synced_offset=5), replicas=(NODE, FOLLOWER))
    make_request, failures = InSyncReplicas._request, [OSError(errno.EMFILE, "Too many open files")]

    def fail_once(in_sync: InSyncReplicas, proposals: Any) -> AlterPartitionRequest | None:
        if failures:
            raise failures.pop()
        return make_request(in_sync, proposals)

    monkeypatch.setattr(InSyncReplicas, "_request", fail_once)

    async def main() -> None:
        running = catch_up(metadata, leader)
        while not metadata.asked:
            await asyncio.sleep(0.1)
        running.cancel()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())
    assert members(metadata.asked[0]) == [(NODE, 10), (FOLLOWER, 20)]


def test_replicas_that_leave_many_isrs_together_are_one_line_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    metadata = FakeMetadata()
    leaders = [lead(FakeLog(end_offset=5, synced_offset=5), replicas=(NODE, FOLLOWER)) for _ in range(7)]

    async def main() -> None:
        running = catch_up(metadata, *leaders)
        while not metadata.asked:
            await asyncio.sleep(0.1)
        running.cancel()

    with (
        caplog.at_level("INFO", "odradek.services.partitions.isr"),
        asyncio.Runner(loop_factory=VirtualLoop) as runner,
    ):
        runner.run(main())
    (line,) = [line for record in caplog.records if (line := record.getMessage()).startswith("proposing")]
    assert line.startswith("proposing new ISRs of 7 partitions, because [2] caught up: ")
