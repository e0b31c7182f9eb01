"""Searches that run in children: started, asked for what they have found, cancelled. Few run at once, few are kept."""

import json
import secrets
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from odradek.admin.failures import AdminError
from odradek.console.requests import NotFound

MOST_RUNNING = 3
MOST_KEPT = 12
PIECE_BYTES = 64 * 1024


@dataclass
class Search:
    id: str
    owner: str
    records: list[dict[str, Any]] = field(default_factory=list)
    scanned: int = 0
    total: int = 0
    is_running: bool = True
    is_limited: bool = False
    error: str | None = None
    began_s: float = field(default_factory=time.monotonic)
    took_s: float = 0.0


class Searches:
    def __init__(self) -> None:
        self._searches: OrderedDict[str, Search] = OrderedDict()
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()

    def start(self, owner: str, job: dict[str, Any]) -> Search:
        search = Search(secrets.token_urlsafe(12), owner)
        with self._lock:
            if len(self._children) >= MOST_RUNNING:
                raise AdminError(f"{MOST_RUNNING} searches are running: cancel one, or wait for its end")
            child = start_child(job)
            self._children[search.id] = child
            while len(self._searches) >= MOST_KEPT:
                self._searches.popitem(last=False)
            self._searches[search.id] = search
        threading.Thread(target=self._read, args=(search, child), daemon=True).start()
        return search

    def find(self, owner: str, search_id: str) -> Search:
        search = self._searches.get(search_id)
        if search is None or search.owner != owner:
            raise NotFound("there is no such search any more")
        return search

    def cancel(self, owner: str, search_id: str) -> None:
        self.find(owner, search_id)
        child = self._children.get(search_id)
        if child is not None:
            child.terminate()

    def stop_all(self) -> None:
        for child in list(self._children.values()):
            child.terminate()

    def _read(self, search: Search, child: "subprocess.Popen[bytes]") -> None:
        assert child.stdout is not None
        has_ended = False
        for line in child.stdout:
            said = json.loads(line)
            if "record" in said:
                search.records.append(said["record"])
                continue
            search.error = said.get("error")
            search.scanned, search.total = (
                said.get("scanned", search.scanned),
                said.get("total", search.total),
            )
            search.is_limited = said.get("is_limited", False)
            has_ended |= "end" in said or "error" in said
        status = child.wait()
        child.stdout.close()
        with self._lock:
            self._children.pop(search.id, None)
        search.took_s = time.monotonic() - search.began_s
        if not has_ended and status >= 0:
            search.error = "the search ended before it was through: the log of the console says why"
        search.is_running = False


def start_child(job: dict[str, Any]) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "odradek.console.messages.child"]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None
    child.stdin.write(json.dumps(job).encode())
    child.stdin.close()
    return child


def pieces(child: "subprocess.Popen[bytes]") -> Iterator[bytes]:
    """What a child writes; it ends with its reader."""
    assert child.stdout is not None
    try:
        while piece := child.stdout.read1(PIECE_BYTES):  # type: ignore[attr-defined]
            yield piece
    finally:
        child.terminate()
        child.stdout.close()
        child.wait()
