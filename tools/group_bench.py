"""Measure what consumer groups cost a real broker: `python tools/group_bench.py` prints a table at the end.

A broker runs in a process of its own; this one speaks to it over as many sockets as there are members, in raw frames,
so that what is measured is the broker and not a client library. CPU is the broker's, over all its threads, from
/proc; so this runs on Linux only.

Measured: the first use of groups, which creates `__consumer_offsets` (and how long others wait meanwhile); the
rebalance of a classic group when one member leaves; the same in a KIP-848 group; heartbeats; and how long a broker
takes to read many groups back at start.
"""

import argparse
import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from odradek.apis.messages import response_type
from odradek.apis.table import BROKER, SERVED
from odradek.coordinators.routing import partition_of
from odradek.errors import ErrorCode
from odradek.model import OFFSETS_TOPIC
from odradek.wire.codec import read_message
from odradek.wire.frame import SIZE, encode_request, has_tagged_response_header
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitionsInRequest,
)
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.heartbeat import HeartbeatRequest
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from odradek.wire.messages.list_groups import ListGroupsRequest
from odradek.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

TOPIC = "bench"
SUBSCRIPTION = b"\x00\x01\x00\x00\x00\x01\x00\x05bench\x00\x00\x00\x00\x00\x00\x00\x00"
ASSIGNMENT_BYTES = 40  # about what a consumer's assignment of one partition takes
HEARTBEAT_ROUNDS = 20
COMMIT_CONNECTIONS = 100
TIMEOUT_MS = 120_000
LATEST = -1
LEAVE_EPOCH = -1
AFTER_START_S = 2  # a broker that has started goes on importing for a moment
IDLE_S = 5

Row = tuple[str, str, str]


class Broker:
    """A broker process on its own data directory, and what it has cost so far."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._process: asyncio.subprocess.Process

    async def start(self) -> None:
        command = [sys.executable, "-m", "odradek", "up", "--json", "--port", "0"]
        command += ["--data-dir", str(self._data_dir), "--log-level", "warning"]
        self._process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        assert self._process.stdout is not None
        host, _, port = json.loads(await self._process.stdout.readline())["bootstrap"].rpartition(":")
        self.address = (host, int(port))

    async def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        await self._process.wait()

    def user_seconds(self) -> float:
        """The part of its CPU time that is not the kernel's, in steps of a clock tick."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) / os.sysconf("SC_CLK_TCK")

    def cpu_seconds(self) -> float:
        threads = Path(f"/proc/{self._process.pid}/task").iterdir()
        return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


class Connection:
    """One socket, one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def send(self, request: Any, version: int | None = None) -> None:
        key = request.API_KEY
        self._asked = key, version = key, SERVED[BROKER][key].max_version if version is None else version
        self._writer.write(encode_request(request, key, version, 0, "bench"))

    async def receive(self) -> Any:
        key, version = self._asked
        (size,) = SIZE.unpack(await self._reader.readexactly(SIZE.size))
        frame = await self._reader.readexactly(size)
        start = 5 if has_tagged_response_header(key, version) else 4
        return read_message(response_type(key), version, frame, start)[0]

    async def ask(self, request: Any, version: int | None = None) -> Any:
        self.send(request, version)
        return await self.receive()

    def close(self) -> None:
        self._writer.close()


async def connect(broker: Broker, count: int) -> list[Connection]:
    return [Connection(*await asyncio.open_connection(*broker.address)) for _ in range(count)]


async def ask_all(connections: Iterable[Connection], requests: Iterable[Any]) -> list[Any]:
    """One request on each connection; the responses once all are there."""
    pairs = list(zip(connections, requests, strict=True))
    for connection, request in pairs:
        connection.send(request)
    return [await connection.receive() for connection, _ in pairs]


async def cost(broker: Broker, work: Callable[[], Awaitable[Any]]) -> tuple[float, float]:
    """Seconds on the clock and of the broker's CPU."""
    cpu, start = broker.cpu_seconds(), time.perf_counter()
    await work()
    return time.perf_counter() - start, broker.cpu_seconds() - cpu


# --- first use ---


