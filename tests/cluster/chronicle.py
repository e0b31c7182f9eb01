"""The chronicle of what a cluster has committed, as the disks of its nodes tell, and whether the nodes say the same.

After every step of the event loop the images of the nodes that ran in it are looked at (`watch`). The first that is
further than all before it must be right: what it adds to the committed log has to be on the disks of a majority of the
voters, for good. It is read from there and folded once more, in an image of our own. From then on it is history: no
node may ever show anything else at these offsets (R4, R8), nor go back. A disk that was replaced counts as it was at
its end: its node may have said what it holds, in a message that was on its way when the disk was lost.

An image holds all that was before it, so a wrong one stays wrong. Comparing costs as much as an image holds; it is
done for the first image of every life, after every leap over a snapshot, and for some of the others.
"""

from collections.abc import Sequence
from dataclasses import fields
from itertools import takewhile
from struct import Struct
from typing import NamedTuple
from uuid import UUID

from odradek.metadata import records as r
from odradek.metadata.delta import ImageBuilder
from odradek.metadata.image import MetadataImage
from odradek.metadata.snapshot import digest
from odradek.raft.store import METADATA_PARTITION
from odradek.raft.voters import ReplicaKey, VoterSet
from odradek.records.record import decode_batch
from odradek.records.walk import Batch, whole_batches
from odradek.storage.disk.simulated import SimulatedFiles
from odradek.storage.segments.segment import LOG_SUFFIX
from odradek.storage.segments.swap import offset_of
from tests.cluster.clusters import CLUSTER_ID, Cluster
from tests.simulation.connection import Violation
from tests.simulation.machine import DATA_DIR

PARTITION_DIRECTORY = f"{DATA_DIR}/{METADATA_PARTITION}"
COMPARE_EVERY = 8  # images
BATCH_START = Struct(">qi")  # the base offset, and the length of what follows


class Life(NamedTuple):
    """The last state of a node, between a start and its end."""

    number: int
    image: MetadataImage
    end_offset: int


def position_of(offset: int, data: memoryview) -> int:
    """The position of the first batch at or after this offset in these bytes, or where they cannot be read on."""
    position = 0
    while position + BATCH_START.size <= len(data):
        base_offset, length = BATCH_START.unpack_from(data, position)
        if base_offset >= offset or length <= 0:
            break
        position += BATCH_START.size + length
    return min(position, len(data))


class DurableLog:
    """The batches of a node's metadata log that a crash cannot take, from some offset on."""

    def __init__(self, files: dict[str, bytes], offset: int) -> None:
        segments = sorted(
            (offset_of(name), data) for name, data in files.items() if name.endswith(LOG_SUFFIX)
        )
        self.start_offset = segments[0][0] if segments else 0
        self.batches: dict[int, Batch] = {}
        starts = [start for start, _ in segments]
        for number, (_, data) in enumerate(segments):
            if number + 1 == len(segments) or starts[number + 1] > offset:
                view = memoryview(data)
                for batch in whole_batches(view[position_of(offset, view) :]):
                    self.batches[batch.header.base_offset] = batch

    def holds(self, wanted: Batch) -> bool:
        """Or a snapshot has taken its place."""
        base = wanted.header.base_offset
        batch = self.batches.get(base)
        if batch is None:
            return base < self.start_offset
        return batch.data == wanted.data and batch.has_valid_crc


Logs = dict[ReplicaKey, DurableLog]


