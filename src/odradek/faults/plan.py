"""The faults that are armed, in the order in which they were requested. At most one of them happens to a request.

A fault names an API and, if it is not for every request of it, what the request must be about. It happens to as many
requests as asked for, and `fired` counts those to which it has happened: a response is lost when it would have been
sent. The test is told of each.
"""

import difflib
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from odradek.apis.items import has_codes
from odradek.apis.messages import response_type
from odradek.apis.row import Api, Items, Resource
from odradek.apis.table import APIS, BROKER, SERVED, named
from odradek.errors import ErrorCode
from odradek.serving.request import Request
from odradek.wire.codec import FOREVER

log = logging.getLogger(__name__)

API_KEYS = {api.name: api.key for api in SERVED[BROKER].values()}
FETCH = named("Fetch")
ERRORS = {code.name: code for code in ErrorCode if code is not ErrorCode.NONE}
FORMER_NAMES = {  # which clients still have
    "NOT_LEADER_FOR_PARTITION": "NOT_LEADER_OR_FOLLOWER",
    "GROUP_LOAD_IN_PROGRESS": "COORDINATOR_LOAD_IN_PROGRESS",
    "GROUP_COORDINATOR_NOT_AVAILABLE": "COORDINATOR_NOT_AVAILABLE",
    "NOT_COORDINATOR_FOR_GROUP": "NOT_COORDINATOR",
}


class BadFault(Exception):
    """A fault that cannot be, and why."""


class Kind(StrEnum):
    ANSWER = "answer"  # with an error code
    DELAY = "delay"  # the response
    LOSE = "lose"  # the response
    HOLD = "hold"  # the request
    CUT = "cut"  # the connection


@dataclass(frozen=True, slots=True)
class Concern:
    """The subject that a request must have; None: any."""

    topic: str | None = None
    partition: int | None = None
    group: str | None = None
    client_id: str | None = None


@dataclass(slots=True)
class Fault:
    id: int
    kind: Kind
    api_key: int
    concern: Concern = Concern()
    times: int | None = 1  # None: every time
    error: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR  # of ANSWER
    seconds: float | None = None  # of DELAY and HOLD; None: until released
    after_handling: bool = False  # of ANSWER and CUT
    taken: int = 0
    fired: int = 0
    is_undone: bool = False  # requests that it matched but has not happened to continue as usual
    # Ends the effect on the requests that it holds now: release, send, or close.
    endings: list[Callable[[], object]] = field(default_factory=list)

    def ended(self, ending: Callable[[], object]) -> None:
        """A request is no longer under it."""
        with suppress(ValueError):
            self.endings.remove(ending)

    def release(self) -> None:
        endings, self.endings = self.endings, []
        for end in endings:
            end()

    def __str__(self) -> str:
        return f"fault {self.id} ({self.kind} {APIS[self.api_key].name})"


class Plan:
    def __init__(self, on_fired: Callable[[int], None] = lambda fault_id: None) -> None:
        self.on_fired = on_fired
        self._armed: dict[int, Fault] = {}
        self._ending: dict[int, Fault] = {}  # have matched all their requests, and still hold some

    def arm(self, fault: Fault) -> None:
        self._armed[fault.id] = fault

    def undo(self, fault_id: int) -> None:
        """It matches no more requests, and releases those it holds. It is fine if it is already gone."""
        for faults in (self._armed, self._ending):
            if fault := faults.pop(fault_id, None):
                fault.is_undone = True
                fault.release()

    def release(self, fault_id: int) -> None:
        """Release the requests it holds; it still applies to others, if it has times left."""
        if fault := self._armed.get(fault_id) or self._ending.pop(fault_id, None):
            fault.release()

    def clear(self) -> None:
        for fault_id in (*self._armed, *self._ending):
            self.undo(fault_id)

    def of_api(self, api_key: int) -> list[Fault]:
        return [fault for fault in self._armed.values() if fault.api_key == api_key]

    def take(self, fault: Fault) -> None:
        """A request has met it."""
        fault.taken += 1
        if fault.times is not None and fault.taken >= fault.times:
            self._ending[fault.id] = self._armed.pop(fault.id)

    def fire(self, fault: Fault, request: Request) -> None:
        """It has happened to a request."""
        fault.fired += 1
        count = f"{fault.fired}" if fault.times is None else f"{fault.fired} of {fault.times}"
        client = request.caller.client_id or "a client"
        log.info("%s happened to %s at %s, %s", fault, client, request.caller.address, count)
        self.on_fired(fault.id)


