"""The computer that a broker runs on: a disk, a clock, a place in the network, and a power switch.

The broker is the product's own `Node`, as it is. Its power may be cut at any time, and in the middle of any change to
its disk: then it comes no further, its connections fall silent, and the disk loses what was not synced.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import cache
from random import Random
from typing import TYPE_CHECKING, Any

from odradek.broker.node import Node
from odradek.config.broker import BrokerConfig
from odradek.host.simulated import SimulatedHost
from odradek.storage.disk.simulated import PowerCut, SimulatedFiles

if TYPE_CHECKING:
    from tests.simulation.world import World

DATA_DIR = "/data"
PORT = 9092
CATCH_UP_SECONDS = 0.5

Settings = tuple[tuple[str, str], ...]


class CannotStart(Exception):
    """The broker refused to start, or its power was cut while it did."""


@cache
def _config(settings: Settings) -> BrokerConfig:
    return BrokerConfig(dict(settings))


class Machine:
    def __init__(
        self, world: "World", name: str, settings: dict[str, str], sync_seconds: float = 0.0002
    ) -> None:
        self._world = world
        self.name = name
        self._rng = world.new_rng()
        self._settings = {
            "listeners": f"PLAINTEXT://{name}:{PORT}",
            "log.dirs": DATA_DIR,
            **settings,
        }
        self.files = SimulatedFiles()
        self.node: Node | None = None  # while it is on
        self.host: SimulatedHost | None = None
        self.sync_seconds = sync_seconds  # how long a sync takes at most
        self.max_work_seconds: float | None = None  # how long threads take, if not as they usually do
        self._was_short = -CATCH_UP_SECONDS  # when it last was
        self._former: list[object] = []  # hosts and nodes without power, which must not be collected in a run
        self.starts = 0
        self.crashes = 0
        self.pauses = 0
        self.lossy_crashes = 0  # those that threw away written bytes
        self.on_power_cut: Callable[[], None] = lambda: None
        self._jumped_ms = 0
        self._changes_left = 0  # until the power is cut
        self._syncs_left = 0
        self._near = ""
        self._loss: Random | None = None
        self._is_scattered = False
        self._ended: asyncio.Future[None] = world.loop.create_future()

    @property
    def is_on(self) -> bool:
        return self.host is not None

    # --- life ---

    async def start(self) -> None:
        """Returns when clients are served. Raises CannotStart."""
        assert not self.is_on
        self.starts += 1
        self._ended = self._world.loop.create_future()
        self._world.note(self.name, "starts")
        self._world.network.crash(self.name)
        self._world.network.restart(self.name)
        self.host = host = SimulatedHost(self._world.loop, self._world.new_rng(), self.files, self.name)
        host.jump(self._jumped_ms)
        host.max_work_seconds = self.max_work_seconds or host.max_work_seconds
        self.files.on_sync, self.files.on_change = self._before_sync, self._before_change
        try:
            self.node = host.context.run(self._new_node, host)
            await self._run(self.node.start())
        except PowerCut:
            raise CannotStart("the power was cut") from None
        except Exception as error:
            self._world.note(self.name, f"cannot start: {error!r}")
            if self.is_on:
                self._switch_off()
                self.files = self.files.cut_power()  # as a process that exits: what is written stays
            raise CannotStart(repr(error)) from error
        self._world.note(self.name, "serves")
        self._world.started(self)

    def _new_node(self, host: SimulatedHost) -> Node:
        self._world.loop.ran[self.name] = None
        return Node(
            _config(tuple(self._settings.items())),
            host,
            self._world.network.place(self.name, host.context),
            self.files,
            self._world.new_rng(),
            on_failure=lambda: self._world.spawn(self._stop_failed(host)),
        )

    async def _stop_failed(self, host: SimulatedHost) -> None:
        """Stop like a process that ends because its broker cannot go on."""
        if self.host is host and self.node is not None:
            self._world.note(self.name, f"fails: {self.node.failure}")
            await self.stop()

    async def stop(self) -> None:
        """Cleanly; does nothing if it is off."""
        if self.node is None:
            return
        self._world.note(self.name, "stops")
        try:
            await self._run(self.node.stop())
        except PowerCut:
            return
        if self.is_on:
            self._switch_off()
            self.files = self.files.cut_power()  # what is written stays, synced or not: only the process ends

    async def _run(self, work: Coroutine[Any, Any, None]) -> None:
        """Let the node do this. Raises PowerCut if it cannot be done."""
        assert self.host is not None
        task, ended = self.host.create_task(work), self._ended
        done: asyncio.Future[None] = self._world.loop.create_future()

        def finish(_: object) -> None:
            if not done.done():
                done.set_result(None)

        task.add_done_callback(finish)
        ended.add_done_callback(finish)
        await done
        if ended.done():  # maybe just after it was done
            raise PowerCut
        task.result()

    def _switch_off(self) -> None:
        assert self.host is not None
        self.host.cut_power()
        self._former += [self.host, self.node, self.files]
        self.host = self.node = None
        self._changes_left = self._syncs_left = 0
        self._world.network.crash(self.name)
        if not self._ended.done():
            self._ended.set_result(None)

    # --- power ---

    def cut_power(self, loss: Random | None = None, is_scattered: bool = False) -> int:
        """Now. Everything that was not synced is lost, or, with `loss`, a random part of it. Returns how many written
        bytes were lost."""
        assert self.is_on
        self._switch_off()
        self.files = self.files.cut_power()
        lost = self.files.crash(loss, is_scattered)
        self.crashes += 1
        self.on_power_cut()
        self.lossy_crashes += lost > 0
        self._world.note(self.name, f"loses power, and {lost} bytes that were not synced")
        return lost

    def cut_power_at(
        self,
        changes: int = 0,
        syncs: int = 0,
        loss: Random | None = None,
        is_scattered: bool = False,
        near: str = "",
    ) -> None:
        """Before the n-th next change to the disk, or before the n-th next sync. Changes count from the first on whose
        path has `near` in it."""
        self._changes_left, self._syncs_left, self._near = changes, syncs, near
        self._loss, self._is_scattered = loss, is_scattered

    async def off(self) -> None:
        """Wait until it is off."""
        if self.is_on:
            ended: asyncio.Future[None] = self._world.loop.create_future()
            self._ended.add_done_callback(lambda _: ended.done() or ended.set_result(None))
            await ended

    def _before_change(self, path: str) -> None:
        if self._changes_left and self._near in path:
            self._near = ""
            self._changes_left -= 1
            if self._changes_left == 0:
                self._cut_power_here()

    def _before_sync(self) -> None:
        self._world.loop.spend(self._rng.random() * self.sync_seconds)
        if self._syncs_left:
            self._syncs_left -= 1
            if self._syncs_left == 0:
                self._cut_power_here()

    def _cut_power_here(self) -> None:
        self.cut_power(self._loss, self._is_scattered)
        raise PowerCut

    # --- other faults ---

    @property
    def is_paused(self) -> bool:
        return self.host is not None and self.host.is_paused

    def pause(self) -> None:
        """Stop everything, like SIGSTOP does to a process."""
        assert self.host is not None
        self.pauses += 1
        self.host.pause()
        self._world.network.pause(self.name)
        self._world.note(self.name, "is paused")

    def resume(self) -> None:
        """Does nothing if it is not paused."""
        if self.host is not None and self.host.is_paused:
            self._world.note(self.name, "goes on")
            self.host.resume()
            self._world.network.resume(self.name)

    def configure(self, settings: dict[str, str]) -> None:
        """Use these settings from the next start on."""
        self._settings |= settings

    def replace_disk(self) -> None:
        """Replace the disk by an empty one."""
        assert not self.is_on
        self.files = SimulatedFiles()
        self._world.note(self.name, "has a new disk")

    def fill_disk(self, free_bytes: int = 0) -> None:
        self.files.free_bytes = free_bytes
        self._world.note(self.name, f"has {free_bytes} bytes of its disk left")

    def clear_disk(self) -> None:
        self.files.free_bytes = None
        self._world.note(self.name, "has space on its disk again")

    def take_descriptors(self, after: int = 0) -> None:
        self.files.run_out_of_descriptors(after)
        self._world.note(self.name, f"has {after} descriptors left")

    def free_descriptors(self) -> None:
        self.files.free_descriptors()
        self._world.note(self.name, "has descriptors again")

    def heal(self) -> None:
        if self.is_short:
            self._was_short = self._world.now()
        if self.files.free_bytes is not None:
            self.clear_disk()
        if self.files.opens_left is not None:
            self.free_descriptors()

    @property
    def is_short(self) -> bool:
        """True if it lacks space or descriptors: requests may fail, and a start may."""
        return self.files.free_bytes is not None or self.files.opens_left is not None

    @property
    def was_short_lately(self) -> bool:
        """Or still is: what could not be done then may not have been caught up with."""
        return self.is_short or self._world.now() < self._was_short + CATCH_UP_SECONDS

    def jump(self, milliseconds: int) -> None:
        """Somebody sets the clock."""
        self._jumped_ms += milliseconds
        if self.host is not None:
            self.host.jump(milliseconds)
        self._world.note(self.name, f"has its clock set by {milliseconds} ms")
