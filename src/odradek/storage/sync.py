"""Group commit: what a log hands out so that someone else, perhaps a thread, makes it durable.

The log says which files are dirty and how far it reached (`SyncTicket`); the files stay open until the
ticket is given back. Many logs' tickets are synced together, because one system call for a whole file
system costs as much as a few for single files.
"""

from collections.abc import Sequence

from odradek.storage.files import MAX_SINGLE_SYNCS, File, Files


class SyncTicket:
    """`offset` is what will be durable once the files are synced; truncating the log meanwhile lowers it.

    With more files than may be open at a time a ticket is partial: the next one has the rest."""

    __slots__ = ("files", "is_partial", "offset")

    def __init__(self, files: Sequence[File], offset: int, is_partial: bool = False) -> None:
        self.files = files
        self.offset = offset
        self.is_partial = is_partial


def sync_tickets(files: Files, tickets: Sequence[SyncTicket]) -> list[OSError | None]:
    """Sync the files of all tickets, and tell for each what went wrong. May run in another thread."""
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
