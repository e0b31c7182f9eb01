"""The file synced-offset beside the metadata log: up to where the log is known to be synced.

It is written in place after every sync of the log, and it is not synced itself, so it costs one system call. A killed
process leaves it exact: damage below it is damage, however few seconds the process lived. A power cut may take it back
to an older offset, or tear it, which its checksum shows; then the recovery point is what is known. It never says more
than was synced, because whoever cuts the log calls `lower` first, which does sync it.
"""

from contextlib import suppress

from odradek.records.crc import crc32c
from odradek.storage.disk.checkpoints import read_if_present
from odradek.storage.disk.files import File, Files

SYNCED_OFFSET_FILE = "synced-offset"


class SyncedOffset:
    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._path = f"{directory}/{SYNCED_OFFSET_FILE}"
        self._file: File | None = None
        self.offset = _decode(read_if_present(files, self._path))

    def advance(self, offset: int) -> None:
        """The log is synced up to here. A failure does no harm: less is known then, and the next sync tries again."""
        if offset > self.offset:
            with suppress(OSError):
                self._open().write_at(0, _encode(offset))
                self.offset = offset

    def lower(self, offset: int) -> None:
        """The log will be cut to this offset. Always written: a power cut may bring back more than was read."""
        if not self._files.exists(self._path):
            return
        file, offset = self._open(), min(offset, self.offset)
        file.write_at(0, _encode(offset))
        file.sync()
        self.offset = offset

    def _open(self) -> File:
        if self._file is None:
            is_new = not self._files.exists(self._path)
            self._file = self._files.create(self._path) if is_new else self._files.file(self._path)
        return self._file

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _encode(offset: int) -> bytes:
    text = f"{offset:020d}"
    return f"{text} {crc32c(text.encode()):08x}\n".encode()


def _decode(data: bytes) -> int:
    """0 if the file is missing or torn."""
    digits = data[:20]
    return int(digits) if digits.isdigit() and data == _encode(int(digits)) else 0
