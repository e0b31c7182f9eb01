"""Tests of what a user of any client does first: produce, consume from here or there, and get back what was sent."""

import time
from pathlib import Path

import pytest

from odradek.records.batch import BatchHeader, read_header
from odradek.records.compression import Codec
from tests.real_clients.adapters import CLIENTS, Client, Message
from tests.support import RunningBroker

HOUR_MS = 3_600_000


@pytest.fixture(params=CLIENTS, ids=lambda client: client.name)
def client(request: pytest.FixtureRequest) -> Client:
    chosen: Client = request.param
    chosen.check_installed()
    return chosen


def stored_headers(data_dir: Path, topic: str) -> list[BatchHeader]:
    """The headers of all batches in partition 0, as they lie on disk."""
    headers = []
    for segment in sorted((data_dir / f"{topic}-0").glob("*.log")):
        data, position = segment.read_bytes(), 0
        while position < len(data):
            headers.append(read_header(data, position))
            position += headers[-1].size
    return headers


@pytest.mark.parametrize(
    ("client", "codec"),
    [(client, codec) for client in CLIENTS for codec in client.codecs],
    ids=lambda parameter: parameter if isinstance(parameter, str) else parameter.name,
)
def test_every_compression_is_stored_as_it_came(
    broker: RunningBroker, topic: str, client: Client, codec: str
) -> None:
    client.check_installed()
    messages = [Message(b"key", b"the same text again and again %d" % n * 20) for n in range(20)]
    client.produce(broker.bootstrap, topic, messages, codec)
    headers = stored_headers(broker.data_dir, topic)
    assert {header.codec for header in headers} == {Codec[codec.upper()]}
    assert sum(header.record_count for header in headers) == len(messages)
    found = client.consume(broker.bootstrap, topic, len(messages))
    assert [(item.key, item.value) for item in found] == [(item.key, item.value) for item in messages]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_acks(broker: RunningBroker, topic: str, client: Client, acks: str) -> None:
    client.produce(broker.bootstrap, topic, [Message(value=b"one"), Message(value=b"two")], acks=acks)
    found = client.consume(broker.bootstrap, topic, 2)
    assert [item.value for item in found] == [b"one", b"two"]


def test_from_an_offset(broker: RunningBroker, topic: str, client: Client) -> None:
    """In the middle of a batch: the broker sends all of it, the client shows the rest."""
    client.produce(broker.bootstrap, topic, [Message(value=b"%d" % n) for n in range(10)])
    found = client.consume(broker.bootstrap, topic, 3, offset=7)
    assert [(item.offset, item.value) for item in found] == [(7, b"7"), (8, b"8"), (9, b"9")]


def test_from_a_timestamp(broker: RunningBroker, topic: str, client: Client) -> None:
    """The first record at or after the time asked for, wherever in its batch it stands."""
    start = int(time.time() * 1000) - HOUR_MS
    messages = [Message(value=b"%d" % n, timestamp=start + n * 1000) for n in range(10)]
    CLIENTS[0].produce(broker.bootstrap, topic, messages)
    found = client.consume(broker.bootstrap, topic, 4, timestamp=start + 5_500)
    assert [(item.offset, item.timestamp) for item in found] == [(n, start + n * 1000) for n in range(6, 10)]


def test_headers_and_null_keys_and_values(broker: RunningBroker, topic: str, client: Client) -> None:
    headers = (("first", b"1"), ("second", b"zwei"))
    messages = [
        Message(b"key", b"value", headers),
        Message(None, b"value", headers),
        Message(b"key", None, headers),
    ]
    client.produce(broker.bootstrap, topic, messages)
    found = client.consume(broker.bootstrap, topic, 3)
    assert [item[:3] for item in found] == [item[:3] for item in messages]


def test_a_large_message(broker: RunningBroker, topic: str, client: Client) -> None:
    """Close to the default limit: more than one read of a socket, and more than one write."""
    value = b"x" * 1_000_000
    client.produce(broker.bootstrap, topic, [Message(b"key", value)])
    client.produce(broker.bootstrap, topic, [Message(b"key", value + b"y")])
    found = client.consume(broker.bootstrap, topic, 2)
    assert [item.value for item in found] == [value, value + b"y"]
