"""A broker process for tests: started on a free port with temporary data, crashed, paused and restarted on demand.

The process stops when its owner exits, even if that is killed: its standard input is a socket of the owner, and it
stops once that is closed. Faults are asked for over the same socket, so no other process can ask for any.
"""

import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from odradek.testing.block import Block
from odradek.testing.control import Control, ControlClosed
from odradek.testing.faults import Faults
from odradek.testing.port import KeptPort
from odradek.testing.security import Login, Security
from odradek.testing.wires import Cut, Peer, Wires

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0

Setting = str | int | float | bool


class BrokerFailed(Exception):
    """The broker did not start, or did not stop; the message has its log."""


def as_settings(named: Mapping[str, Setting]) -> dict[str, str]:
    """Kafka's names, which may have '_' for '.', and values as Kafka writes them."""
    return {
        name.replace("_", "."): str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in named.items()
    }


class Broker(Block):
    """A broker with its own data, on a port that it keeps across restarts.

    `bootstrap` is its address, `log` its log, `faults` the faults that a test can ask for. It is a context manager:
    stopped, and its data removed, at the end of the block.
    """

    _name = "broker"  # of its certificate

    def __init__(
        self,
        settings: Mapping[str, Setting] | None = None,
        port: KeptPort | None = None,
        security: Security | None = None,
    ) -> None:
        self.settings = as_settings(settings or {})
        self._security = security or Security("PLAINTEXT")
        self.bootstrap = ""
        self.faults = Faults(self)
        self._wires = Wires(self)
        self._port = port or KeptPort()
        self._process: subprocess.Popen[str] | None = None
        self._control: Control | None = None
        self._is_announced = False
        self._is_paused = False
        self._directory = Path(tempfile.mkdtemp(prefix="odradek-"))
        self._log_file = self._directory / "broker.log"

    # --- life ---

    def start(self) -> None:
        """Start it, on the same data and port as before; does nothing if it is running."""
        self.launch()
        self.await_started()

    def launch(self) -> None:
        """Start it, and do not wait."""
        if self.is_running:
            return
        if self._process is not None:
            self.crash()  # it has ended by itself
        command = [sys.executable, "-m", "odradek.faults", "--json", *self._address_options()]
        command += ["--data-dir", str(self._directory / "data")]
        for name, value in self._all_settings().items():
            command += ["--set", f"{name}={value}"]
        ours, theirs = socket.socketpair()
        self._control = Control(ours)
        self._tell_before_start(self._control)
        with self._log_file.open("a") as log, theirs:
            self._process = subprocess.Popen(
                command,
                stdin=theirs.fileno(),
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={name: value for name, value in os.environ.items() if not name.startswith("ODRADEK_")},
            )
        self._is_announced = False

    def _address_options(self) -> list[str]:
        """A file names the listeners of a broker that has secrets: arguments can be read by everybody."""
        port = self.bootstrap.rpartition(":")[2] or str(self._port.number)
        if self._security.protocol == "PLAINTEXT":
            return ["--port", port]
        from odradek.config.sources import format_properties

        file = self._directory / "broker.properties"
        file.write_text(format_properties(self._secure_settings(port)))
        return ["--config", str(file)]

    def _secure_settings(self, port: str) -> dict[str, str]:
        listener = f"{self._security.protocol}://localhost:{port}"
        return {"listeners": listener, **self._security.settings_of(self._name)}

    def _all_settings(self) -> Mapping[str, str]:
        return self.settings

    def _tell_before_start(self, control: Control) -> None:
        """Tell it the faults that must be in force from the beginning."""
        self._wires.tell(control)

    def await_started(self) -> None:
        """Wait until it serves, after `launch`."""
        if self._process is not None and not self._is_announced:
            self.bootstrap = json.loads(self._announcement(self._process))["bootstrap"]
            self._is_announced = True
            self._security.await_users(self.bootstrap)

    def _announcement(self, process: "subprocess.Popen[str]") -> str:
        assert process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            ready = selector.select(START_TIMEOUT_S)
        line = process.stdout.readline() if ready else ""
        if not line:
            self.crash()
            raise BrokerFailed(f"the broker did not start:\n{self.log}")
        return line

    def stop(self) -> None:
        """Stop it as a service manager does: everything is synced, and members of groups are told."""
        if self._process is None:
            return
        self.resume()
        self._process.send_signal(signal.SIGTERM)
        try:
            status = self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.crash()
            raise BrokerFailed(f"the broker did not stop within {STOP_TIMEOUT_S:g} s:\n{self.log}") from None
        self._forget()
        if status != 0:
            raise BrokerFailed(f"the broker stopped with status {status}:\n{self.log}")

    def crash(self) -> None:
        """Kill it (SIGKILL): no response, no goodbye. Its data stays; `start` or `restart` recovers it.

        What it had written survives, because the operating system keeps running: this is not a power failure.
        """
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        self._forget()

    def power_cut(self) -> None:
        """Cut its power: it dies at once, and only synced data remains. `start` or `restart` recovers it.

        A file is cut back to its last sync, and one that was created, renamed or removed since its directory was synced
        is as it was then. What the broker had acknowledged with acks=all is on disk; acks=1 does not wait for that.
        """
        try:
            self.control.ask("cut power")
        except ControlClosed:  # as it should be
            self.crash()
        except ValueError as error:
            self.crash()
            raise BrokerFailed(f"the power could not be cut: {error}\n{self.log}") from None

    def _forget(self) -> None:
        assert self._process is not None
        if self._process.stdout is not None:
            self._process.stdout.close()
        if self._control is not None:
            self._control.close()
        self._process, self._control, self._is_paused = None, None, False

    def restart(self) -> None:
        """Stop it, unless it has crashed, and start it again on the same data and port."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Freeze it (SIGSTOP): connections stay open, but it does not respond until `resume`."""
        if self._process is None:
            raise BrokerFailed("the broker is not running, so it cannot be paused")
        self._process.send_signal(signal.SIGSTOP)
        self._is_paused = True

    def resume(self) -> None:
        """Continue after `pause`; does nothing if it was not paused."""
        if self._process is not None and self._is_paused:
            self._process.send_signal(signal.SIGCONT)
        self._is_paused = False

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Frozen for the length of a block."""
        self.pause()
        try:
            yield
        finally:
            self.resume()

    def cut_off(self, *peers: Peer) -> Cut:
        """Let nothing pass to or from these peers until the end of the block, `undo` or `heal`.

        A peer is another broker of its cluster, by its id, "brokers" or "clients"; without any: everybody. Restarts do
        not change it.
        """
        return self._wires.cut(peers, is_deaf=True, is_mute=True)

    def silence(self, *peers: Peer) -> Cut:
        """Drop what it sends; it still hears what they send."""
        return self._wires.cut(peers, is_mute=True)

    def deafen(self, *peers: Peer) -> Cut:
        """Drop what they send; they still hear what it sends."""
        return self._wires.cut(peers, is_deaf=True)

    def heal(self) -> None:
        """Undo every fault: it runs and responds when this returns. Raises BrokerFailed if it had died unexpectedly."""
        death = self.begin_to_heal()
        self.await_started()
        if death:
            raise BrokerFailed(death)

    def begin_to_heal(self) -> str:
        """The same without waiting, if it has to start; how it had died, if that was unexpected."""
        self.resume()
        self._wires.heal()
        if self.is_running:
            self.faults.clear()
            return ""
        status = None if self._process is None else self._process.poll()
        log = self.log
        self.launch()
        return (
            "" if status is None else f"the broker died with status {status}, and was started again:\n{log}"
        )

    def close(self) -> None:
        """End it, and remove its data."""
        self.crash()
        self._port.close()
        self._security.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    # --- what a test asks of it ---

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def is_paused(self) -> bool:
        return self._is_paused

    @property
    def is_responsive(self) -> bool:
        return self.is_running and not self._is_paused

    @property
    def serves_clients(self) -> bool:
        """True if a client may get a response from it."""
        return self.is_responsive and self._is_announced and self._wires.reach_clients

    @property
    def is_whole(self) -> bool:
        """True if it serves, and is cut off from nobody."""
        return self.serves_clients and self._wires.are_whole

    @property
    def peers(self) -> Sequence[int]:
        """The other brokers of its cluster."""
        return ()

    @property
    def open_control(self) -> Control | None:
        """The control for cutting wires, which works even while the broker is paused."""
        return self._control

    @property
    def control(self) -> Control:
        """The control for `faults`. Raises BrokerFailed where it cannot be asked for anything now."""
        if self._control is None or not self.is_running:
            raise BrokerFailed("the broker is not running: start it first")
        if self._is_paused:
            raise BrokerFailed("the broker is paused: resume it, or ask for faults before you pause it")
        return self._control

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def log(self) -> str:
        """All it has logged, across restarts."""
        return self.log_since(0)

    @property
    def log_size(self) -> int:
        return self._log_file.stat().st_size if self._log_file.exists() else 0

    def log_since(self, size: int) -> str:
        """The log from position `log_size` on."""
        if not self._log_file.exists():
            return ""
        with self._log_file.open("rb") as file:
            file.seek(size)
            return file.read().decode(errors="replace")

    def create_topic(
        self, name: str | None = None, partitions: int = 1, config: Mapping[str, Setting] | None = None
    ) -> str:
        """Create a topic and wait until it can be used; returns its name, generated if none is given."""
        from odradek.testing.topics import create_topic

        name = name or f"topic-{uuid.uuid4().hex[:12]}"
        create_topic(self.bootstrap, name, partitions, as_settings(config or {}), login=self.login)
        return name

    # --- who connects ---

    @property
    def login(self) -> Login:
        """A client's settings, by the names that it knows: `login.librdkafka`, `login.python`, `login.java`."""
        return self._security.login

    def set_password(self, user: str, password: str) -> Login:
        """Add a user that logs in with SCRAM, or give it a new password; returns how it connects."""
        return self._security.set_password(self.bootstrap, user, password)

    def renew_certificate(self) -> None:
        """Replace the file of its certificate: it is used for new connections within 5 seconds."""
        self._security.issue(self._name)


@contextmanager
def broker(security: str = "PLAINTEXT", **settings: Setting) -> Iterator[Broker]:
    """A broker for the length of a block. `settings` have Kafka's names, with '_' for '.'; `security` is the protocol
    of its clients: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""
    with Broker(settings, security=Security(security)) as running:
        yield running
