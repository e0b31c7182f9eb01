"""Faults that a test asks of its broker: errors, delayed and lost responses, held requests, cut connections.

    with broker.faults.answer("Produce", error="NOT_LEADER_OR_FOLLOWER", times=2) as fault:
        ...  # the next two Produce requests are refused
    assert fault.happened

A fault is armed when the call returns. It is undone at the end of its block, by `undo`, by `broker.faults.clear()`,
when the broker stops or crashes, and, with the fixtures of pytest, at the end of the test. docs/TESTING.md explains
each.
"""

from contextlib import suppress
from types import TracebackType
from typing import Any, Protocol, Self, TypedDict, TypeVar, Unpack

from odradek.testing.control import Control, ControlClosed

PATIENCE_S = 30.0


class NotHappened(AssertionError):
    """A fault did not happen in time."""


class BrokerWithControl(Protocol):
    """The broker, as far as faults know it."""

    @property
    def control(self) -> Control:
        """The id of the running process. Raises if there is none, or if it is paused."""

    @property
    def is_responsive(self) -> bool:
        """True if the process runs, and is not paused."""


class Fault:
    """A fault that was asked for. As a context manager it is undone at the end of the block."""

    def __init__(self, broker: BrokerWithControl, control: Control, number: int, description: str) -> None:
        self._broker = broker
        self._control = control
        self._number = number
        self._description = description

    def __repr__(self) -> str:
        return f"<{self._description}: happened {self._control.fired(self._number)} times>"

    @property
    def fired(self) -> int:
        """The number of requests that it has happened to."""
        if self._broker.is_responsive:
            self._control.catch_up()
        return self._control.fired(self._number)

    @property
    def happened(self) -> bool:
        """True if it has happened to a request."""
        return self.fired > 0

    def wait(self, times: int = 1, timeout: float = PATIENCE_S) -> None:
        """Wait until it has happened so often. Raises NotHappened, an AssertionError, where it does not in time."""
        if not self._control.wait_for(self._number, times, timeout):
            count = self._control.fired(self._number)
            meanwhile = f"in {timeout:g} s" if self._control.is_open else "before the broker exited"
            raise NotHappened(f"{self._description} happened {count} times {meanwhile}, not {times}")

    def undo(self) -> None:
        """It happens to no more requests, and lets go of those that are under it."""
        self._end("undo", id=self._number)

    def _end(self, command: str, **what: Any) -> None:
        """End the fault. This does nothing if the broker has ended since: its faults have ended with it."""
        with suppress(ControlClosed):
            if self._broker.is_responsive:
                self._control.ask(command, **what)
            else:
                self._control.tell(command, **what)  # and a paused broker does it when it goes on

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.undo()


F = TypeVar("F", bound=Fault)


class Held(Fault):
    """A fault that holds requests back."""

    def release(self) -> None:
        """Let those that are held go on. Later ones are held, if there are times left."""
        self._end("release", id=self._number)


class HeldSyncs(Fault):
    """A disk that does not sync. It has `happened` once something that was written waits to become durable."""

    def release(self) -> None:
        self._end("release syncs")

    def undo(self) -> None:
        self.release()


class FullDisk(Fault):
    """A disk without space. It has `happened` once a write failed."""

    def undo(self) -> None:
        self._end("free disk")


class Which(TypedDict, total=False):
    """The requests that a fault happens to. Without any of these it is the next one, whatever it is about."""

    times: int | None  # the next so many; None: all, until the fault is undone
    topic: str  # those that name this topic
    partition: int  # of the topic
    group: str
    client_id: str


class Faults:
    """The faults that a test can ask of its broker.

    `api` is one of Kafka's names: Produce, Fetch, JoinGroup … `which` is one or more of `times`, `topic`,
    `partition`, `group` and `client_id` (see `Which`). Where several faults fit a request, the one that was asked for
    first happens to it, and no other.
    """

    def __init__(self, broker: BrokerWithControl) -> None:
        self._broker = broker

    def answer(self, api: str, error: str, *, after_handling: bool = False, **which: Unpack[Which]) -> Fault:
        """Answer with an error code: without doing what was asked, or, `after_handling`, having done it.

        Where a request names other topics, partitions or groups too, those are handled as ever.
        """
        what = {"error": error, "after_handling": after_handling}
        return self._arm(Fault, f"{error} to {api}", "answer", api, which, **what)

    def delay(self, api: str, seconds: float, **which: Unpack[Which]) -> Fault:
        """Do what was asked, and send the response so many seconds later."""
        return self._arm(Fault, f"a delayed {api} response", "delay", api, which, seconds=seconds)

    def lose_response(self, api: str, **which: Unpack[Which]) -> Fault:
        """Do what was asked, and never say so: the connection stays open, but nothing more comes over it."""
        return self._arm(Fault, f"a lost {api} response", "lose", api, which)

    def hold(self, api: str, *, seconds: float | None = None, **which: Unpack[Which]) -> Held:
        """Hold a request back before it is handled: for so many seconds, or until `release`. Requests behind it on
        its connection wait too, other connections go on."""
        return self._arm(Held, f"a held {api} request", "hold", api, which, seconds=seconds)

    def cut(self, api: str, *, after_handling: bool = False, **which: Unpack[Which]) -> Fault:
        """Close the connection when such a request comes: before it is handled, or, `after_handling`, in place of
        its response."""
        description = f"a connection cut at {api}"
        return self._arm(Fault, description, "cut", api, which, after_handling=after_handling)

    def hold_syncs(self) -> HeldSyncs:
        """Let nothing that is written become durable, until `release`: what waits for that (acks=all, commits of
        offsets, records that consumers may see) waits. A `power_cut` then loses it."""
        control = self._broker.control
        number = control.next_number()
        control.ask("hold syncs", id=number)
        return HeldSyncs(self._broker, control, number, "a held sync")

    def fill_disk(self) -> FullDisk:
        """Let every write fail that needs space, until `undo`. The broker refuses records with KAFKA_STORAGE_ERROR, and
        gives its leaderships to other in-sync replicas. About ten seconds after `undo` it accepts records again."""
        control = self._broker.control
        number = control.next_number()
        control.ask("fill disk", id=number)
        return FullDisk(self._broker, control, number, "a full disk")

    def clear(self) -> None:
        """Undo all faults; those of a broker that has ended are undone already."""
        with suppress(ControlClosed):
            if self._broker.is_responsive:
                self._broker.control.ask("clear")

    def _arm(
        self, fault_type: type[F], description: str, kind: str, api: str, which: Which, **what: Any
    ) -> F:
        if strangers := which.keys() - Which.__annotations__.keys():
            known = ", ".join(Which.__annotations__)
            raise TypeError(
                f"a fault cannot be narrowed down by {', '.join(sorted(strangers))}, only by {known}"
            )
        control = self._broker.control
        number = control.next_number()
        control.ask("arm", fault={"id": number, "kind": kind, "api": api, **which, **what})
        return fault_type(self._broker, control, number, description)
