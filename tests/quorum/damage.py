"""Damage to a metadata log while its node is down: a bit is flipped, or the log is cut short.

It strikes only what the node must know to be synced (`Pledge`), from its newest snapshot on. So the next start has to
refuse the log, and must not change it. Elsewhere damage cannot be told from the end that a crash has torn.
"""

from typing import NamedTuple

from odradek.raft.store import METADATA_PARTITION
from odradek.records.walk import whole_batches


class Pledge:
    """Up to where a node must know at its next start that its log was synced: after a kill all that it has told
    anybody, after a power cut what the last checkpoint said."""

    def __init__(self):
        self.after_kill = self.after_power_cut = 0

    def lower_to(self, offset):
        self.after_kill = min(self.after_kill, offset)
        self.after_power_cut = min(self.after_power_cut, offset)


class Damage(NamedTuple):
    """`originals` are the files that were changed or removed, as they were before."""

    what: str
    path: str
    damaged: bytes
    originals: dict

    def is_untouched(self, files):
        return files.read(self.path) == self.damaged

    def undo(self, files):
        """Restore the log, as from a backup."""
        for path, data in self.originals.items():
            _write(files, path, data)
        files.sync_directory(self.path.rpartition("/")[0])


def damage_log(files, directory, needed_from, known, rng):
    """Damage a file; None if there is nothing whose damage the node must notice."""
    directory = f"{directory}/{METADATA_PARTITION}"
    targets = list(_batches_between(files, directory, needed_from, known))
    if not targets:
        return None
    path, start, size, offset = rng.choice(targets)
    data = files.read(path)
    if rng.random() < 0.5:
        at = start + rng.randrange(size)
        damaged = bytearray(data)
        damaged[at] ^= 1 << rng.randrange(8)
        _write(files, path, damaged)
        what = f"a bit flipped at byte {at} of {path}, in the batch at offset {offset}"
        return Damage(what, path, bytes(damaged), {path: data})
    at = start + rng.randrange(size)
    originals = {path: data}
    for name in [entry.name for entry in files.list(directory)]:
        later = f"{directory}/{name}"
        if name[:20].isdigit() and "." in name[20:21] and later > path and name[:20] != path[-24:-4]:
            originals[later] = files.read(later)
            files.remove(later)
    _write(files, path, data[:at])
    files.sync_directory(directory)
    return Damage(f"{path} cut to {at} bytes, at offset {offset}", path, data[:at], originals)


def _batches_between(files, directory, first, end):
    for entry in files.list(directory) if files.exists(directory) else ():
        path, position = f"{directory}/{entry.name}", 0
        if not entry.name.endswith(".log"):
            continue
        for batch in whole_batches(memoryview(files.read(path))):
            header = batch.header
            if first <= header.base_offset and header.next_offset <= end:
                yield path, position, header.size, header.base_offset
            position += header.size


def _write(files, path, data):
    file = files.create(path)
    file.write_at(0, bytes(data))
    file.sync()
