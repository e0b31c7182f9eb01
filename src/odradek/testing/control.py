"""The test's end of the socket for faults (the broker's end is `odradek.faults.control`).

A thread reads what the broker says: a reply to each command, and which faults have happened. Any thread may ask.
"""

import json
import socket
import threading
from collections import Counter
from itertools import count
from typing import Any

REPLY_TIMEOUT_S = 30.0


class ControlClosed(Exception):
    """The broker has exited."""

    def __init__(self) -> None:
        super().__init__("the broker has exited")


class Control:
    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._numbers = count(1)
        self._changed = threading.Condition()  # over all below
        self._replies: dict[int, str | None] = {}  # by number of the command: why it was refused, if it was
        self._fired: Counter[int] = Counter()  # by number of the fault
        self._is_open = True
        self._reader = threading.Thread(target=self._read, name="odradek-faults", daemon=True)
        self._reader.start()

    @property
    def is_open(self) -> bool:
        return self._is_open

    def next_number(self) -> int:
        return next(self._numbers)

    def ask(self, command: str, **what: Any) -> None:
        """Have the broker carry out a command, and wait until it has. Raises ValueError if it refuses, ControlClosed if
        it has exited."""
        number = self.tell(command, **what)
        with self._changed:
            self._changed.wait_for(lambda: number in self._replies or not self._is_open, REPLY_TIMEOUT_S)
            if number not in self._replies:
                if self._is_open:
                    raise TimeoutError(f"the broker does not respond to the test: {command}")
                raise ControlClosed
            refusal = self._replies.pop(number)
        if refusal is not None:
            raise ValueError(refusal)

    def tell(self, command: str, **what: Any) -> int:
        """The same without waiting; the command's number."""
        number = self.next_number()
        line = json.dumps({"number": number, "do": command, **what}).encode() + b"\n"
        try:
            self._channel.sendall(line)
        except OSError as error:
            raise ControlClosed from error
        return number

    def fired(self, fault: int) -> int:
        with self._changed:
            return self._fired[fault]

    def catch_up(self) -> None:
        """Receive every fault that has happened by now; if the broker has exited, those before that."""
        try:
            self.ask("nothing")
        except ControlClosed:
            self._reader.join(REPLY_TIMEOUT_S)

    def wait_for(self, fault: int, times: int, timeout: float) -> bool:
        """True if it happens that often before the timeout or the broker's exit."""
        with self._changed:
            self._changed.wait_for(lambda: self._fired[fault] >= times or not self._is_open, timeout)
            return self._fired[fault] >= times

    def close(self) -> None:
        """Close the control after the broker has exited: what it sent before is still received."""
        self._reader.join(REPLY_TIMEOUT_S)
        self._channel.close()

    def _read(self) -> None:
        with self._channel.makefile("rb") as lines:
            try:
                for line in lines:
                    self._heard(json.loads(line))
            except (OSError, ValueError):  # the broker was killed, perhaps in the middle of a line
                pass
        with self._changed:
            self._is_open = False
            self._changed.notify_all()

    def _heard(self, message: dict[str, Any]) -> None:
        with self._changed:
            if "fired" in message:
                self._fired[message["fired"]] += 1
            elif "done" in message:
                self._replies[message["done"]] = None
            else:
                self._replies[message["refused"]] = message["reason"]
            self._changed.notify_all()
