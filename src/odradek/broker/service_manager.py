"""Tells systemd, or another service manager with its protocol, when a broker serves and when it stops (sd_notify(3)).

The manager names a datagram socket in NOTIFY_SOCKET; each message is a few lines `NAME=value`. READY=1 comes once
clients can connect, so that what depends on the broker starts no earlier; STOPPING=1 before it hands its leaderships
over. With WatchdogSec= in the unit, WATCHDOG=1 comes twice in that time from the event loop that serves clients: a
broker that hangs is started again.

A manager that does not listen is no reason to stop serving, so a message that cannot be sent is only logged.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Mapping

log = logging.getLogger(__name__)

SOCKET_VARIABLE = "NOTIFY_SOCKET"
WATCHDOG_VARIABLE, WATCHDOG_PID_VARIABLE = "WATCHDOG_USEC", "WATCHDOG_PID"


class ServiceManager:
    """Says nothing if the environment names no socket."""

    def __init__(self, environ: Mapping[str, str] = os.environ, pid: int | None = None) -> None:
        self._address = _address_of(environ.get(SOCKET_VARIABLE, ""))
        self._watchdog_seconds = _watchdog_of(environ, os.getpid() if pid is None else pid)
        self._timer: asyncio.TimerHandle | None = None

    def starting(self, status: str) -> None:
        self._send(f"STATUS={status}")

    def ready(self, loop: asyncio.AbstractEventLoop, status: str) -> None:
        self._send("READY=1", f"STATUS={status}")
        if self._address is not None and self._watchdog_seconds is not None:
            self._stay_alive(loop, self._watchdog_seconds / 2)

    def stopping(self) -> None:
        """Tell the manager that the node stops: the unit's TimeoutStopSec= counts now, and the watchdog does not."""
        if self._timer is not None:
            self._timer.cancel()
        self._send("STOPPING=1", "STATUS=Stopping")

    def _stay_alive(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self._send("WATCHDOG=1")
        self._timer = loop.call_later(seconds, self._stay_alive, loop, seconds)

    def _send(self, *lines: str) -> None:
        if self._address is None:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.sendto("\n".join(lines).encode(), self._address)
        except OSError as error:
            log.warning("cannot tell the service manager %s: %s", lines[0], error)


def _address_of(name: str) -> str | None:
    """A path, or (with @) a name in Linux's abstract name space. Other kinds (vsock) are not for this machine."""
    if name.startswith("@"):
        return f"\0{name[1:]}"
    return name if name.startswith("/") else None


def _watchdog_of(environ: Mapping[str, str], pid: int) -> float | None:
    """Return how often the manager wants a sign of life, in seconds; None if it does not want one from this process."""
    text = environ.get(WATCHDOG_VARIABLE, "")
    if not text.isdecimal() or int(text) == 0 or environ.get(WATCHDOG_PID_VARIABLE, str(pid)) != str(pid):
        return None
    return int(text) / 1_000_000
