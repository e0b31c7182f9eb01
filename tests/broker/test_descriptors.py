"""A real broker that runs out of descriptors: what clients hear meanwhile, and that all is well afterwards."""

import socket
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from odradek.broker import descriptors
from odradek.errors import ErrorCode
from odradek.records.record import decode_batch
from odradek.records.walk import whole_batches
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.protocol.raw import Closed, Raw, batch, produce_request
from tests.support import RunningBroker, no_descriptors_at_all, running_broker

TOPICS = [f"topic-{number}" for number in range(12)]
REFUSED = (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.REQUEST_TIMED_OUT)
GROUP = "group"


class Ledger:
    """A ledger of what was acknowledged, and must be there in its order."""

    def __init__(self) -> None:
        self.acknowledged: dict[str, list[bytes]] = {}
        self.refused = 0
        self._serial = 0

    def produce(self, raw: Raw, topic: str, timeout_ms: int = 10_000) -> int:
        self._serial += 1
        value = b"%d" % self._serial
        response = raw.produce(topic, batch(value), timeout_ms=timeout_ms)
        if response.error_code == 0:
            self.acknowledged.setdefault(topic, []).append(value)
        else:
            assert response.error_code in REFUSED
            self.refused += 1
        return int(response.error_code)

    def check(self, raw: Raw) -> None:
        for topic, values in self.acknowledged.items():
            found = read_all(raw, topic)
            remaining = iter(found)
            assert all(value in remaining for value in values), (topic, values, found)


def read_all(raw: Raw, topic: str) -> list[bytes | None]:
    """Return what a consumer reads, segment by segment."""
    found: list[bytes | None] = []
    offset = 0
    while (fetched := raw.fetch(topic, offset)).high_watermark > offset:
        assert fetched.error_code == 0
        for header, data in whole_batches(fetched.records):
            found += [record.value for record in decode_batch(data, header)]
            offset = header.next_offset
    return found


def commit_offset(raw: Raw, offset: int) -> int:
    partition = OffsetCommitRequestPartition(0, committed_offset=offset)
    request = OffsetCommitRequest(
        GROUP, topics=[OffsetCommitRequestTopic(name=TOPICS[0], partitions=[partition])]
    )
    return int(raw.ask(request, 8).topics[0].partitions[0].error_code)


def committed_offset(raw: Raw) -> int:
    group = OffsetFetchRequestGroup(
        GROUP, topics=[OffsetFetchRequestTopics(name=TOPICS[0], partition_indexes=[0])]
    )
    response = raw.ask(OffsetFetchRequest(groups=[group]), 8)
    return int(response.groups[0].topics[0].partitions[0].committed_offset)


def prepare(raw: Raw, ledger: Ledger) -> None:
    for topic in TOPICS:
        raw.create(topic, internal_segment_bytes="200")  # a new file with every other record
        assert ledger.produce(raw, topic) == 0
        assert raw.fetch(topic).error_code == 0  # the code that serves it is read with the first request
    until(lambda: not raw.ask(FindCoordinatorRequest(coordinator_keys=[GROUP]), 4).coordinators[0].error_code)
    until(lambda: commit_offset(raw, 1) == 0)


def until(condition: Callable[[], bool], attempts: int = 1000) -> None:
    assert any(condition() for _ in range(attempts))


def attempt(raw: Raw, request: Any) -> None:
    """Whatever the broker answers; an API whose response has no place for the error may lose its connection."""
    with suppress(Closed):
        raw.ask(request)


def assert_all_is_well(raw: Raw, ledger: Ledger) -> None:
    for topic in TOPICS:
        assert ledger.produce(raw, topic) == 0
        assert raw.fetch(topic).error_code == 0
    raw.create("made-afterwards")
    assert ledger.produce(raw, "made-afterwards") == 0
    assert commit_offset(raw, 77) == 0
    assert committed_offset(raw) == 77
    ledger.check(raw)


def test_a_moment_without_descriptors(tmp_path: Path) -> None:
    ledger = Ledger()
    with running_broker(tmp_path, offsets_topic_num_partitions="2") as broker, ExitStack() as stack:
        raw, admin, late = (stack.enter_context(Raw(broker.bootstrap)) for _ in range(3))
        prepare(raw, ledger)
        for connection in (admin, late):
            connection.topic_id(TOPICS[0])
        with no_descriptors_at_all(broker.process.pid):
            for _ in range(4):
                for topic in TOPICS:
                    ledger.produce(raw, topic, timeout_ms=300)
                    assert raw.fetch(topic).error_code in (0, *REFUSED)
            commit_offset(raw, 5)
            attempt(admin, CreateTopicsRequest([CreatableTopic("refused", 1, 1)]))
            waiting = stack.enter_context(Raw(broker.bootstrap))  # in the backlog
            waiting.send(produce_request(TOPICS[0], batch(b"x")), 9)
            until(lambda: bool(raw.topic_id(TOPICS[0])) and "cannot accept a connection" in broker.log)
        assert ledger.refused > 0
        assert waiting.receive().responses[0].partition_responses[0].error_code == 0
        assert_all_is_well(raw, ledger)
        late.create("made-by-another")
        assert "its disk has failed" not in broker.log
        assert broker.log.count("cannot open") == broker.log.count("descriptors are free again")
        assert "accepts connections again" in broker.log
        broker.kill()
        broker.start()
        with Raw(broker.bootstrap) as again:
            ledger.check(again)
            assert committed_offset(again) == 77