async def first_use(broker: Broker) -> list[Row]:
    """Create the internal topic, while another client asks for versions all the time."""
    await asyncio.sleep(AFTER_START_S)
    creator, other = await connect(broker, 2)
    waits: list[float] = []

    async def keep_asking() -> None:
        while True:
            start = time.perf_counter()
            await other.ask(ApiVersionsRequest(client_software_name="x", client_software_version="1"))
            waits.append(time.perf_counter() - start)

    asking = asyncio.create_task(keep_asking())
    elapsed, cpu = await cost(
        broker, lambda: creator.ask(FindCoordinatorRequest(coordinator_keys=["classic"]))
    )
    asking.cancel()
    text = (
        f"{elapsed * 1000:.0f} ms, {cpu * 1000:.0f} ms CPU; another client waited {max(waits) * 1000:.0f} ms"
    )
    return [("first use creates __consumer_offsets", text, "no stall")]


# --- classic groups ---


def join_request(member_id: str) -> JoinGroupRequest:
    protocols = [JoinGroupRequestProtocol("range", SUBSCRIPTION)]
    return JoinGroupRequest("classic", TIMEOUT_MS, TIMEOUT_MS, member_id, None, "consumer", protocols)


def sync_request(joined: Any) -> SyncGroupRequest:
    """The leader, who alone is told of the others, gives everybody an assignment."""
    assignments = [
        SyncGroupRequestAssignment(member.member_id, bytes(ASSIGNMENT_BYTES)) for member in joined.members
    ]
    return SyncGroupRequest(
        "classic", joined.generation_id, joined.member_id, None, "consumer", "range", assignments
    )


async def rebalance(connections: Sequence[Connection], member_ids: Sequence[str]) -> tuple[int, float]:
    """All join and sync. The generation, and the seconds from the last JoinGroup to the last SyncGroup response."""
    for connection, member_id in zip(connections, member_ids, strict=True):
        connection.send(join_request(member_id))
    start = time.perf_counter()
    waiting = []
    for connection in connections:
        joined = await connection.receive()
        assert joined.error_code == 0, ErrorCode(joined.error_code)
        connection.send(sync_request(joined))
        waiting.append(joined.generation_id)
    for connection in connections:
        synced = await connection.receive()
        assert synced.error_code == 0, ErrorCode(synced.error_code)
    return waiting[0], time.perf_counter() - start


async def classic(broker: Broker, count: int) -> list[Row]:
    connections = await connect(broker, count)
    newcomers = await ask_all(connections, [join_request("") for _ in connections])
    member_ids = [response.member_id for response in newcomers]
    await rebalance(connections, member_ids)  # the broker waits some seconds for all to come
    leaver, identity = connections.pop(), MemberIdentity(member_ids.pop())
    await leaver.ask(LeaveGroupRequest("classic", [identity]))
    cpu = broker.cpu_seconds()
    generation, elapsed = await rebalance(connections, member_ids)
    cpu = broker.cpu_seconds() - cpu
    beats = [HeartbeatRequest("classic", generation, member_id) for member_id in member_ids]
    each = await heartbeat_cost(broker, connections, beats)
    leaver.close()
    for connection in connections:
        connection.close()
    return [
        (f"classic, {count} members: one leaves", f"{elapsed:.2f} s, {cpu:.2f} s CPU", "≤ 5 s"),
        ("classic heartbeat", each, "≤ 50 µs"),
    ]


async def heartbeat_cost(broker: Broker, connections: Sequence[Connection], beats: Sequence[Any]) -> str:
    async def rounds() -> None:
        for _ in range(HEARTBEAT_ROUNDS):
            responses = await ask_all(connections, beats)
            assert not any(response.error_code for response in responses)

    user, count = broker.user_seconds(), HEARTBEAT_ROUNDS * len(beats)
    _, cpu = await cost(broker, rounds)
    user = broker.user_seconds() - user
    return f"{cpu / count * 1e6:.0f} µs CPU, {user / count * 1e6:.0f} µs of it outside of the kernel"


# --- KIP-848 groups ---


def consumer_beat(member_id: str, epoch: int, topics: Any = None, owned: Any = None) -> Any:
    return ConsumerGroupHeartbeatRequest(
        group_id="consumer",
        member_id=member_id,
        member_epoch=epoch,
        rebalance_timeout_ms=TIMEOUT_MS if topics else -1,
        subscribed_topic_names=topics,
        topic_partitions=owned,
    )


class Member:
    """A member of the new protocol that takes on whatever it is told to."""

    def __init__(self, connection: Connection, number: int) -> None:
        self.connection = connection
        self.id = f"member-{number:04}"
        self.epoch = 0
        self.owned: list[TopicPartitionsInRequest] = []

    async def beat(self, topics: list[str] | None = None) -> bool:
        """Send a heartbeat, and return True if there was anything new."""
        owned = [] if topics else self.owned
        response = await self.connection.ask(consumer_beat(self.id, self.epoch, topics, owned))
        assert response.error_code == 0, (ErrorCode(response.error_code), response.error_message)
        is_new = response.assignment is not None or response.member_epoch != self.epoch
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.owned = [
                TopicPartitionsInRequest(topic.topic_id, topic.partitions)
                for topic in response.assignment.topic_partitions
            ]
        return is_new


