"""Cutting a broker off from its peers: what a test asks for, and keeps asking for when the broker starts again.

The broker itself cuts its wires, in both directions (`odradek.faults.wires`): its peers are not asked to do anything.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Literal, Protocol

from odradek.testing.control import Control, ControlClosed

Peer = int | Literal["brokers", "clients"]
BROKERS, CLIENTS = "brokers", "clients"


class BrokerWithWires(Protocol):
    @property
    def peers(self) -> Sequence[int]:
        """The other brokers of its cluster."""

    @property
    def is_responsive(self) -> bool: ...

    @property
    def open_control(self) -> Control | None:
        """The id of its process, which may be paused; None if there is none."""


class Cut:
    """Wires that are cut. As a context manager it is undone at the end of the block."""

    def __init__(self, wires: "Wires", peers: frozenset[int | str], is_deaf: bool, is_mute: bool) -> None:
        self._wires = wires
        self.peers = peers
        self.is_deaf = is_deaf
        self.is_mute = is_mute

    def undo(self) -> None:
        """Deliver now, late, what has waited."""
        self._wires.undo(self)

    def __enter__(self) -> "Cut":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.undo()


class Wires:
    def __init__(self, broker: BrokerWithWires) -> None:
        self._broker = broker
        self._cuts: list[Cut] = []

    def cut(self, peers: Iterable[Peer], *, is_deaf: bool = False, is_mute: bool = False) -> Cut:
        cut = Cut(self, self._resolved(peers), is_deaf, is_mute)
        self._cuts.append(cut)
        self._apply()
        return cut

    def undo(self, cut: Cut) -> None:
        if cut in self._cuts:
            self._cuts.remove(cut)
            self._apply()

    def heal(self) -> None:
        if self._cuts:
            self._cuts.clear()
            self._apply()

    @property
    def are_whole(self) -> bool:
        return not self._cuts

    @property
    def reach_clients(self) -> bool:
        return not any(CLIENTS in cut.peers for cut in self._cuts)

    def tell(self, control: Control) -> None:
        """A broker that is about to start."""
        if self._cuts:
            control.tell("cut wires", **self._state())

    def _apply(self) -> None:
        control = self._broker.open_control
        if control is not None:
            with suppress(ControlClosed):
                carry_out = control.ask if self._broker.is_responsive else control.tell
                carry_out("cut wires", **self._state())

    def _state(self) -> dict[str, list[int | str]]:
        deaf_to = {peer: None for cut in self._cuts if cut.is_deaf for peer in cut.peers}
        mute_to = {peer: None for cut in self._cuts if cut.is_mute for peer in cut.peers}
        return {"deaf_to": list(deaf_to), "mute_to": list(mute_to)}

    def _resolved(self, peers: Iterable[Peer]) -> frozenset[int | str]:
        found: set[int | str] = set()
        for peer in tuple(peers) or (BROKERS, CLIENTS):
            if peer == BROKERS:
                found.update(self._broker.peers)
            elif peer == CLIENTS or peer in self._broker.peers:
                found.add(peer)
            else:
                known = ", ".join(map(str, (*self._broker.peers, repr(BROKERS), repr(CLIENTS))))
                raise ValueError(f"a broker cannot be cut off from {peer!r}, only from {known}")
        return frozenset(found)
