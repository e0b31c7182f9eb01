"""Logs what is slow: requests that wait for long, and turns of the event loop during which all clients wait.

Requests are not timed one by one. While requests are being handled, one timer looks at those that wait for their
response: one that it sees twice has waited at least that long. So a stuck request is named while it is stuck, with
what it waits for, and again when it gets its response. Requests that wait by design (Fetch for data, JoinGroup and
SyncGroup for the other members) are left out. A timer that fires late shows that a turn of the event loop took long.

The timer stops while no requests are handled and none waits, or all have waited for minutes.
"""

import logging
from collections.abc import Iterable
from typing import Protocol

from odradek.apis.table import APIS, api_name, name_of
from odradek.host.interface import Host
from odradek.host.log_lines import counted
from odradek.host.metrics import Histogram
from odradek.serving.naming import request_fields, sender_of
from odradek.serving.refused import subject_of
from odradek.serving.request import Request
from odradek.wording import duration

log = logging.getLogger(__name__)

TICK_SECONDS = 0.25
WATCHED_SECONDS = 600.0  # one that waits longer is looked at only when others are handled
WAIT_BY_DESIGN = frozenset(api.key for api in APIS.values() if api.waits_by_design)


class Conversation(Protocol):
    """The part of a conversation that is looked at."""

    @property
    def waiting(self) -> Iterable[Request]:
        """Oldest first."""


class Watch:
    def __init__(
        self,
        host: Host | None,
        slow_request_ms: int,
        slow_turn_ms: int,
        lateness: Histogram | None = None,
    ) -> None:
        """A threshold of -1 means never. `lateness` records how late each look is."""
        self._host = host
        self._lateness = lateness or Histogram()
        self._slow_request = slow_request_ms / 1000 if slow_request_ms >= 0 else float("inf")
        self._slow_turn = slow_turn_ms / 1000 if slow_turn_ms >= 0 else float("inf")
        self.is_awake = host is None  # handling a request calls `wake` unless it is
        self.last: Request | None = None  # the request that was handled last
        self.conversations: dict[Conversation, None] = {}
        self._due = 0.0
        self._next_look = 0.0
        self._since: dict[Request, float] = {}  # when the oldest request of each conversation was first seen
        self._named: set[Request] = set()  # those of them that were found to be slow

    @classmethod
    def off(cls) -> "Watch":
        return cls(None, -1, -1)

    def wake(self) -> None:
        assert self._host is not None
        self.is_awake = True
        self._due = self._host.monotonic() + TICK_SECONDS
        self._next_look = self._due
        self._host.call_later(TICK_SECONDS, self._tick)

    def _tick(self) -> None:
        assert self._host is not None
        now = self._host.monotonic()
        self._lateness.observe(max(now - self._due, 0.0))
        if now - self._due >= self._slow_turn:
            self._name_turn(now - self._due)
        is_busy, self.last = self.last is not None, None
        if now >= self._next_look:
            self._look(now)
            self._next_look = now + self._slow_request / 2
        if is_busy or any(now - since < WATCHED_SECONDS for since in self._since.values()):
            self._due = now + TICK_SECONDS
            self._host.call_later(TICK_SECONDS, self._tick)
        else:
            self.is_awake = False

    def _name_turn(self, seconds: float) -> None:
        request = self.last
        last = (
            f"{name_of(request.api_key, request.version)} from {sender_of(request)}" if request else "nothing"
        )
        counted(
            log,
            logging.WARNING,
            "this broker",
            "the event loop was busy for long",
            "all clients waited for %s: the event loop or the machine was busy. Handled last: %s",
            duration(seconds),
            last,
            seconds=round(seconds, 3),
        )

    def _look(self, now: float) -> None:
        """At the oldest request of each conversation: those behind it wait for it."""
        waiting: dict[Request, float] = {}
        for conversation in self.conversations:
            for request in conversation.waiting:
                if request.api_key not in WAIT_BY_DESIGN:
                    waiting[request] = self._since.get(request, now)
                    break
        for request, since in self._since.items():
            if request in self._named and request not in waiting:
                self._named.discard(request)
                self._name_end(request, now - since)
        for request, since in waiting.items():
            if now - since >= self._slow_request and request not in self._named:
                self._named.add(request)
                self._name(request, now - since)
        self._since = waiting

    def _name(self, request: Request, seconds: float) -> None:
        text = f"has waited {duration(seconds)} for {_cause(request)}"
        self._write(logging.WARNING, request, "slow {} requests", text, seconds)

    def _name_end(self, request: Request, seconds: float) -> None:
        how = "got its response" if request.is_answered else "was given up, because its client disconnected,"
        text = f"{how} after {duration(seconds)}"
        self._write(logging.INFO, request, "ends of slow {} requests", text, seconds)

    @staticmethod
    def _write(level: int, request: Request, kind: str, text: str, seconds: float) -> None:
        counted(
            log,
            level,
            request.caller.host,
            kind.format(api_name(request.api_key)),
            "slow request: %s from %s %s",
            name_of(request.api_key, request.version),
            sender_of(request),
            text,
            seconds=round(seconds, 3),
            **request_fields(request),
        )


def _cause(request: Request) -> str:
    """Say what a request that has no response yet waits for."""
    if request.unfinished is not None:
        return "its turns to write a large response"
    return subject_of(request) or "its effect: look at other log lines of that time"