# --- parsing a test's command ---


def read_fault(asked: dict[str, Any]) -> Fault:
    """Raises BadFault, with a suggestion."""
    api_key = _known(asked["api"], API_KEYS, "the broker does not serve {!r}")
    name = APIS[api_key].name
    concern = Concern(asked.get("topic"), asked.get("partition"), asked.get("group"), asked.get("client_id"))
    if concern.topic is not None and not names_topics(APIS[api_key]):
        raise BadFault(f"a fault of {name} cannot be for one topic{_instead(api_key)}")
    if concern.partition is not None and concern.topic is None:
        raise BadFault("a partition needs its topic: name the topic too")
    if concern.partition is not None and not names_partitions(APIS[api_key]):
        raise BadFault(f"a fault of {name} cannot be for one partition, only for a topic")
    if concern.group is not None and not names_groups(APIS[api_key]):
        raise BadFault(f"a fault of {name} cannot be for one group{_instead(api_key)}")
    times = asked.get("times", 1)
    if times is not None and times < 1:
        raise BadFault(f"times={times}: a fault happens at least once; None is for every request")
    seconds = asked.get("seconds")
    if seconds is not None and seconds < 0:
        raise BadFault(f"seconds={seconds}: it must not be negative")
    fault = Fault(asked["id"], Kind(asked["kind"]), api_key, concern, times, seconds=seconds)
    fault.after_handling = asked.get("after_handling", False)
    if fault.kind is Kind.ANSWER:
        fault.error = _known(asked["error"], ERRORS, "Kafka has no error {!r}")
    return fault


# The fields that an API can be narrowed down by, so that a part of the request can be separated.


def names_topics(api: Api) -> bool:
    return any("resource_name" in items.names or _is_by_topic(api, items) for items in api.items)


def names_partitions(api: Api) -> bool:
    return any(_is_by_topic(api, items) and items.inner is not None for items in api.items)


def _is_by_topic(api: Api, items: Items) -> bool:
    """In every version, and with a code for each. A response to Fetch is spoilt where its topics are (`responses`)."""
    is_always_refused = items.refused_until == FOREVER or api is FETCH
    return items.resource is Resource.TOPIC and is_always_refused and has_codes(items, response_type(api.key))


def names_groups(api: Api) -> bool:
    """True if requests name groups, as a whole or as items. FindCoordinator names groups or transactional ids."""
    return any(items.resource is Resource.GROUP or "key" in items.names for items in api.items) or any(
        need.resource is Resource.GROUP for need in api.access.needs
    )


def _instead(api_key: int) -> str:
    api = APIS[api_key]
    other = "topic" if names_topics(api) else "group" if names_groups(api) else None
    return f", but for one {other}" if other else ""


def _known(name: str, known: dict[str, Any], complaint: str) -> Any:
    if name not in known:
        likely = FORMER_NAMES.get(name) or _closest(name, known)
        hint = f": did you mean {likely}?" if likely else ""
        raise BadFault(complaint.format(name) + hint)
    return known[name]


def _closest(name: str, known: Iterable[str]) -> str | None:
    by_letters = {_letters(each): each for each in known}
    close = difflib.get_close_matches(_letters(name), list(by_letters), n=1)
    return by_letters[close[0]] if close else None


def _letters(name: str) -> str:
    return name.replace("_", "").lower()
