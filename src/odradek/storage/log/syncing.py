"""Sync many logs together, as a store does when it opens and closes: as many at a time as may have their files open."""

from collections import deque
from collections.abc import Iterable

from odradek.errors import KafkaError
from odradek.storage.disk.files import Files
from odradek.storage.disk.sync import SyncTicket, sync_tickets
from odradek.storage.log.log import Log

LOGS_OF_A_SYNC = 256


def sync_logs(files: Files, logs: Iterable[Log]) -> None:
    unsynced = deque(logs)
    while unsynced:
        tickets = _take_tickets(files, unsynced)
        errors = sync_tickets(files, [ticket for _, ticket in tickets])
        for (log, ticket), error in zip(tickets, errors, strict=True):
            log.complete_sync(ticket, error)
            if ticket.is_partial and error is None:
                unsynced.append(log)


def _take_tickets(files: Files, unsynced: deque[Log]) -> list[tuple[Log, SyncTicket]]:
    """Takes the next logs, as many as there are descriptors for: they are free again after the sync."""
    tickets: list[tuple[Log, SyncTicket]] = []
    count = 0
    while unsynced and len(tickets) < LOGS_OF_A_SYNC and count < files.max_open:
        try:
            ticket = unsynced[0].begin_sync()
        except KafkaError:
            if not tickets:
                raise
            break
        log = unsynced.popleft()
        if ticket is not None:
            tickets.append((log, ticket))
            count += len(ticket.files)
    return tickets
