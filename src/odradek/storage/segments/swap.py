"""Replacing segments by compacted ones, and cleaning up if that was interrupted, as Kafka does.

Files are swapped by renaming, in an order that shows at any moment what they are:

`.deleted`  no longer part of the log: removed.
`.cleaned`  a compaction that did not finish: removed, and with it every `.swap` from its base offset on,
            which then belongs to the same unfinished work.
`.swap`     a compaction that finished: replaces the segments that it was made from.

A crash may undo any of the renames since the last sync of the directory, in any order. So each step is synced before
the next: as long as an old segment may come back, a `.swap` says that it must go.
"""

import re
from collections.abc import Callable, Sequence

from odradek.storage.config import LogConfig
from odradek.storage.disk.files import Files, pinned
from odradek.storage.segments.segment import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    Segment,
)

LOG_FILE = re.compile(
    r"[0-9]{20}\.(log|index|timeindex|txnindex|snapshot)(\.([0-9]+\.)?deleted|\.cleaned|\.swap)?"
)


def is_log_file(name: str) -> bool:
    """True if a file in a log's directory is, or was, part of the log."""
    return LOG_FILE.fullmatch(name) is not None


def swap_in(files: Files, directory: str, new: Sequence[Segment], retire_old: Callable[[], None]) -> None:
    """Give finished `.cleaned` segments their names; `retire_old` takes those names from the old ones.

    All files that must be open are opened first: `CannotOpen` means that nothing has changed.
    """
    names = files.to_sync(directory)
    with pinned(names, *(file for segment in new for file in segment.files)):
        for segment in reversed(new):
            for file in segment.files:
                file.sync()
            segment.rename(CLEANED_SUFFIX, SWAP_SUFFIX)
        names.sync()
        retire_old()
        names.sync()
        for segment in new:
            segment.rename(SWAP_SUFFIX, "")
        names.sync()


def tidy(files: Files, directory: str, sizes: dict[str, int], config: LogConfig) -> dict[str, int]:
    """Clean up after an interruption. Returns the sizes of the remaining files."""
    if not any(name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX)) for name in sizes):
        return sizes
    unfinished = [name for name in sizes if name.endswith(CLEANED_SUFFIX)]
    first_unfinished = min(map(offset_of, unfinished), default=None)
    if first_unfinished is not None:
        for name in [name for name in sizes if name.endswith(SWAP_SUFFIX)]:
            if offset_of(name) >= first_unfinished:
                _remove(files, directory, sizes, name)
        files.sync_directory(directory)  # without its `.cleaned`, a `.swap` would count as finished
    for name in [name for name in sizes if name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX))]:
        _remove(files, directory, sizes, name)
    _complete_swap(files, directory, sizes, config)
    files.sync_directory(directory)
    return sizes


def offset_of(name: str) -> int:
    return int(name.partition(".")[0])


def _complete_swap(files: Files, directory: str, sizes: dict[str, int], config: LogConfig) -> None:
    swaps = [name for name in sizes if name.endswith(LOG_SUFFIX + SWAP_SUFFIX)]
    segments = [
        Segment.open(files, directory, offset_of(name), sizes, config, 0, SWAP_SUFFIX) for name in swaps
    ]
    low = min((segment.base_offset for segment in segments), default=0)
    high = max((segment.next_offset() for segment in segments), default=0)
    for segment in segments:
        segment.close()
    for name in list(sizes):
        if name.endswith(SEGMENT_SUFFIXES) and low <= offset_of(name) < high:
            _remove(files, directory, sizes, name)
    if segments:
        files.sync_directory(directory)
    for name in [name for name in sizes if name.endswith(SWAP_SUFFIX)]:
        final = name.removesuffix(SWAP_SUFFIX)
        files.rename(f"{directory}/{name}", f"{directory}/{final}")
        sizes[final] = sizes.pop(name)


def _remove(files: Files, directory: str, sizes: dict[str, int], name: str) -> None:
    files.remove(f"{directory}/{name}")
    del sizes[name]
