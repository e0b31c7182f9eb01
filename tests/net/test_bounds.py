"""Clients that take more than their share: of connections, of memory, of patience. The others do not notice."""

import json
import shlex
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.metadata import MetadataRequest
from tests.protocol.raw import Closed, Raw, batch, fetch_request, produce_request
from tests.support import RunningBroker, odradek_command, running_broker

PATIENCE_S = 120  # how long events are awaited, on a busy machine too
ALLOWED_GROWTH_BYTES = 80 << 20
SMALL_BUFFER = 4096
ASK_FOR_ALL = MetadataRequest(topics=None)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    settings = {"queued_max_request_bytes": "30000000", "socket_request_max_bytes": "20000000"}
    with running_broker(tmp_path_factory.mktemp("net"), **settings) as running:
        with Raw(running.bootstrap) as raw:
            raw.create("wide", 300)
        yield running


def resident_bytes(broker: RunningBroker) -> int:
    pages = Path(f"/proc/{broker.process.pid}/statm").read_text().split()[1]
    return int(pages) * 4096


def descriptors(broker: RunningBroker) -> int:
    return len(list(Path(f"/proc/{broker.process.pid}/fd").iterdir()))


def assert_healthy(broker: RunningBroker, topic: str) -> None:
    """A new client produces more than one read of a socket takes, and gets it back."""
    with Raw(broker.bootstrap) as raw:
        raw.create(topic)
        assert raw.produce(topic, batch(b"x" * 600_000)).error_code == 0
        assert len(raw.fetch(topic, min_bytes=1, max_wait_ms=5000).records) > 600_000


