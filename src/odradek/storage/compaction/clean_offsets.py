"""The offset up to which each log is clean, as Kafka's `cleaner-offset-checkpoint` keeps it."""

from odradek.model import TopicPartition
from odradek.storage.disk.checkpoints import CLEANER_OFFSETS, MalformedCheckpoint, read_offsets, write_offsets
from odradek.storage.disk.files import Files


class CleanOffsets:
    """The clean offsets of all logs; if the checkpoint is lost or unreadable, all is dirty again."""

    def __init__(self, files: Files, data_directory: str) -> None:
        self._files = files
        self._path = f"{data_directory}/{CLEANER_OFFSETS}"
        try:
            self.offsets = read_offsets(files, self._path)
        except MalformedCheckpoint:
            self.offsets = {}

    def note(self, partition: TopicPartition, offset: int) -> None:
        self.offsets[partition] = offset
        write_offsets(self._files, self._path, self.offsets)

    def forget(self, partition: TopicPartition) -> None:
        """Writes nothing, so that a topic can be deleted even if the disk is full. The next note removes the entry
        from the file, and so does the store before it creates a log of this name."""
        self.offsets.pop(partition, None)
