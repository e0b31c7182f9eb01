"""A client that writes large batches and deletes records under load: DeleteRecords, with what it promises in a cluster.

Once it was answered, the records are deleted on every replica whose broker was alive: on all disks that a leader can be
elected from, but for those of brokers that were away. `kept` knows these disks; `replicated` compares their logs with
that from then on, over restarts too.
"""

from odradek.errors import ErrorCode
from odradek.metadata.image import MetadataImage
from odradek.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tests.cluster.kept import ANYTHING
from tests.cluster.replicated_log import ReplicatedLog
from tests.cluster.traffic import AGAIN, KEYS, Producer
from tests.simulation.connection import Violation
from tests.simulation.log_history import Batch, PartitionHistory, TopicHistory

TIMEOUT_MS = 400
VERSION = 2
UP_TO_HIGH_WATERMARK = -1
BATCH_SIZE = 8
PAUSE_SECONDS = 0.1


class Deleter(Producer):
    topic: TopicHistory | None = None  # once it is made

    async def act(self) -> None:
        await self.pause(self._pause_seconds)
        if self.topic is None:
            return
        (partition,) = self.topic.partitions
        if self.rng.random() < 0.5:
            await self._produce(partition, -1)
        else:
            await self._delete(partition)

    def _new_batch(self, partition: PartitionHistory, acks: int) -> Batch:
        """Large, so that logs often start in the middle of one."""
        keys = KEYS * BATCH_SIZE
        batch = self.play.logs.new_batch(partition.topic.name, partition.index, keys, frozenset(), acks)
        batch.topic_id = partition.topic.id
        return batch

    async def _delete(self, partition: PartitionHistory) -> None:
        log = self.play.replicated.logs[partition.topic.id, partition.index]
        connection, _ = await self.leader_of(partition)
        image = self._image_of(connection.node)
        before, asked = log.kept.asked_offset, self._choose(log)
        log.kept.asked_offset = ANYTHING if asked == UP_TO_HIGH_WATERMARK else max(asked, before)
        wanted = DeleteRecordsTopic(partition.topic.name, [DeleteRecordsPartition(partition.index, asked)])
        response = await connection.ask(DeleteRecordsRequest([wanted], TIMEOUT_MS), VERSION)
        (result,) = response.topics[0].partitions
        if result.error_code:
            self._check_refusal(asked, result.error_code)
            await self.router.refresh()
            return
        if result.low_watermark < asked:
            self.play.replicated.fail(
                log, f"DeleteRecords to {asked} was answered with {result.low_watermark}"
            )
        log.kept.asked_offset = max(before, asked, result.low_watermark)
        if image is not None:
            self._expect(log, image, result.low_watermark if asked == UP_TO_HIGH_WATERMARK else asked)

    def _choose(self, log: ReplicatedLog) -> int:
        chance = self.rng.random()
        if chance < 0.1:
            return UP_TO_HIGH_WATERMARK
        if chance < 0.2:
            return log.high_watermark + self.rng.randint(1, 5)
        start = log.kept.start_offset
        return self.rng.randint((start + log.high_watermark) // 2, max(start, log.high_watermark))

    def _image_of(self, name: str) -> MetadataImage | None:
        (machine,) = [item for item in self.play.cluster.machines.values() if item.name == name]
        return machine.node.metadata.image if machine.node is not None else None

    def _check_refusal(self, asked: int, code: int) -> None:
        """A leader may know less than others have committed."""
        if code not in AGAIN and (code != ErrorCode.OFFSET_OUT_OF_RANGE or asked <= 0):
            raise Violation(f"DeleteRecords to {asked} was answered with {ErrorCode(code).name}")
        self.play.count("deletions of records refused")

    def _expect(self, log: ReplicatedLog, image: MetadataImage, offset: int) -> None:
        """`image` is the one that the leader had when it was asked."""
        replicated = self.play.replicated
        self.play.count("deletions of records")
        for broker_id in log.registration.replicas:
            if not self._was_alive(broker_id, image) or replicated.has_lost_disk(broker_id):
                continue
            log.kept.deleted(replicated.disk_of(broker_id), offset)
            replica = replicated.replica(log, broker_id)
            if replica is not None and replica.log.log_start_offset < offset:
                replicated.fail(
                    log,
                    f"DeleteRecords to {offset} was answered, and broker {broker_id} starts at "
                    f"{replica.log.log_start_offset}",
                )

    def _was_alive(self, broker_id: int, image: MetadataImage) -> bool:
        """All the time, in one registration."""
        images = [image, *self.play.replicated.chronicle.images_since(image.offset)]
        brokers = [each.brokers.get(broker_id) for each in images]
        return (
            all(broker is not None and not broker.is_fenced for broker in brokers)
            and len({broker.epoch for broker in brokers if broker is not None}) == 1
        )