def send_all_it_takes(raw: Raw, frame: bytes, count: int) -> None:
    """Send frame after frame, reading nothing, until all are sent or the broker takes no more."""
    raw.socket.settimeout(1)
    try:
        for _ in range(count // 100):
            raw.socket.sendall(frame * 100)
    except TimeoutError:
        pass


def test_a_client_that_asks_and_never_reads(broker: RunningBroker) -> None:
    """A million small questions with large responses: the responses of few are made, the rest stay unread."""
    before = resident_bytes(broker)
    with Raw(broker.bootstrap, receive_buffer=SMALL_BUFFER) as greedy:
        send_all_it_takes(greedy, greedy.frame(ASK_FOR_ALL, 1), 100_000)
        assert_healthy(broker, "beside-one-that-never-reads")
        assert resident_bytes(broker) - before < ALLOWED_GROWTH_BYTES


def test_a_client_that_fetches_and_never_reads(broker: RunningBroker) -> None:
    with Raw(broker.bootstrap) as raw:
        raw.create("much")
        for _ in range(20):
            raw.produce("much", batch(b"x" * 900_000))
    before = resident_bytes(broker)
    with Raw(broker.bootstrap, receive_buffer=SMALL_BUFFER) as greedy:
        frame = greedy.frame(fetch_request("much", max_bytes=50 << 20, partition_max_bytes=50 << 20), 12)
        send_all_it_takes(greedy, frame, 20_000)
        assert_healthy(broker, "beside-one-that-never-reads-data")
        assert resident_bytes(broker) - before < ALLOWED_GROWTH_BYTES


def test_responses_wait_for_a_client_that_reads_late(broker: RunningBroker) -> None:
    """Nothing is lost: whoever begins to read gets every response, in order."""
    count = 1500
    with Raw(broker.bootstrap, receive_buffer=SMALL_BUFFER) as late:
        late.socket.settimeout(60)
        stream = b"".join(late.frame(ASK_FOR_ALL, 1) for _ in range(count))
        late.socket.setblocking(False)
        sent, responses = 0, 0
        while sent < len(stream):
            try:
                sent += late.socket.send(stream[sent:])
            except BlockingIOError:
                break
        late.socket.setblocking(True)
        while responses < count:
            if sent < len(stream):
                sent += late.socket.send(stream[sent : sent + 10_000])
            assert len(late.receive().topics[0].partitions) > 0
            responses += 1


def test_frames_that_are_begun_and_never_finished(broker: RunningBroker) -> None:
    """They claim twenty times the memory there is for requests, and get none of it: others are served at once."""
    before = resident_bytes(broker)
    slow = [Raw(broker.bootstrap) for _ in range(30)]
    try:
        for raw in slow:
            raw.socket.sendall(struct.pack(">i", 20_000_000) + bytes(1000))
        with Raw(broker.bootstrap) as small:
            for byte in small.frame(ApiVersionsRequest("raw", "1")):
                small.socket.sendall(bytes([byte]))
            assert small.receive().error_code == 0
        assert_healthy(broker, "beside-slow-ones")
        assert "its request does not arrive" not in broker.log
        assert resident_bytes(broker) - before < ALLOWED_GROWTH_BYTES / 4
    finally:
        for raw in slow:
            raw.socket.close()


def test_frames_that_arrive_but_for_their_end(broker: RunningBroker) -> None:
    """They hold all the memory there is: the oldest gives way as soon as somebody else needs it."""
    slow = [Raw(broker.bootstrap) for _ in range(4)]
    try:
        for raw in slow:
            raw.socket.sendall(struct.pack(">i", 8_000_001))
            raw.socket.sendall(bytes(8_000_000))
        assert_healthy(broker, "beside-almost-whole-ones")
        assert broker.log.count("its request does not arrive, and other clients wait for the memory") == 1
    finally:
        for raw in slow:
            raw.socket.close()


def test_large_requests_share_what_memory_there_is(broker: RunningBroker) -> None:
    """Ten of 15 MB where 30 MB are allowed: all are served, some later."""
    with Raw(broker.bootstrap) as raw:
        raw.create("large", max_message_bytes="20000000")
    records = batch(b"x" * 15_000_000)
    senders = [Raw(broker.bootstrap) for _ in range(10)]
    frames = [sender.frame(produce_request("large", records, acks=1), 9) for sender in senders]
    positions = [0] * len(senders)
    for sender in senders:
        sender.socket.setblocking(False)
    deadline = time.monotonic() + PATIENCE_S
    while any(position < len(frames[0]) for position in positions):
        assert time.monotonic() < deadline, "large requests wait for one another forever"
        for slot, sender in enumerate(senders):
            try:
                positions[slot] += sender.socket.send(
                    frames[slot][positions[slot] : positions[slot] + 500_000]
                )
            except BlockingIOError:
                continue
    for sender in senders:
        sender.socket.settimeout(20)
        assert sender.receive().responses[0].partition_responses[0].error_code == 0
        sender.socket.close()


def test_connections_that_come_and_go_leave_nothing_behind(broker: RunningBroker) -> None:
    with Raw(broker.bootstrap) as raw:
        raw.create("idle")
        assert_healthy(broker, "before-the-crowd")
        before = descriptors(broker)
        for _ in range(300):
            with Raw(broker.bootstrap) as visitor:
                visitor.send(fetch_request("idle", min_bytes=1, max_wait_ms=2**31 - 1), 12)
        deadline = time.monotonic() + PATIENCE_S
        while descriptors(broker) > before:
            assert time.monotonic() < deadline, "connections that were closed keep their descriptors"
            raw.ask(ApiVersionsRequest("raw", "1"))


def test_a_crowd_that_waits_for_one_record(broker: RunningBroker) -> None:
    """A thousand long polls on one partition: one append wakes all of them."""
    with Raw(broker.bootstrap) as raw:
        raw.create("popular")
        before = resident_bytes(broker)
        crowd = [Raw(broker.bootstrap) for _ in range(1000)]
        for member in crowd:
            member.send(fetch_request("popular", min_bytes=1, max_wait_ms=2**31 - 1), 12)
        raw.produce("popular", batch(b"awaited"))
        for member in crowd:
            assert member.receive().responses[0].partitions[0].high_watermark == 1
            member.socket.close()
        assert resident_bytes(broker) - before < ALLOWED_GROWTH_BYTES


def test_a_connection_that_is_reset_in_the_middle_of_a_frame(broker: RunningBroker) -> None:
    for _ in range(20):
        raw = Raw(broker.bootstrap)
        raw.socket.sendall(struct.pack(">i", 1000) + b"half")
        raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raw.socket.close()
    assert_healthy(broker, "after-resets")


def test_connection_limits(tmp_path: Path) -> None:
    with running_broker(tmp_path, max_connections_per_ip="3") as broker:
        welcome = [Raw(broker.bootstrap) for _ in range(3)]
        for raw in welcome:
            assert raw.ask(ApiVersionsRequest("raw", "1")).error_code == 0
        with Raw(broker.bootstrap) as one_too_many:
            assert one_too_many.is_closed()
        assert "max.connections.per.ip (3) reached" in broker.log
        welcome.pop().socket.close()
        deadline = time.monotonic() + PATIENCE_S
        while True:
            with Raw(broker.bootstrap) as next_one:
                try:
                    assert next_one.ask(ApiVersionsRequest("raw", "1")).error_code == 0
                    break
                except (Closed, ConnectionError):
                    assert time.monotonic() < deadline, "a place that became free is not given away"
        for raw in welcome:
            raw.socket.close()


def test_idle_connections_are_closed_busy_ones_are_not(tmp_path: Path) -> None:
    with running_broker(tmp_path, connections_max_idle_ms="1000") as broker:
        with Raw(broker.bootstrap) as raw:
            raw.create("quiet")
        with Raw(broker.bootstrap) as waiting:
            waiting.send(fetch_request("quiet", min_bytes=1, max_wait_ms=3000), 12)
            with Raw(broker.bootstrap) as idle:
                assert idle.is_closed()
            assert waiting.receive().responses[0].partitions[0].error_code == 0
        assert "connections.max.idle.ms" in broker.log


def test_a_broker_out_of_descriptors_serves_those_it_has(tmp_path: Path) -> None:
    """And takes new ones when some become free."""
    resource = pytest.importorskip("resource")
    with running_broker(tmp_path) as broker, Raw(broker.bootstrap) as raw:
        raw.create("open")
        raw.produce("open", batch(b"x"))
        raw.ask(ApiVersionsRequest("raw", "1"))
        limit = descriptors(broker) + 20
        resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE, (limit, limit))
        crowd = [Raw(broker.bootstrap) for _ in range(40)]
        deadline = time.monotonic() + PATIENCE_S
        while "cannot accept a connection" not in broker.log:
            assert time.monotonic() < deadline
            assert raw.ask(ApiVersionsRequest("raw", "1")).error_code == 0
        assert raw.produce("open", batch(b"x")).error_code == 0
        for member in crowd:
            member.socket.close()
        with Raw(broker.bootstrap) as later:
            assert later.ask(ApiVersionsRequest("raw", "1")).error_code == 0


@pytest.mark.parametrize("limit", ["-S -n 128", "-n 128"], ids=["soft", "hard"])
def test_more_partitions_than_descriptors(tmp_path: Path, limit: str) -> None:
    """A soft limit is raised; within a hard one, files are closed before there are too many."""
    partitions = 120
    up = shlex.join(odradek_command("up", "--json", "--port", "0", "--data-dir", str(tmp_path / "data")))
    command = ["sh", "-c", f"ulimit {limit} && exec {up}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        with Raw(json.loads(process.stdout.readline())["bootstrap"]) as raw:
            raw.create("many", partitions)
            for index in range(partitions):
                assert raw.produce("many", batch(b"x"), partition=index, acks=1).error_code == 0
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