@pytest.mark.parametrize("is_clean", [True, False])
def test_the_broker_ends_in_that_moment(tmp_path: Path, is_clean: bool) -> None:
    ledger = Ledger()
    with running_broker(tmp_path) as broker, Raw(broker.bootstrap) as raw:
        prepare(raw, ledger)
        with no_descriptors_at_all(broker.process.pid):
            for _ in range(3):
                for topic in TOPICS:
                    ledger.produce(raw, topic, timeout_ms=300)
            if is_clean:
                broker.stop()
            else:
                broker.kill()
        assert ledger.refused > 0
        broker.start()
        with Raw(broker.bootstrap) as again:
            ledger.check(again)
            assert_all_is_well(again, ledger)


def test_topics_are_deleted_in_that_moment(tmp_path: Path) -> None:
    """It may be refused or done; the others are served either way, and the name can be used again."""
    ledger = Ledger()
    with running_broker(tmp_path) as broker, Raw(broker.bootstrap) as raw, Raw(broker.bootstrap) as admin:
        prepare(raw, ledger)
        admin.topic_id(TOPICS[0])
        raw.create("short-lived")
        with no_descriptors_at_all(broker.process.pid):
            attempt(admin, DeleteTopicsRequest([DeleteTopicState("short-lived")], timeout_ms=5000))
        with Raw(broker.bootstrap) as again:
            again.ask(DeleteTopicsRequest([DeleteTopicState("short-lived")], timeout_ms=5000))
            again.create("short-lived")
            assert again.produce("short-lived", batch(b"x")).base_offset == 0
            assert_all_is_well(again, ledger)


def limited(limit: int) -> list[str]:
    script = (
        "import os, resource, sys; "
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, {limit})); "
        "os.execv(sys.argv[1], sys.argv[1:])"
    )
    return [sys.executable, "-c", script]


def crowd(broker: RunningBroker, count: int) -> list[socket.socket]:
    host, _, port = broker.bootstrap.rpartition(":")
    return [socket.create_connection((host, int(port)), 20) for _ in range(count)]


def can_create(broker: RunningBroker, topic: str) -> bool:
    """False while the broker has no room for another connection."""
    try:
        with Raw(broker.bootstrap) as raw:
            raw.create(topic)
    except (Closed, ConnectionError):
        return False
    return True


def test_a_crowd_of_idle_connections_takes_nothing_from_storage(tmp_path: Path) -> None:
    """Four hundred idle connections, and more files in use than may be open, with 128 descriptors."""
    ledger = Ledger()
    with running_broker(tmp_path, prefix=limited(128), offsets_topic_num_partitions="2") as broker:
        with Raw(broker.bootstrap) as raw:
            prepare(raw, ledger)
            connections = crowd(broker, 400)
            for number in range(40):
                raw.create(f"beside-{number}")
                assert ledger.produce(raw, f"beside-{number}") == 0
            assert_all_is_well(raw, ledger)
            for connection in connections:
                connection.close()

        until(lambda: can_create(broker, "after-the-crowd"))
        assert "the limit of open files leaves room for" in broker.log
        assert "cannot open" not in broker.log
        assert "Traceback" not in broker.log
        assert len(broker.log.splitlines()) < 70
        broker.kill()
        broker.start()
        with Raw(broker.bootstrap) as again:
            ledger.check(again)


def test_the_shares_of_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in (20, 64, 128, 256, 1024, 4096, 1 << 20):
        monkeypatch.setattr(descriptors.resource, "getrlimit", lambda _, limit=limit: (limit, limit))
        connections = descriptors.max_connections()
        assert connections >= 1
        if connections > 1:
            total = descriptors.max_open_files() + descriptors.reserve() + descriptors.OTHERS + connections
            assert total == limit
    monkeypatch.setattr(descriptors.resource, "getrlimit", lambda _: (-1, -1))
    assert descriptors.max_open_files() == 4096
    assert descriptors.max_connections() > 1 << 40
