"""Tests of who keeps its fetch session when there are too many."""

from random import Random

from odradek.fetching.sessions import FetchSession, FetchSessions
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState

SLOTS = 3
CONSUMER = -1


def begin(sessions: FetchSessions, replica_id: int = CONSUMER) -> FetchSession:
    topics = [FetchTopic(topic="t", partitions=[FetchPartition(0)])]
    return sessions.open(
        FetchRequest(replica_state=ReplicaState(replica_id), session_epoch=0, topics=topics), False
    )


def new_sessions() -> FetchSessions:
    return FetchSessions(SLOTS, Random(1))


def test_the_consumer_that_was_silent_for_longest_loses_its_session() -> None:
    sessions = new_sessions()
    first, second, third = (begin(sessions) for _ in range(SLOTS))
    sessions.open(FetchRequest(session_id=first.id, session_epoch=1), False)
    fourth = begin(sessions)
    assert [sessions.get(one.id) is one for one in (first, second, third, fourth)] == [
        True,
        False,
        True,
        True,
    ]


def test_consumers_take_no_session_from_a_replica() -> None:
    sessions = new_sessions()
    replicas = [begin(sessions, replica_id) for replica_id in (1, 2)]
    for _ in range(10):
        assert begin(sessions).id, "one place is left for them"
    assert all(sessions.get(one.id) is one for one in replicas)
    third = begin(sessions, 3)
    assert sessions.get(third.id) is third and not begin(sessions).id, "none is left"
    fourth = begin(sessions, 4)
    assert sessions.get(fourth.id) is fourth and sessions.get(replicas[0].id) is None
    assert len(sessions) == SLOTS
