"""Fetch sessions (KIP-227): partitions named once, answered when they have news."""

from odradek.errors import ErrorCode
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.wire.messages.fetch import FetchRequest, ForgottenTopic
from tests.protocol.raw import Raw, batch, fetch_request
from tests.support import RunningBroker

SLOTS = 50  # as the broker of these tests is set


def two_topics(raw: Raw, topic: str) -> list[str]:
    names = [topic, f"{topic}-2"]
    for name in names:
        raw.create(name)
        raw.produce(name, batch(b"first"))
    return names


def begin(raw: Raw, names: list[str]) -> int:
    """A full fetch; the id of the session it began."""
    response = raw.ask(fetch_request(names, session_epoch=0), 12)
    assert sorted(topic.topic for topic in response.responses) == sorted(names)
    session_id: int = response.session_id
    assert session_id > 0
    return session_id


def go_on(raw: Raw, session_id: int, epoch: int, request: FetchRequest | None = None) -> dict[str, int]:
    """An incremental fetch; which topics it was answered with, and where they end."""
    request = request or fetch_request([])
    request.session_id, request.session_epoch = session_id, epoch
    response = raw.ask(request, 12)
    assert response.error_code == 0
    return {topic.topic: topic.partitions[0].high_watermark for topic in response.responses}


def test_an_incremental_fetch_answers_what_has_news(raw: Raw, topic: str) -> None:
    names = two_topics(raw, topic)
    session = begin(raw, names)
    assert go_on(raw, session, 1, fetch_request(names, offset=1)) == {}
    raw.produce(names[1], batch(b"second"))
    assert go_on(raw, session, 2) == {names[1]: 2}
    assert go_on(raw, session, 3, fetch_request(names[1], offset=2)) == {}


def test_what_was_not_consumed_is_sent_again(raw: Raw, topic: str) -> None:
    names = two_topics(raw, topic)
    session = begin(raw, names)
    assert go_on(raw, session, 1) == {names[0]: 1, names[1]: 1}


def test_a_forgotten_partition_is_answered_no_more(raw: Raw, topic: str) -> None:
    names = two_topics(raw, topic)
    session = begin(raw, names)
    request = fetch_request([])
    request.forgotten_topics_data = [ForgottenTopic(topic=names[0], partitions=[0])]
    assert go_on(raw, session, 1, request) == {names[1]: 1}


def test_a_topic_added_to_a_session(raw: Raw, topic: str) -> None:
    names = two_topics(raw, topic)
    session = begin(raw, names[:1])
    assert go_on(raw, session, 1, fetch_request(names[1])) == {names[0]: 1, names[1]: 1}


def test_a_wrong_epoch_and_an_unknown_session(raw: Raw, topic: str) -> None:
    session = begin(raw, two_topics(raw, topic))
    wrong = raw.ask(fetch_request([], session_id=session, session_epoch=5), 12)
    assert wrong.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    unknown = raw.ask(fetch_request([], session_id=session ^ 1, session_epoch=1), 12)
    assert unknown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert go_on(raw, session, 1) != {}


def test_names_and_ids_do_not_mix_in_one_session(raw: Raw, topic: str) -> None:
    session = begin(raw, two_topics(raw, topic))
    response = raw.ask(fetch_request([], session_id=session, session_epoch=1), 16)
    assert response.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_the_final_fetch_ends_the_session(raw: Raw, topic: str) -> None:
    session = begin(raw, two_topics(raw, topic))
    raw.ask(fetch_request([], session_id=session, session_epoch=-1), 12)
    gone = raw.ask(fetch_request([], session_id=session, session_epoch=1), 12)
    assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_the_least_recently_used_session_makes_room(broker: RunningBroker, raw: Raw, topic: str) -> None:
    names = two_topics(raw, topic)
    old, used = begin(raw, names), begin(raw, names)
    for _ in range(SLOTS - 2):
        begin(raw, names)
    go_on(raw, used, 1)
    begin(raw, names)
    gone = raw.ask(fetch_request([], session_id=old, session_epoch=1), 12)
    assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    go_on(raw, used, 2)


def test_a_deleted_topic_is_told_of_within_a_session(raw: Raw, topic: str) -> None:
    names = two_topics(raw, topic)
    session = begin(raw, names)
    raw.ask(DeleteTopicsRequest([DeleteTopicState(names[0])], timeout_ms=5000))
    response = raw.ask(fetch_request(names, offset=1, session_id=session, session_epoch=1), 12)
    found = {one.topic: ErrorCode(one.partitions[0].error_code).name for one in response.responses}
    assert found == {names[0]: "UNKNOWN_TOPIC_OR_PARTITION"}
