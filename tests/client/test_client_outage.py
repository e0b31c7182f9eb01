"""Brokers that are away: waited for by whoever has reached them before, and said in a sentence."""

import logging
import threading

import pytest

from odradek.client.cluster import LATEST, Cluster, borrow_cluster
from odradek.client.connection import ConnectionLost
from odradek.client.deadline import Deadline, TimedOut
from odradek.client.fetching import RangeReader
from odradek.client.settings import ClientSettings, FetchSettings
from odradek.errors import ErrorCode
from odradek.model import TopicPartition
from odradek.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from odradek.wire.messages.metadata import MetadataRequest
from tests.client.scripted_broker import FETCH, LIST_OFFSETS, METADATA, ScriptedBroker, metadata_of

NOBODY = ConnectionLost("cannot connect to broker here:1: Connection refused")


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def deadline(limit_s: float, clock: Clock) -> Deadline:
    return Deadline("list topics", lambda: limit_s, 0.1, clock=lambda: clock.now_s, sleep=clock.sleep)


def test_an_outage_is_told_at_growing_intervals_and_so_is_its_end(caplog):
    clock = Clock()
    asking = deadline(600, clock)
    with caplog.at_level(logging.INFO, "odradek.client"):
        while clock.now_s < 1_093:
            asking.pause(NOBODY)
        asking.met()
    *warnings, last = caplog.messages
    assert [text.split(" after ")[1].split(":")[0] for text in warnings] == [
        "6 s",
        "10 s",
        "20 s",
        "40 s",
        "80 s",
    ]
    assert warnings[1] == f"still cannot list topics after 10 s: {NOBODY}. Retrying for up to 590 s more"
    assert last == "brokers are reachable again after 94 s: could list topics"
    assert {record.levelname for record in caplog.records[:-1]} == {"WARNING"}


def test_a_question_that_is_given_up_is_not_asked_again():
    clock = Clock()
    now_s, is_stopping = clock.now_s, []
    asking = Deadline(
        "list topics",
        lambda: 600,
        0.1,
        is_given_up=lambda: bool(is_stopping),
        clock=lambda: clock.now_s,
        sleep=clock.sleep,
    )
    asking.pause(NOBODY)
    is_stopping.append(True)
    with pytest.raises(TimedOut, match=f"could not list topics before it was stopped: {NOBODY}"):
        asking.pause(NOBODY)
    assert clock.now_s == now_s + 0.1


def test_a_question_that_is_answered_soon_is_not_talked_about(caplog):
    clock = Clock()
    asking = deadline(600, clock)
    with caplog.at_level(logging.INFO, "odradek.client"):
        asking.pause(NOBODY)
        asking.met()
    assert caplog.messages == []


def test_the_limit_is_kept_and_pauses_grow():
    clock, tries = Clock(), 0
    asking = deadline(60, clock)
    with pytest.raises(TimedOut, match=r"could not list topics within 60 s: cannot connect to broker here:1"):
        while True:
            asking.pause(NOBODY)
            tries += 1
    assert clock.now_s == pytest.approx(1_060)
    assert 60 < tries < 70, "about once a second, after the first"


def settings(broker: ScriptedBroker, **changes: float) -> ClientSettings:
    return broker.settings(**({"api_timeout_s": 60.0, "first_contact_timeout_s": 0.02} | changes))


def test_who_never_reached_a_broker_fails_soon_and_is_told_what_to_check():
    with ScriptedBroker() as broker:
        pass
    with pytest.raises(TimedOut) as error:
        Cluster(settings(broker)).topic_names()
    assert f"could not list topics within 0.02 s: cannot connect to broker 127.0.0.1:{broker.port}" in str(
        error.value
    )
    assert str(error.value).endswith("Check kafka.bootstrap.servers, and that the brokers are running")


@pytest.mark.parametrize("ask", [Cluster.topic_names, lambda cluster: cluster.partitions_of(["t"])])
def test_who_has_reached_one_waits_for_its_return(ask):
    leaders = {("t", 0): (1, 0)}
    with ScriptedBroker() as broker:
        broker.handlers[METADATA] = metadata_of([broker], leaders)
        cluster = Cluster(settings(broker))
        cluster.topic_names()
    results: list[object] = []
    asking = threading.Thread(target=lambda: results.append(ask(cluster)), daemon=True)
    asking.start()
    asking.join(0.1)
    assert asking.is_alive(), "longer than the time for a first contact"
    with ScriptedBroker(port=broker.port, handlers=broker.handlers):
        asking.join(30)
    assert results in ([["t"]], [[TopicPartition("t", 0)]])


def test_every_user_of_a_kept_cluster_reaches_it_anew():
    with ScriptedBroker() as broker:
        broker.handlers[METADATA] = metadata_of([broker], {})
        with borrow_cluster(settings(broker)) as cluster:
            assert not cluster.was_reached
            cluster.topic_names()
            assert cluster.was_reached
        with borrow_cluster(settings(broker)) as again:
            assert again is cluster and not again.was_reached
        with borrow_cluster(settings(broker), was_reached=True) as going_on:
            assert going_on.was_reached


def test_a_connection_without_a_response_is_no_contact():
    """A listener that wants SASL talks about versions, and closes at the first request."""
    with ScriptedBroker() as broker:
        broker.handlers[METADATA] = lambda request: None
        with pytest.raises(TimedOut, match=r"closed by the broker\. Check kafka"):
            Cluster(settings(broker)).topic_names()


def test_a_reader_waits_longer_for_a_leader_than_for_a_record():
    failures = 40

    def serve(request: FetchRequest) -> FetchResponse:
        is_early = len(broker.requests_of(FetchRequest)) <= failures
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER if is_early else ErrorCode.NONE
        data = PartitionData(0, int(code), high_watermark=0, records=b"")
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[data])])

    with ScriptedBroker() as broker:
        broker.handlers |= {METADATA: metadata_of([broker], {("t", 0): (1, 0)}), FETCH: serve}
        cluster = Cluster(settings(broker))
        reader = RangeReader(cluster, TopicPartition("t", 0), 0, 1, FetchSettings(), timeout_s=0.001)
        with pytest.raises(TimedOut, match=r"within 0\.001 s: there is no such record yet"):
            reader.fetch()
        assert len(broker.requests_of(FetchRequest)) > failures
        assert len(broker.requests_of(MetadataRequest)) > failures, (
            "the leader is looked for after every failure"
        )


def test_a_broker_that_is_cut_off_is_not_believed_for_ever():
    """It says that it leads the partition, and refuses to, or does not answer; another one knows better."""
    for refusal in (list_offsets_response(ErrorCode.NOT_LEADER_OR_FOLLOWER), lambda request: None):
        with ScriptedBroker(1) as stale, ScriptedBroker(2) as fresh:
            stale.handlers = {
                METADATA: metadata_of([stale, fresh], {("t", 0): (1, 0)}),
                LIST_OFFSETS: refusal,
            }
            fresh.handlers = {
                METADATA: metadata_of([stale, fresh], {("t", 0): (2, 1)}),
                LIST_OFFSETS: list_offsets_response(ErrorCode.NONE),
            }
            cluster = Cluster(stale.settings())
            try:
                assert cluster.list_offsets({TopicPartition("t", 0): LATEST}) == {TopicPartition("t", 0): 7}
            finally:
                cluster.close()


def list_offsets_response(code):
    partition = ListOffsetsPartitionResponse(0, code, -1, -1 if code else 7)
    return lambda request: ListOffsetsResponse(topics=[ListOffsetsTopicResponse("t", [partition])])