async def consumer(broker: Broker, count: int) -> list[Row]:
    members = [Member(each, number) for number, each in enumerate(await connect(broker, count))]

    async def join() -> None:
        for member in members:
            await member.beat([TOPIC])

    async def reconcile() -> None:
        while any(await asyncio.gather(*(member.beat() for member in members))):
            pass

    _, joining_cpu = await cost(broker, join)
    await reconcile()
    leaver = members.pop()

    async def leave() -> None:
        """The new target is computed and stored with the next heartbeat of anybody."""
        await leaver.connection.ask(consumer_beat(leaver.id, LEAVE_EPOCH))
        await members[0].beat()

    before = await offsets_end(leaver.connection)
    _, cpu = await cost(broker, leave)
    records = await offsets_end(leaver.connection) - before
    await reconcile()
    beats = [consumer_beat(member.id, member.epoch) for member in members]
    each = await heartbeat_cost(broker, [member.connection for member in members], beats)
    for member in [*members, leaver]:
        member.connection.close()
    return [
        (f"KIP-848, {count} members: one leaves", f"{cpu * 1000:.0f} ms CPU, {records} records", "≤ 2 s CPU"),
        (f"KIP-848: {count} join one by one", f"{joining_cpu:.2f} s CPU", ""),
        ("KIP-848 heartbeat", each, "≤ 50 µs"),
    ]


async def offsets_end(connection: Connection) -> int:
    """Return how many records the coordinator of the KIP-848 group has written."""
    wanted = ListOffsetsPartition(partition_index=partition_of("consumer", 50), timestamp=LATEST)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(OFFSETS_TOPIC, [wanted])])
    response = await connection.ask(request, 7)
    offset: int = response.topics[0].partitions[0].offset
    return offset


# --- many groups ---


async def many_groups(broker: Broker, count: int) -> list[Row]:
    connections = await connect(broker, COMMIT_CONNECTIONS)
    partitions = [OffsetCommitRequestPartition(0, 1)]
    for first in range(0, count, COMMIT_CONNECTIONS):
        names = (f"group-{first + slot}" for slot in range(COMMIT_CONNECTIONS))
        topics = [OffsetCommitRequestTopic(name=TOPIC, partitions=partitions)]
        for connection, name in zip(connections, names, strict=True):
            connection.send(OffsetCommitRequest(name, topics=topics), 9)
        for connection in connections:
            assert (await connection.receive()).topics[0].partitions[0].error_code == 0
    await broker.stop()
    start = time.perf_counter()
    await broker.start()
    listening = time.perf_counter() - start
    (connection,) = await connect(broker, 1)
    while len((await connection.ask(ListGroupsRequest())).groups) < count:
        pass
    loaded, cpu = time.perf_counter() - start, broker.cpu_seconds()
    await asyncio.sleep(IDLE_S)
    idle = (broker.cpu_seconds() - cpu) / IDLE_S
    text = f"{loaded:.2f} s ({cpu:.2f} s CPU); listening after {listening:.2f} s"
    return [
        (f"{count} groups: from start to loaded", text, "≤ 2 s"),
        (f"{count} idle groups", f"{idle:.2%} of a core", "none"),
    ]


async def run(members: int, groups: int, scratch: Path) -> list[Row]:
    broker = Broker(scratch / "data")
    await broker.start()
    try:
        rows = await first_use(broker)
        (connection,) = await connect(broker, 1)
        await connection.ask(CreateTopicsRequest([CreatableTopic(TOPIC, members, 1)], 60_000))
        rows += await classic(broker, members)
        rows += await consumer(broker, members)
        return rows + await many_groups(broker, groups)
    finally:
        await broker.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description="measure consumer groups on a broker of their own")
    parser.add_argument("--members", type=int, default=1000, help="members, and partitions (default 1000)")
    parser.add_argument("--groups", type=int, default=10_000, help="groups with offsets (default 10000)")
    arguments = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="odradek-groups-"))
    try:
        rows = asyncio.run(run(arguments.members, arguments.groups, scratch))
    finally:
        shutil.rmtree(scratch)
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
    for what, measured, goal in rows:
        print(f"{what:42}{measured:60}{goal}".rstrip())


if __name__ == "__main__":
    main()
