"""Logs that the metadata did not expect at a start: set aside under names that end with `-stray`, and kept.

A log without a topic may be all that is left of a topic that the metadata has lost, so nobody but its operator removes
it. The exception is a topic whose deletion this node has read itself: a committed record of the metadata log removed
the topic with exactly this id, or a snapshot from the leader replaced metadata that still had it. That is as good as a
deletion while the node runs, so the log is deleted in the same way, after `file.delete.delay.ms`.
"""

import logging
import re
import uuid
from collections.abc import Collection, Iterable
from functools import partial

from odradek.storage.directories import DELETE_SUFFIX, STRAY_SUFFIX
from odradek.storage.disk.checkpoints import PARTITION_METADATA, parse_partition_metadata, read_if_present
from odradek.storage.disk.deletions import Deletions
from odradek.storage.disk.files import Files
from odradek.wording import count_of

logger = logging.getLogger(__name__)

STRAY = re.compile(rf".+-[0-9]+\.[0-9a-f]{{32}}{STRAY_SUFFIX}")


class Strays:
    def __init__(self, files: Files, directory: str, deletions: Deletions) -> None:
        self._files = files
        self._directory = directory
        self._deletions = deletions
        self._topic_ids: dict[str, uuid.UUID] = {}  # by path

    def __len__(self) -> int:
        return len(self._topic_ids)

    def find(self, names: Iterable[str]) -> None:
        """Take note of those among these directories that an earlier start has set aside."""
        for name in names:
            if STRAY.fullmatch(name):
                path = f"{self._directory}/{name}"
                metadata = read_if_present(self._files, f"{path}/{PARTITION_METADATA}")
                self._topic_ids[path] = parse_partition_metadata(metadata)

    def add(self, path: str, topic_id: uuid.UUID) -> None:
        self._topic_ids[path] = topic_id

    def delete_those_of(self, topic_ids: Collection[uuid.UUID], due_ms: int) -> None:
        """These topics are deleted: rename their logs, and remove them later."""
        for path in [path for path, topic_id in self._topic_ids.items() if topic_id in topic_ids]:
            deleted = path.removesuffix(STRAY_SUFFIX) + DELETE_SUFFIX
            try:
                self._files.rename(path, deleted)
            except OSError as error:
                logger.warning("cannot delete %s, whose topic was deleted, so it stays: %s", path, error)
                continue
            del self._topic_ids[path]
            self._deletions.schedule(due_ms, partial(self._files.remove_tree, deleted))
            logger.info("deleting %s: its topic was deleted", path)

    def log_kept(self) -> None:
        """Remind the operator of those that stay: they take room on the disk."""
        if self._topic_ids:
            logger.warning(
                "%s from earlier starts in %s: this node does not know that their topics were deleted, so it keeps "
                "them. Remove the directories that end with %s if you do not need them",
                count_of(len(self._topic_ids), "stray log"),
                self._directory,
                STRAY_SUFFIX,
            )
