"""A Fetch that waits: for enough bytes, for its time, for its topic to go or its broker to stop."""

import time
from pathlib import Path

from odradek.errors import ErrorCode
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.protocol.raw import Raw, batch, fetch_request
from tests.support import RunningBroker, running_broker

FOREVER_MS = 2**31 - 1


def wait_for_data(waiting: Raw, topic: str, min_bytes: int = 1, offset: int = 0) -> None:
    """Send a Fetch and make sure that the broker has seen it: it handles what comes later in order."""
    waiting.send(fetch_request(topic, offset, min_bytes=min_bytes, max_wait_ms=FOREVER_MS), 12)


def seen(other: Raw) -> None:
    """Wait for a response: by then, what other connections sent before has been read."""
    for _ in range(3):
        other.ask(ApiVersionsRequest("raw", "1"))


def test_woken_by_a_produce(broker: RunningBroker, raw: Raw, topic: str) -> None:
    raw.create(topic)
    with Raw(broker.bootstrap) as waiting:
        wait_for_data(waiting, topic)
        seen(raw)
        raw.produce(topic, batch(b"awaited"))
        found = waiting.receive().responses[0].partitions[0]
        assert (found.error_code, found.high_watermark) == (0, 1)
        assert len(found.records) > 0


def test_not_woken_by_too_little(broker: RunningBroker, raw: Raw, topic: str) -> None:
    raw.create(topic)
    small = batch(b"x" * 100)
    with Raw(broker.bootstrap) as waiting:
        wait_for_data(waiting, topic, min_bytes=len(small) * 3)
        for _ in range(3):
            raw.produce(topic, small)
        assert len(waiting.receive().responses[0].partitions[0].records) == len(small) * 3


def test_answered_with_what_there_is_when_its_time_is_up(raw: Raw, topic: str) -> None:
    raw.create(topic)
    raw.produce(topic, batch(b"little"))
    start = time.monotonic()
    found = raw.fetch(topic, min_bytes=10_000, max_wait_ms=200)
    assert time.monotonic() - start >= 0.19
    assert len(found.records) > 0


def test_woken_by_the_deletion_of_its_topic(broker: RunningBroker, raw: Raw, topic: str) -> None:
    raw.create(topic)
    with Raw(broker.bootstrap) as waiting:
        wait_for_data(waiting, topic)
        seen(raw)
        raw.ask(DeleteTopicsRequest([DeleteTopicState(topic)], timeout_ms=5000))
        found = waiting.receive().responses[0].partitions[0]
        assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_error_is_not_waited_with(raw: Raw, topic: str) -> None:
    raw.create(topic)
    response = raw.ask(fetch_request([topic, f"{topic}-none"], min_bytes=1, max_wait_ms=FOREVER_MS), 12)
    codes = [one.partitions[0].error_code for one in response.responses]
    assert sorted(codes) == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    beyond = raw.fetch(topic, offset=99, min_bytes=1, max_wait_ms=FOREVER_MS)
    assert beyond.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_answered_when_the_broker_stops(tmp_path: Path, topic: str) -> None:
    with running_broker(tmp_path) as broker, Raw(broker.bootstrap) as raw, Raw(broker.bootstrap) as waiting:
        raw.create(topic)
        wait_for_data(waiting, topic)
        seen(raw)
        assert broker.stop() == 0
        found = waiting.receive().responses[0].partitions[0]
        assert found.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert waiting.is_closed()


def test_one_that_hangs_up_is_forgotten(broker: RunningBroker, raw: Raw, topic: str) -> None:
    raw.create(topic)
    for _ in range(20):
        with Raw(broker.bootstrap) as waiting:
            wait_for_data(waiting, topic)
    raw.produce(topic, batch(b"nobody waits for this"))
    assert raw.fetch(topic).high_watermark == 1
