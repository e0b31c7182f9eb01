"""The treatment of a replica whose log is damaged: it leaves the ISR, and is copied again from its leader.

A reader, compaction or the integrity check finds damage (`storage.segments.damage`). Then, in this order:

1. The log is marked, by a file in its directory: the mark survives a restart.
2. The controller is told (`services.partitions.lost_replicas`). It takes the replica out of the ISR, in a new leader
   epoch, and lets another one lead; it refuses while no other replica has everything.
3. Once the metadata names the replica as lost, `services.partitions.local_partitions` throws the marked log away and
   begins a new one, which follows the leader like that of any new replica. A log without the mark is the new one.

The only replica of a partition keeps its log: records before and after the damage are still served.
"""

import logging
from collections.abc import Callable
from uuid import UUID

from odradek.host.interface import Host
from odradek.host.log_lines import counted
from odradek.metadata.image import LOST_DIRECTORY, NO_LEADER, MetadataImage, Partition
from odradek.model import TopicPartition
from odradek.storage.log.log import Log
from odradek.storage.segments.damage import DamagedSegment
from odradek.storage.store import LogStore

log = logging.getLogger(__name__)

Report = Callable[[UUID, int], None]


class DamagedLogs:
    def __init__(
        self,
        node_id: int,
        host: Host,
        store: LogStore,
        get_image: Callable[[], MetadataImage],
        report: Report,
    ) -> None:
        """`report(topic_id, partition)` tells the controller, until the metadata confirms it."""
        self._node_id = node_id
        self._host = host
        self._store = store
        self._get_image = get_image
        self._report = report
        self._damaged: dict[TopicPartition, Log] = {}
        store.damages.listen(self._found)

    def _found(self, name: TopicPartition, damage: DamagedSegment) -> None:
        """In the middle of a read: the rest comes after it."""
        self._host.call_soon(self._look_at, name)

    def look_again(self) -> None:
        """After a start, and every few seconds: a replica may have been added, or the disk have room for the mark."""
        for name in (*self._damaged, *self._store.marked):
            self._look_at(name)

    def _look_at(self, name: TopicPartition) -> None:
        found = self._store.get(name)
        if found is None or (found.damage is None and name not in self._store.marked):
            self._damaged.pop(name, None)
            return
        registration = self._registration_of(found)
        if registration is None:
            return
        if len(registration.replicas) == 1:
            self._tell_of_last_copy(found)
        else:
            self._give_up(found)

    def _registration_of(self, found: Log) -> Partition | None:
        name = found.topic_partition
        topic = self._get_image().topics_by_id.get(found.topic_id)
        registration = None if topic is None else topic.partitions.get(name.partition)
        return registration if registration is not None and self._node_id in registration.replicas else None

    def _tell_of_last_copy(self, found: Log) -> None:
        if self._damaged.get(found.topic_partition) is not found:
            self._damaged[found.topic_partition] = found
            log.error(
                "%s has no other replica to copy from: requests for the damaged records get KAFKA_STORAGE_ERROR. "
                "Restore the file from a backup while this broker is down, or delete the records up to the damage",
                found.topic_partition,
            )

    def _give_up(self, found: Log) -> None:
        name = found.topic_partition
        self._damaged[name] = found
        try:
            is_new = self._store.mark_damaged(name)
        except OSError as error:
            counted(
                log, logging.ERROR, str(name), "mark", "cannot mark the log of %s as damaged: %s", name, error
            )
            return
        if is_new:
            log.warning(
                "%s leaves the ISR, because its log is damaged, and will be copied again from another replica",
                name,
            )
        self._report(found.topic_id, name.partition)


def is_to_be_copied_again(
    store: LogStore, name: TopicPartition, registration: Partition, node_id: int
) -> bool:
    """The log is damaged, and the metadata says that nobody needs it: another broker leads, and has everything. While
    nobody leads, because all logs that are back are damaged, even a damaged one is needed."""
    is_lost = name in store.marked and registration.directory_of(node_id) == LOST_DIRECTORY
    return is_lost and registration.leader not in (NO_LEADER, node_id)
