"""Members of consumer groups as processes, and what a test wants to know of them."""

import json
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.real_clients.adapters import NODE_DIRECTORY

WAIT_S = 60
SESSION_TIMEOUT_MS = 6000
Event = dict[str, Any]
Place = tuple[str, int]


class Member:
    """A process of `group_member.py` or, for kafkajs, of `client.js`. Its events are collected by a thread."""

    def __init__(self, client: str, bootstrap: str, group: str, topics: list[str], **options: Any) -> None:
        self.client = client
        self.events: list[Event] = []
        self._changed = threading.Condition()
        options = {"session_timeout_ms": SESSION_TIMEOUT_MS, **options}
        options |= {"client": client, "bootstrap": bootstrap, "group": group, "topics": topics}
        self.process = subprocess.Popen(
            self._command(client, options), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        if client == "kafkajs":
            assert self.process.stdin is not None
            self.process.stdin.write(
                json.dumps(options | {"sessionTimeoutMs": options["session_timeout_ms"]})
            )
            self.process.stdin.close()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @staticmethod
    def _command(client: str, options: dict[str, Any]) -> list[str]:
        if client == "kafkajs":
            return [shutil.which("node") or "node", str(NODE_DIRECTORY / "client.js"), "member"]
        return [sys.executable, str(Path(__file__).with_name("group_member.py")), json.dumps(options)]

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                event = json.loads(line)
            except ValueError:
                continue  # the last line of one that was killed
            with self._changed:
                self.events.append(event)
                self._changed.notify_all()

    # --- what it has said ---

    def wait_for(self, condition: Callable[["Member"], bool], what: str) -> None:
        deadline = time.monotonic() + WAIT_S
        with self._changed:
            while not condition(self):
                left = deadline - time.monotonic()
                assert left > 0, f"{self.client} never: {what}; its last events: {self.events[-5:]}"
                self._changed.wait(left)

    def of(self, name: str) -> list[Event]:
        return [event for event in list(self.events) if event and event["event"] == name]

    @property
    def owned(self) -> set[Place]:
        assignments = self.of("assigned")
        return (
            {(topic, partition) for topic, partition in assignments[-1]["partitions"]}
            if assignments
            else set()
        )

    @property
    def values(self) -> set[str]:
        return {event["value"] for event in self.of("record")}

    # --- what is done to it ---

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def go_on(self) -> None:
        """Let a member that holds make its commit."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.kill()
        self._wait()

    def leave(self) -> None:
        self.process.terminate()
        self._wait()

    def _wait(self) -> None:
        self.process.wait(WAIT_S)
        self._reader.join()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


class Members:
    """The members of one group over a test; whoever is left at its end is killed."""

    def __init__(self, bootstrap: str, group: str, topics: list[str]) -> None:
        self._arguments = (bootstrap, group, topics)
        self._stack = ExitStack()
        self.all: list[Member] = []

    def add(self, client: str = "confluent", **options: Any) -> Member:
        member = Member(client, *self._arguments, **options)
        self.all.append(member)
        self._stack.callback(self._end, member)
        return member

    @staticmethod
    def _end(member: Member) -> None:
        if member.process.poll() is None:
            member.resume()
            member.kill()

    @property
    def alive(self) -> list[Member]:
        return [member for member in self.all if member.process.poll() is None]

    @property
    def values(self) -> set[str]:
        return set().union(*(member.values for member in self.all))

    def wait_until_shared(self, places: set[Place], members: list[Member] | None = None) -> None:
        """Until these members say that they own all of it, every place once, each at least one."""

        def shared() -> bool:
            shares = [member.owned for member in members or self.alive]
            return all(shares) and sum(map(len, shares)) == len(places) and set().union(*shares) == places

        wait_until(shared, lambda: f"shared: {[(m.client, sorted(m.owned)) for m in members or self.alive]}")

    def wait_for_values(self, values: set[str]) -> None:
        wait_until(lambda: values <= self.values, lambda: f"processed: {sorted(values - self.values)[:10]}")

    def close(self) -> None:
        self._stack.close()


@contextmanager
def group_of(bootstrap: str, group: str, topics: list[str]) -> Iterator[Members]:
    members = Members(bootstrap, group, topics)
    try:
        yield members
    finally:
        members.close()


def wait_until(condition: Callable[[], bool], what: Callable[[], str] | str) -> None:
    """Wait for what nobody tells us of when it happens."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"never: {what if isinstance(what, str) else what()}"
        time.sleep(0.05)