class Chronicle:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._lives: dict[int, Life] = {}
        self._images: dict[int, MetadataImage] = {}  # by the offset where each ends
        self._digests: dict[int, str] = {}
        self._controllers: dict[int, int] = {}  # by epoch
        self._seen = 0  # images
        self._active: dict[
            int, int
        ] = {}  # nodes that were the controller when they last ran, and in which life
        self._ceased_at: dict[int, float] = {}  # when a node was no more
        self.newest = MetadataImage(CLUSTER_ID)
        self.created: dict[UUID, str] = {}
        self.deleted: dict[UUID, None] = {}
        self.configured: set[tuple[str, str, str | None]] = set()  # topic, setting and value
        self.counts = dict.fromkeys(("committed", "elections", "truncations", "installs", "compared"), 0)
        self.elected_at: list[float] = []

    # After every step

    def look(self, node_ids: Sequence[int]) -> None:
        for node_id in node_ids:
            machine = self._cluster.machines[node_id]
            node = machine.node
            if node is None:
                continue
            metadata = node.metadata
            life, image, end = self._lives.get(node_id), metadata.image, metadata.quorum.log.end_offset
            if life is None or life.number != machine.starts:
                self._begin_life(node_id, machine.starts, image, end)
            elif image is not life.image or end != life.end_offset:
                self._go_on(node_id, life, image, end)
            if metadata.quorum.is_active:
                self._active[node_id] = machine.starts
                self._is_controller(node_id, metadata.quorum.epoch)
            elif self._active.pop(node_id, 0) == machine.starts:
                self._ceased_at[node_id] = self._cluster.world.now()

    def was_controller_since(self, node_id: int, seconds: float) -> bool:
        """At some time from then on; for one that is off, until its end."""
        machine = self._cluster.machines[node_id]
        return self._active.get(node_id) == machine.starts or self._ceased_at.get(node_id, -1.0) >= seconds

    def _begin_life(self, node_id: int, number: int, image: MetadataImage, end_offset: int) -> None:
        self._lives[node_id] = Life(number, image, end_offset)
        self._take(node_id, image, is_compared=True)

    def _go_on(self, node_id: int, life: Life, image: MetadataImage, end_offset: int) -> None:
        self._lives[node_id] = Life(life.number, image, end_offset)
        self.counts["truncations"] += end_offset < life.end_offset
        if image is life.image:
            return
        if image.offset < life.image.offset:
            raise Violation(
                f"the image of node {node_id} went back from offset {life.image.offset} to {image.offset}"
            )
        self._seen += 1
        machine = self._cluster.machines[node_id]
        assert machine.node is not None
        is_installed = machine.node.metadata.quorum.log.start_offset > life.image.offset + 1
        self.counts["installs"] += is_installed
        self._take(node_id, image, is_installed or self._seen % COMPARE_EVERY == 0)

    def _is_controller(self, node_id: int, epoch: int) -> None:
        known = self._controllers.get(epoch)
        if known is None:
            self._controllers[epoch] = node_id
            self.counts["elections"] += 1
            self.elected_at.append(self._cluster.world.now())
        elif known != node_id:
            raise Violation(f"nodes {known} and {node_id} are both controllers in epoch {epoch}")

    # Images

    def _take(self, node_id: int, image: MetadataImage, is_compared: bool) -> None:
        if image.offset < 0:
            return
        if image.offset > self.newest.offset:
            self._extend(node_id, image.offset)
        known = self._images.get(image.offset)
        if known is None:
            raise Violation(f"node {node_id} shows an image up to offset {image.offset}, where no batch ends")
        if is_compared:
            self.compare(node_id, image)

    def compare(self, node_id: int, image: MetadataImage) -> None:
        """Compare every field, and the digest that operators can compare. The fields come first: the digest is made
        by what writes snapshots, and would not see what that leaves out.
        """
        self.counts["compared"] += 1
        known = self._images[image.offset]
        wrong = [
            item.name for item in fields(image) if getattr(image, item.name) != getattr(known, item.name)
        ]
        if wrong:
            raise Violation(
                f"the image of node {node_id} is not what is committed up to offset {image.offset}: {', '.join(wrong)}"
            )
        if digest(image) != self._digest_at(image.offset):
            raise Violation(f"the image of node {node_id} has another digest at offset {image.offset}")

    def _digest_at(self, offset: int) -> str:
        if offset not in self._digests:
            self._digests[offset] = digest(self._images[offset])
        return self._digests[offset]

    # The committed log

    def _extend(self, node_id: int, offset: int) -> None:
        """This node says that all up to this offset is committed."""
        cluster = self._cluster
        voters = cluster.machines[node_id].node.metadata.quorum.log.raft.log.voters  # type: ignore[union-attr]
        logs = self._logs_on(
            {cluster.key(other): machine.files for other, machine in cluster.machines.items()}
        )
        while self.newest.offset < offset:
            start = self.newest.offset + 1
            sets = (voters.last, voters.before(start)[0])
            batch = self._committed_at(start, sets, logs)
            if batch is None:
                batch = self._committed_at(start, sets, logs | self._logs_on(cluster.lost_disks))
            if batch is None:
                raise Violation(
                    f"node {node_id} shows what lies at offset {start}, which is not on the disks of a majority of "
                    f"{sets[0]}"
                )
            self._fold(batch)

    def _logs_on(self, disks: dict[ReplicaKey, SimulatedFiles]) -> Logs:
        """Return the logs from where history ends."""
        return {
            key: DurableLog(files.durable(PARTITION_DIRECTORY), self.newest.offset + 1)
            for key, files in disks.items()
        }

    def _committed_at(self, offset: int, sets: tuple[VoterSet, ...], logs: Logs) -> Batch | None:
        """Return the batch committed by either set of voters: in the step that we look at, a second one may have
        come.
        """
        found = {
            bytes(log.batches[offset].data): log.batches[offset]
            for log in logs.values()
            if offset in log.batches
        }
        for batch in found.values():
            if any(self._is_on_majority(batch, voters, logs) for voters in sets):
                return batch
        return None

    def _is_on_majority(self, batch: Batch, voters: VoterSet, logs: Logs) -> bool:
        holding = [key for key, log in logs.items() if log.holds(batch)]
        holders = [voter for voter in voters if any(map(voter.key.names, holding))]
        return len(holders) >= voters.majority

    def _fold(self, batch: Batch) -> None:
        header = batch.header
        builder = ImageBuilder(self.newest)
        self.counts["committed"] += header.record_count
        if not header.is_control:
            for item in decode_batch(batch.data, header):
                assert item.value is not None
                record = r.decode_record(item.value)
                builder.replay(record)
                self._remember(record)
        self.newest, _ = builder.finish(header.last_offset, header.leader_epoch, header.max_timestamp)
        self._images[self.newest.offset] = self.newest

    def images_since(self, offset: int) -> list[MetadataImage]:
        """Return the images that are committed and end after this offset, the newest first."""
        return list(takewhile(lambda image: image.offset > offset, reversed(self._images.values())))

    def _remember(self, record: r.MetadataRecord) -> None:
        if isinstance(record, r.TopicRecord):
            self.created[record.topic_id] = record.name
        elif isinstance(record, r.RemoveTopicRecord):
            self.deleted[record.topic_id] = None
        elif isinstance(record, r.ConfigRecord):
            self.configured.add((record.resource_name, record.name, record.value))
