"""A replica's roles: one for each epoch, and what goes over from one to the next."""

from typing import cast
from uuid import UUID

import pytest

from odradek.errors import ErrorCode, KafkaError
from odradek.replication.replica import Replica
from odradek.replication.replicas import Replicas
from odradek.replication.settings import ReplicaSettings
from odradek.storage.log.log import Log
from tests.replication.fakes import NAME, NODE, FakeLog, registration

FOLLOWS = {"leader": 2, "replicas": (1, 2), "isr": (1, 2)}


def replica_of(log: FakeLog, high_watermark: int = 0) -> Replica:
    return Replica(
        NAME,
        UUID(int=1),
        cast(Log, log),
        ReplicaSettings(),
        high_watermark=high_watermark,
        appended=lambda replica: None,
    )


def be(replica: Replica, **registered: object) -> bool:
    return replica.take_role(NODE, registration(**registered), now_ms=0)  # type: ignore[arg-type]


def test_takes_the_role_that_the_metadata_gives_it() -> None:
    replica = replica_of(FakeLog(end_offset=9, synced_offset=9), high_watermark=4)
    assert (replica.high_watermark, replica.leader_epoch) == (4, -1)
    assert be(replica, leader_epoch=3, **FOLLOWS)
    assert replica.leader is None and replica.follower is not None
    assert (replica.high_watermark, replica.leader_epoch, replica.follower.leader) == (4, 3, 2)
    assert be(replica, leader_epoch=4, replicas=(1, 2), isr=(1, 2))
    assert replica.leader is not None and replica.follower is None
    assert (replica.high_watermark, replica.leader_epoch) == (4, 4), "it takes over with what it knew before"


def test_the_same_epoch_is_the_same_role() -> None:
    replica = replica_of(FakeLog())
    assert be(replica, leader_epoch=3, replicas=(1, 2), isr=(1, 2))
    leader = replica.leader
    assert not be(replica, leader_epoch=3, partition_epoch=1, replicas=(1, 2), isr=(1,))
    assert replica.leader is leader and leader is not None
    assert leader.isr == {1}


def test_an_older_registration_changes_nothing() -> None:
    replica = replica_of(FakeLog())
    assert be(replica, leader_epoch=3)
    assert not be(replica, leader_epoch=2, **FOLLOWS)
    assert replica.leader is not None


def test_a_wait_of_one_epoch_is_not_fulfilled_by_the_next() -> None:
    """Leadership is lost and regained, and the record is committed only then: perhaps it is another one by now."""
    log, told = FakeLog(), []
    replica = replica_of(log)
    be(replica, leader_epoch=3)
    assert replica.leader is not None
    log.end_offset = 1
    replica.leader.when_committed(1, told.append)
    old = replica.leader
    be(replica, leader_epoch=4, **FOLLOWS)
    assert told == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    be(replica, leader_epoch=5)
    log.synced_offset = 1
    replica.log_written()
    assert replica.high_watermark == 1
    assert told == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    old.when_committed(1, told.append)
    assert told == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2, "nor is one that comes too late"


def test_leading_on_in_a_new_epoch_ends_the_waits_of_the_old_one() -> None:
    log, told = FakeLog(end_offset=1), []
    replica = replica_of(log)
    be(replica, leader_epoch=3)
    assert replica.leader is not None
    replica.leader.when_committed(1, told.append)
    replica.leader.when_high_watermark_moves(told.append)
    replica.leader.when_log_end_moves(told.append)
    be(replica, leader_epoch=4)
    assert told == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 3


def test_a_closed_replica_takes_no_role_any_more() -> None:
    replica = replica_of(FakeLog())
    be(replica, leader_epoch=3)
    replica.close(ErrorCode.KAFKA_STORAGE_ERROR)
    assert not be(replica, leader_epoch=4)
    assert replica.leader is not None
    assert replica.leader.closed_with is ErrorCode.KAFKA_STORAGE_ERROR


def test_settings_reach_the_role() -> None:
    replica = replica_of(FakeLog(end_offset=3))
    be(replica, leader_epoch=3)
    replica.configure(ReplicaSettings(sync_commit=False))
    assert replica.leader is not None
    assert replica.leader.settings is replica.settings
    assert replica.high_watermark == 3


@pytest.mark.parametrize(
    ("role", "code"),
    [
        ("leader", None),
        ("follower", ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ("none yet", ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ("failed leader", ErrorCode.KAFKA_STORAGE_ERROR),
        ("unknown", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_who_asks_for_the_leader_hears_why_there_is_none(role: str, code: ErrorCode | None) -> None:
    replicas, replica = Replicas(lambda topic, partition: None), replica_of(FakeLog())
    if role != "unknown":
        replicas.add(replica)
    if role.endswith("leader"):
        be(replica, leader_epoch=3)
    if role == "follower":
        be(replica, leader_epoch=3, **FOLLOWS)
    if role == "failed leader":
        replica.close(ErrorCode.KAFKA_STORAGE_ERROR)
    if code is None:
        assert replicas.leader(*NAME) is replica.leader
        return
    with pytest.raises(KafkaError) as refused:
        replicas.leader(*NAME)
    assert refused.value.code is code
