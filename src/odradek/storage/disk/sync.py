"""Which part of a log is on disk, and group commit: handing out the rest for a shared sync.

The log says which files are dirty and how far it has been written (`SyncTicket`); the files stay open until the
ticket is returned. Tickets of many logs are synced together, perhaps by a thread, because one system call for a whole
file system costs as much as a few for single files.
"""

from collections.abc import Iterable, Sequence
from itertools import islice

from odradek.storage.disk.files import MAX_SINGLE_SYNCS, File, Files, pinned
from odradek.storage.disk.health import Health
from odradek.storage.disk.shortage import CannotOpen

MAX_FILES_OF_A_TICKET = 64


class SyncTicket:
    """`offset` is what will be durable once the files are synced; truncating the log meanwhile lowers it.

    With more files than may be open at a time a ticket is partial: the next one has the rest."""

    __slots__ = ("files", "is_partial", "offset")

    def __init__(self, files: Sequence[File], offset: int, is_partial: bool = False) -> None:
        self.files = files
        self.offset = offset
        self.is_partial = is_partial


class Durability:
    """Which files of a log are dirty, and up to which offset the log is synced.

    After a failed sync the state of the disk is unknown, and a second sync would not tell: the log has failed, and
    `synced_offset` no longer moves.
    """

    __slots__ = ("_health", "_ticket", "dirty", "synced_offset")

    def __init__(self, health: Health, synced_offset: int) -> None:
        self._health = health
        self._ticket: SyncTicket | None = None  # at most one is out; its files are not in `dirty`
        self.dirty: dict[File, None] = {}  # written to since they were last synced, the oldest first
        self.synced_offset = synced_offset  # everything below is on disk

    # By tickets

    def begin(self, end_offset: int) -> SyncTicket | None:
        """A ticket for the dirty files, if there are any and no ticket is out. Always pass it to `complete`."""
        if not self.dirty or self._ticket is not None or self._health.failed:
            return None
        files = self._pin_dirty()
        if len(files) == len(self.dirty):
            self.dirty.clear()
            self._ticket = SyncTicket(files, end_offset)
        else:
            self.forget(files)
            self._ticket = SyncTicket(files, self.synced_offset, is_partial=True)
        return self._ticket

    def _pin_dirty(self) -> list[File]:
        """Open as many as fit in one ticket, or as there are descriptors for, but at least one."""
        files: list[File] = []
        try:
            for file in islice(self.dirty, MAX_FILES_OF_A_TICKET):
                file.pin()
                files.append(file)
        except OSError as error:
            if not files or not isinstance(error, CannotOpen):
                for file in files:
                    file.unpin()
                raise self._health.error("open what must be synced", error) from error
        return files

    def complete(self, ticket: SyncTicket, error: OSError | None) -> None:
        assert ticket is self._ticket
        self._ticket = None
        for file in ticket.files:
            file.unpin()
        if error is not None:
            self._health.fail()
        elif ticket.offset > self.synced_offset and not self._health.failed:
            self.synced_offset = ticket.offset

    def sync(self, files: Files, end_offset: int) -> None:
        """Sync here and now. No ticket may be out."""
        assert self._ticket is None
        while (ticket := self.begin(end_offset)) is not None:
            (error,) = sync_tickets(files, [ticket])
            self.complete(ticket, error)
            if error is not None:
                raise self._health.error("sync", error) from error

    # Without a ticket

    def sync_all_dirty(self, end_offset: int) -> None:
        """Sync one file after the other, even if a ticket is out."""
        for file in self.dirty:
            with pinned(file):
                self.sync_open(file)
        self.dirty.clear()
        self.reached(end_offset)

    def reached(self, offset: int) -> None:
        """Everything below is on disk; with a ticket out, once it comes back without an error. If its sync has failed
        and nobody knows yet, another one of the same file succeeds, and tells nothing."""
        if self._ticket is None:
            self.synced_offset = offset
        else:
            self._ticket.offset = offset

    def sync_open(self, file: File) -> None:
        """Sync a file that is pinned: any error then means that the disk has failed."""
        with self._health.fatal():
            file.sync()

    # Changes to the set of files

    def mark(self, files: Iterable[File]) -> None:
        self.dirty.update(dict.fromkeys(files))

    def forget(self, files: Iterable[File]) -> None:
        """These are gone, or synced elsewhere."""
        for file in files:
            self.dirty.pop(file, None)

    def lower_to(self, offset: int) -> None:
        """The log was cut, or was found to be on disk only so far."""
        self.synced_offset = min(self.synced_offset, offset)
        if self._ticket is not None:
            self._ticket.offset = min(self._ticket.offset, offset)


def sync_tickets(files: Files, tickets: Sequence[SyncTicket]) -> list[OSError | None]:
    """Sync the files of all tickets, and return the error of each. May run in another thread."""
    everything = [file for ticket in tickets for file in ticket.files]
    if len(everything) > MAX_SINGLE_SYNCS:
        error = _attempt(files, everything)
        return [error] * len(tickets)
    return [_attempt(files, ticket.files) for ticket in tickets]


def _attempt(files: Files, dirty: Sequence[File]) -> OSError | None:
    try:
        files.sync_many(dirty)
    except OSError as error:
        return error
    return None
