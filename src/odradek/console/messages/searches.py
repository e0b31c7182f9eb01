"""Searches that run in children: started, asked for what they have found, cancelled. Few run at once, few are kept.

Two children share a search where there are two cores; each goes through a part of every partition. A search that nobody
asks about any more ends: its page was closed. Downloads are children, too, and end with their readers.
"""

import json
import os
import secrets
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from odradek.admin.failures import AdminError
from odradek.console.messages.child import ERROR
from odradek.console.requests import NotFound

MOST_RUNNING = 3
MOST_DOWNLOADS = 3
MOST_KEPT = 12
FORGOTTEN_S = 60.0  # since its page asked for the last time
LOOK_S = 5.0
CHILDREN = min(2, os.cpu_count() or 1)
PIECE_BYTES = 64 * 1024

Child = subprocess.Popen[bytes]


@dataclass
class Progress:
    """One child's."""

    scanned: int = 0
    total: int = 0
    has_ended: bool = False


@dataclass
class Search:
    id: str
    owner: str
    limit: int
    children: list[Progress]
    records: list[dict[str, Any]] = field(default_factory=list)
    is_running: bool = True
    error: str | None = None
    began_s: float = field(default_factory=time.monotonic)
    asked_s: float = field(default_factory=time.monotonic)
    took_s: float = 0.0

    @property
    def is_forgotten(self) -> bool:
        return time.monotonic() - self.asked_s > FORGOTTEN_S

    @property
    def scanned(self) -> int:
        return sum(one.scanned for one in self.children)

    @property
    def total(self) -> int:
        return sum(one.total for one in self.children)

    @property
    def is_limited(self) -> bool:
        return len(self.records) >= self.limit

    def hear(self, child: Progress, said: dict[str, Any]) -> None:
        if "record" in said:
            if not self.is_limited:
                self.records.append(said["record"])
            return
        self.error = self.error or said.get("error")
        child.scanned, child.total = said.get("scanned", child.scanned), said.get("total", child.total)
        child.has_ended |= "end" in said or "error" in said


class Searches:
    def __init__(self) -> None:
        self._searches: OrderedDict[str, Search] = OrderedDict()
        self._running: dict[str, list[Child]] = {}
        self._lock = threading.Lock()

    def start(self, owner: str, job: dict[str, Any]) -> Search:
        progress = [Progress() for _ in range(CHILDREN)]
        search = Search(secrets.token_urlsafe(12), owner, job["limit"], progress)
        with self._lock:
            if len(self._running) >= MOST_RUNNING:
                raise AdminError(f"{MOST_RUNNING} searches are running: cancel one, or wait for its end")
            children = [start_child(job | {"part": part, "parts": CHILDREN}) for part in range(CHILDREN)]
            self._running[search.id] = children
            while len(self._searches) >= MOST_KEPT:
                self._searches.popitem(last=False)
            self._searches[search.id] = search
        threading.Thread(target=self._watch, args=(search, children), daemon=True).start()
        return search

    def find(self, owner: str, search_id: str) -> Search:
        search = self._searches.get(search_id)
        if search is None or search.owner != owner:
            raise NotFound("there is no such search any more")
        search.asked_s = time.monotonic()
        return search

    def cancel(self, owner: str, search_id: str) -> None:
        self.find(owner, search_id)
        self._end(self._running.get(search_id, []))

    def stop_all(self) -> None:
        for children in list(self._running.values()):
            self._end(children)

    @staticmethod
    def _end(children: list[Child]) -> None:
        for child in children:
            child.terminate()

    def _watch(self, search: Search, children: list[Child]) -> None:
        readers = [
            threading.Thread(target=self._read, args=(search, children, number), daemon=True)
            for number in range(len(children))
        ]
        for reader in readers:
            reader.start()
        for reader in readers:
            while reader.is_alive():
                reader.join(LOOK_S)
                if search.is_forgotten:
                    self._end(children)
        with self._lock:
            self._running.pop(search.id, None)
        search.took_s = time.monotonic() - search.began_s
        search.is_running = False

    def _read(self, search: Search, children: list[Child], number: int) -> None:
        child, progress = children[number], search.children[number]
        assert child.stdout is not None
        for line in child.stdout:
            search.hear(progress, json.loads(line))
            if search.is_limited:
                self._end(children)
        status = child.wait()
        child.stdout.close()
        if not progress.has_ended and status >= 0:
            search.error = "the search ended before it was through: the log of the console says why"


def start_child(job: dict[str, Any]) -> Child:
    command = [sys.executable, "-m", "odradek.console.messages.child"]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None
    child.stdin.write(json.dumps(job).encode())
    child.stdin.close()
    return child


class Downloads:
    """Children that write files. Each needs memory and a core, so few run at once."""

    def __init__(self) -> None:
        self._free = threading.BoundedSemaphore(MOST_DOWNLOADS)

    def start(self, job: dict[str, Any]) -> Iterator[bytes]:
        """The pieces of a file. Raises AdminError if it fails before the first: a reason is not saved as data."""
        if not self._free.acquire(blocking=False):
            raise AdminError(f"{MOST_DOWNLOADS} downloads are running: wait for the end of one")
        pieces = self._pieces(job)
        first = next(pieces, b"")
        if first.startswith(ERROR):
            pieces.close()
            raise AdminError(first.removeprefix(ERROR).decode(errors="replace").strip())
        return chain([first], pieces)

    def _pieces(self, job: dict[str, Any]) -> Generator[bytes, None, None]:
        """Yield what a child writes; the child ends with its reader."""
        try:
            child = start_child(job)
            assert child.stdout is not None
            try:
                while piece := child.stdout.read1(PIECE_BYTES):  # type: ignore[attr-defined]
                    yield piece
            finally:
                child.terminate()
                child.stdout.close()
                child.wait()
        finally:
            self._free.release()
