"""The one thread that asks a cluster, however many people look.

Each part has a pause between two looks, which grows with the time that brokers take to respond: waiting for one part
takes at most an 800th of the time, and for all eight a hundredth, so that a cluster of 30,000 partitions pays as little
for its console as a small one. While nobody looks, pauses are longer; whoever comes wakes the
poller.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from odradek.admin.access import Access, Address
from odradek.admin.capabilities import APIS, served_apis
from odradek.admin.failures import AdminError
from odradek.admin.status import ask_anybody
from odradek.console.watch.disks import DisksTask
from odradek.console.watch.events import alive_brokers, group_events, topology_events
from odradek.console.watch.groups import ask_groups
from odradek.console.watch.metrics import MetricsTask
from odradek.console.watch.offsets import ask_offsets
from odradek.console.watch.seen import Event, Seen
from odradek.console.watch.topology import TopologyTask
from odradek.console.watch.transactions import ask_transactions

SHARE = 800  # waiting for brokers, for one of eight parts, takes at most this part of the time
HASTE = 20  # the same after a change
FIRST_SHARE = 10  # the same until all is known that many looks are needed for
IDLE_FACTOR = 10
LOOKED_AT_S = 60.0  # after a request somebody is still there
LONGEST_PAUSE_S = 300.0
KEEP_S = 60.0  # connections between two looks

log = logging.getLogger("odradek.console.watch")


@dataclass
class Part:
    name: str
    pause_s: float
    look: Callable[[], None]
    due_s: float = 0.0
    ended_s: float = 0.0  # the last look
    waited_s: float | None = None  # for brokers, by it
    share: int = SHARE


class Poller:
    """`changed` is told which parts have changed; `watchers` says how many streams are open."""

    def __init__(
        self, access: Access, changed: Callable[[list[str]], None], watchers: Callable[[], int] = lambda: 0
    ) -> None:
        self.seen = Seen()
        self._access = access
        self._changed, self._watchers = changed, watchers
        self._topology, self._disks, self._metrics = TopologyTask(), DisksTask(), MetricsTask()
        self._used_s = time.monotonic()
        self._wake = threading.Event()
        self._is_stopped = False
        self._first_look = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"watch {access.bootstrap}", daemon=True)
        self.parts = {
            one.name: one
            for one in (
                Part("topology", 2.0, self._look_at_topology),
                Part("nodes", 2.0, self._look_at_nodes),
                Part("settings", 30.0, self._look_at_settings),
                Part("offsets", 2.0, self._look_at_offsets),
                Part("groups", 3.0, self._look_at_groups),
                Part("transactions", 5.0, self._look_at_transactions),
                Part("disks", 20.0, self._look_at_disks),
                Part("metrics", 5.0, self._look_at_metrics),
            )
        }

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_stopped = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(15)

    def used(self) -> None:
        """Somebody looks: do not sleep as long as if nobody did."""
        was_idle = self._is_idle()
        self._used_s = time.monotonic()
        if was_idle:
            self.nudge()

    def nudge(self, *names: str) -> None:
        """Look again at once, because something was changed."""
        for name in names or self.parts:
            self.parts[name].due_s = 0.0
        self._wake.set()

    def _hasten(self, *names: str) -> None:
        """Look again soon, because something was seen to change; a look that takes long still has its pause."""
        for part in (self.parts[name] for name in names):
            part.due_s = min(part.due_s, part.ended_s + HASTE * (part.waited_s or 0.0))

    def wait_for_first_look(self, timeout_s: float) -> None:
        self._first_look.wait(timeout_s)

    def _is_idle(self) -> bool:
        return not self._watchers() and time.monotonic() - self._used_s > LOOKED_AT_S

    def _run(self) -> None:
        while not self._is_stopped:
            part = min(self.parts.values(), key=lambda one: one.due_s)
            left_s = part.due_s - time.monotonic()
            if left_s > 0:
                self._wake.wait(left_s)
                self._wake.clear()
                continue
            self._look(part)

    def _look(self, part: Part) -> None:
        before_s, cpu_before_s = time.monotonic(), time.thread_time()
        try:
            if part.name == "topology" or self.seen.problem is None:
                part.look()
        except AdminError as error:
            self._failed(part, error)
        except Exception:  # a console that no longer looks would show old truths
            log.exception("looking at the %s of %s failed", part.name, self._access.bootstrap)
        part.ended_s = time.monotonic()
        waited_s = part.ended_s - before_s - (time.thread_time() - cpu_before_s)
        # One slow response is no reason for a long pause, and the second look makes the first rates.
        cost_s = 0.0 if part.waited_s is None else min(part.waited_s, waited_s)
        part.waited_s = waited_s
        factor = IDLE_FACTOR if self._is_idle() else 1
        pause_s = part.share * cost_s
        if part.share == SHARE:
            pause_s = max(part.pause_s, pause_s) * factor
        part.due_s = time.monotonic() + min(pause_s, LONGEST_PAUSE_S)
        if part.name == "topology":
            self._first_look.set()

    def _failed(self, part: Part, error: AdminError) -> None:
        if part.name != "topology":
            log.debug("the %s of %s: %s", part.name, self._access.bootstrap, error)
            self._hasten("topology")
            return
        if self.seen.problem is None:
            self.seen.events.appendleft(Event(_now_ms(), "the cluster does not respond", True))
        self.seen.problem = str(error)
        self._tell("topology")

    def _tell(self, *names: str) -> None:
        for name in names:
            self.seen.seen_ms[name] = _now_ms()
            self.seen.versions[name] = self.seen.versions.get(name, 0) + 1
        self._changed(list(names))

    def _note(self, events: list[Event]) -> None:
        for event in reversed(events):  # the first of them is the cause
            self.seen.events.appendleft(event)
        if events:
            self._tell("events")

    # Looks

    def _addresses(self) -> dict[int, Address]:
        topology = self.seen.topology
        if topology is None:
            return {}
        return {
            one.broker: Address(one.host, one.port) for one in topology.status.brokers if not one.is_fenced
        }

    def _look_at_topology(self) -> None:
        seen = self.seen
        if not seen.apis:
            seen.apis = served_apis(self._access)
        found = self._topology.ask(self._access, seen.disks)
        before, seen.topology = seen.topology, found
        if seen.problem is not None:
            seen.problem = None
            self._note([Event(_now_ms(), "the cluster responds again")])
            self.nudge("offsets", "groups", "transactions", "disks")
        if before is not None:
            self._note(topology_events(before, found, _now_ms()))
            if before.topics.keys() != found.topics.keys():
                self._hasten("disks", "offsets")
        self._tell("topology")

    def _look_at_nodes(self) -> None:
        """Cheap in any cluster: who is there? If others than before, everything is looked at again."""
        topology = self.seen.topology
        if topology is None:
            return
        _, described = ask_anybody(self._access)
        alive = {one.broker_id for one in described.brokers if not one.is_fenced}
        if alive != alive_brokers(topology.status):
            self._hasten("topology")

    def _look_at_settings(self) -> None:
        """Asks for the settings of a few topics at a time, and quickly until each was asked for once."""
        topology, addresses = self.seen.topology, self._addresses()
        if topology is None or not addresses:
            return
        part, fewest = self.parts["settings"], self._topology.fewest
        fewest.ask_for_next(self._access, next(iter(addresses.values())), list(topology.topics))
        part.share = SHARE if fewest.is_complete(topology.topics) else FIRST_SHARE

    def _look_at_offsets(self) -> None:
        seen = self.seen
        if seen.topology is None:
            return
        now_s = time.monotonic()
        before = seen.offsets
        seen.offsets = ask_offsets(self._access, seen.topology.topics, self._addresses(), before, now_s)
        if before is not None:
            seen.throughput.append((_now_ms(), sum(seen.offsets.rates.values())))
        self._tell("offsets")

    def _look_at_groups(self) -> None:
        seen = self.seen
        before = seen.groups
        seen.groups = ask_groups(self._access, self._addresses(), seen.offsets, before or {})
        if before is not None:
            self._note(group_events(before, seen.groups, _now_ms()))
        self._tell("groups")

    def _look_at_transactions(self) -> None:
        if APIS["transactions"] in self.seen.apis:
            self.seen.transactions = ask_transactions(self._access)
            self._tell("transactions")

    def _look_at_disks(self) -> None:
        if self.seen.topology is None:
            return
        self.seen.disks = self._disks.ask(self._access, self._addresses(), time.monotonic())
        self._tell("disks")

    def _look_at_metrics(self) -> None:
        before, found = self.seen.load, self._metrics.ask(self._access, self._addresses(), time.monotonic())
        self.seen.load = found
        if found is not None or before is not None:
            self._tell("metrics")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
