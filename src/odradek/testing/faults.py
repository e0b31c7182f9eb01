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
from typing import Any, Protocol, Self, TypeVar

from odradek.testing.control import Control, ControlClosed

PATIENCE_S = 30.0


class NotHappened(AssertionError):
    """A fault did not happen in time."""


class BrokerWithControl(Protocol):
    """What faults know of their broker."""

    @property
    def control(self) -> Control:
        """Of the process that runs now. Raises where there is none, or where it is paused."""

    @property
    def is_responsive(self) -> bool:
        """Whether the process runs, and is not paused."""


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
        """How many requests it has happened to."""
        if self._broker.is_responsive:
            self._control.catch_up()
        return self._control.fired(self._number)

    @property
    def happened(self) -> bool:
        """Whether it has happened to a request."""
        return self.fired > 0

    def wait(self, times: int = 1, timeout: float = PATIENCE_S) -> None:
        """Wait until it has happened so often. Raises NotHappened, an AssertionError, where it does not in time."""
        if not self._control.wait_for(self._number, times, timeout):
            count = self._control.fired(self._number)
            meanwhile = f"in {timeout:g} s" if self._control.is_open else "before the broker ended"
            raise NotHappened(f"{self._description} happened {count} times {meanwhile}, not {times}")

    def undo(self) -> None:
        """It happens to no more requests, and lets go of those that are under it."""
        self._end("undo", id=self._number)

    def _end(self, command: str, **what: Any) -> None:
        """Nothing happens if the broker has ended since: its faults have ended with it."""
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
    """A disk that does not sync."""

    def release(self) -> None:
        self._end("release syncs")

    def undo(self) -> None:
        self.release()


class Faults:
    """What a test can ask of its broker.

    `api` is one of Kafka's names: Produce, Fetch, JoinGroup … A fault is for the next `times` requests of it, or with
    times=None for all until it is undone. It can be only for those that name a `topic`, a `partition` of it, or a
    `group`, or that come from one `client_id`. Where several faults fit a request, the one that was asked for first
    happens to it, and no other.
    """

    def __init__(self, broker: BrokerWithControl) -> None:
        self._broker = broker

    def answer(
        self,
        api: str,
        error: str,
        *,
        times: int | None = 1,
        topic: str | None = None,
        partition: int | None = None,
        group: str | None = None,
        client_id: str | None = None,
        after_handling: bool = False,
    ) -> Fault:
        """Answer with an error code: without doing what was asked, or, `after_handling`, having done it.

        Where a request names other topics, partitions or groups too, those are handled as ever.
        """
        concern = _concern(topic, partition, group, client_id)
        what = {"error": error, "after_handling": after_handling, "times": times}
        return self._arm(Fault, f"{error} to {api}", kind="answer", api=api, **what, **concern)

    def delay(
        self,
        api: str,
        seconds: float,
        *,
        times: int | None = 1,
        topic: str | None = None,
        partition: int | None = None,
        group: str | None = None,
        client_id: str | None = None,
    ) -> Fault:
        """Do what was asked, and send the response so many seconds later."""
        concern = _concern(topic, partition, group, client_id)
        what = {"seconds": seconds, "times": times}
        return self._arm(Fault, f"a delayed {api} response", kind="delay", api=api, **what, **concern)

    def lose_response(
        self,
        api: str,
        *,
        times: int | None = 1,
        topic: str | None = None,
        partition: int | None = None,
        group: str | None = None,
        client_id: str | None = None,
    ) -> Fault:
        """Do what was asked, and never say so: the connection stays open, but nothing more comes over it."""
        concern = _concern(topic, partition, group, client_id)
        return self._arm(Fault, f"a lost {api} response", kind="lose", api=api, times=times, **concern)

    def hold(
        self,
        api: str,
        *,
        seconds: float | None = None,
        times: int | None = 1,
        topic: str | None = None,
        partition: int | None = None,
        group: str | None = None,
        client_id: str | None = None,
    ) -> Held:
        """Hold a request back before it is handled: for so many seconds, or until `release`. Requests behind it on
        its connection wait too, other connections go on."""
        concern = _concern(topic, partition, group, client_id)
        what = {"seconds": seconds, "times": times}
        return self._arm(Held, f"a held {api} request", kind="hold", api=api, **what, **concern)

    def cut(
        self,
        api: str,
        *,
        times: int | None = 1,
        topic: str | None = None,
        partition: int | None = None,
        group: str | None = None,
        client_id: str | None = None,
        after_handling: bool = False,
    ) -> Fault:
        """Close the connection when such a request comes: before it is handled, or, `after_handling`, in place of
        its response."""
        concern = _concern(topic, partition, group, client_id)
        what = {"after_handling": after_handling, "times": times}
        return self._arm(Fault, f"a connection cut at {api}", kind="cut", api=api, **what, **concern)

    def hold_syncs(self) -> HeldSyncs:
        """Let nothing that is written become durable, until `release`: what waits for that (acks=all, commits of
        offsets, records that consumers may see) waits. A `power_cut` then loses it."""
        control = self._broker.control
        control.ask("hold syncs")
        return HeldSyncs(self._broker, control, control.next_number(), "a disk that does not sync")

    def clear(self) -> None:
        """Undo all faults; those of a broker that has ended are undone already."""
        with suppress(ControlClosed):
            if self._broker.is_responsive:
                self._broker.control.ask("clear")

    def _arm(self, fault_type: type[F], description: str, **asked: Any) -> F:
        control = self._broker.control
        number = control.next_number()
        control.ask("arm", fault={"id": number, **asked})
        return fault_type(self._broker, control, number, description)


def _concern(
    topic: str | None, partition: int | None, group: str | None, client_id: str | None
) -> dict[str, Any]:
    return {"topic": topic, "partition": partition, "group": group, "client_id": client_id}
