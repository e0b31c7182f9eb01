"""The socket over which a test asks for faults: one JSON object per line, from and to the process that started us.

In:  `{"number": …, "do": "arm" | "undo" | "release" | "clear" | "nothing" | "hold syncs" | "release syncs" |
     "fill disk" | "free disk" | "cut power" | "cut wires" | "join", …}`
Out: `{"done": number}` or `{"refused": number, "reason": …}` for each, in order, and `{"fired": fault id}` whenever a
     fault happens. After a power cut nothing more comes: the process has exited.

Commands that are there before the broker is built are carried out first: they are in force from its beginning.
When the other side closes it, or dies, all faults are undone and the broker stops as SIGTERM stops it.
"""

import asyncio
import json
import logging
import os
import signal
import socket
from collections.abc import Callable
from typing import Any

from odradek.faults.founding import Founding
from odradek.faults.plan import BadFault, Plan, read_fault
from odradek.faults.wires import Wires
from odradek.storage.disk.lossy import LossyFiles

log = logging.getLogger(__name__)

RECEIVE_BYTES = 64 * 1024


class Control:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        channel: socket.socket,
        plan: Plan,
        files: LossyFiles,
        wires: Wires,
        founding: Founding,
    ) -> None:
        self._loop = loop
        self._channel = channel
        self._plan = plan
        self._files = files
        self._wires = wires
        self._received = b""
        self._commands: dict[str, Callable[[dict[str, Any]], None]] = {
            "arm": lambda command: plan.arm(read_fault(command["fault"])),
            "undo": lambda command: plan.undo(command["id"]),
            "release": lambda command: plan.release(command["id"]),
            "clear": lambda command: self.undo_all(),
            "nothing": lambda command: None,
            "hold syncs": self._hold_syncs,
            "release syncs": lambda command: files.release_syncs(),
            "fill disk": self._fill_disk,
            "free disk": lambda command: files.free(),
            "cut power": lambda command: self._cut_power(),
            "cut wires": lambda command: wires.cut(command["deaf_to"], command["mute_to"]),
            "join": founding.join,
        }
        plan.on_fired = self._fired
        loop.add_reader(channel, self._read)

    def undo_all(self) -> None:
        self._plan.clear()
        self._files.release_syncs()
        self._files.free()

    def obey_what_waits(self) -> None:
        try:
            self._hear(self._channel.recv(RECEIVE_BYTES, socket.MSG_DONTWAIT))
        except BlockingIOError:
            pass

    def _read(self) -> None:
        try:
            received = self._channel.recv(RECEIVE_BYTES)
        except OSError:
            received = b""
        self._hear(received)

    def _hear(self, received: bytes) -> None:
        if not received:
            self._loop.remove_reader(self._channel)
            self.undo_all()
            self._wires.cut((), ())
            os.kill(os.getpid(), signal.SIGTERM)
            return
        *lines, self._received = (self._received + received).split(b"\n")
        for line in lines:
            self._obey(json.loads(line))

    def _obey(self, command: dict[str, Any]) -> None:
        try:
            self._commands[command["do"]](command)
        except BadFault as refusal:
            self._send({"refused": command["number"], "reason": str(refusal)})
        except Exception as error:
            log.exception("cannot carry out the test's command: %s", command["do"])
            self._send({"refused": command["number"], "reason": f"the broker failed: {error!r}"})
        else:
            self._send({"done": command["number"]})

    def _send(self, message: dict[str, Any]) -> None:
        try:
            self._channel.sendall(json.dumps(message).encode() + b"\n")
        except OSError as error:  # the other side is gone; `_read` will notice
            log.debug("cannot tell the test: %s", error)

    def _fired(self, fault_id: int) -> None:
        self._send({"fired": fault_id})

    def _hold_syncs(self, command: dict[str, Any]) -> None:
        def on_held() -> None:
            self._loop.call_soon_threadsafe(self._fired, command["id"])

        self._files.hold_syncs(on_held)

    def _fill_disk(self, command: dict[str, Any]) -> None:
        def on_full() -> None:
            self._loop.call_soon_threadsafe(self._fired, command["id"])

        self._files.fill(on_full)

    def _cut_power(self) -> None:
        log.info("cutting the power, as the test asked: data that was not synced is lost")
        self._files.cut_power()
        os.kill(os.getpid(), signal.SIGKILL)
