"""controller_mutation_rate: topics are refused, or clients throttled, as KIP-599 says."""

from random import Random

from odradek.config.broker import BrokerConfig
from odradek.controller.controller import Controller
from odradek.controller.parts import Part
from odradek.errors import ErrorCode
from odradek.metadata.records import ClientQuotaRecord, QuotaEntity
from odradek.model import Caller, Principal, node_caller
from odradek.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.controller.controller_cluster import apply, cluster

ADA = Caller(Principal("User", "ada"), client_id="x")
LIMIT = 1.0  # a second: 11 at once
EXCEEDED = ErrorCode.THROTTLING_QUOTA_EXCEEDED


class Quorum:
    """A controller, with its clock."""

    def __init__(self):
        self.now_ms = 0
        self.controller = Controller(1, BrokerConfig(), Random(1), lambda: self.now_ms)
        quota = ClientQuotaRecord([QuotaEntity("user", "ada")], "controller_mutation_rate", LIMIT)
        self.image = apply(cluster(1), [quota])

    def decide(self, request, version, caller=ADA):
        records, response = self.controller.decide(self.image, Part(request), version, caller)
        self.image = apply(self.image, records)
        return response

    def create(self, *names, partitions=8, version=7, caller=ADA):
        topics = [CreatableTopic(name, partitions, 1) for name in names]
        response = self.decide(CreateTopicsRequest(topics), version, caller)
        return [topic.error_code for topic in response.topics], response.throttle_time_ms


def test_new_versions_are_refused_topic_by_topic():
    quorum = Quorum()
    assert quorum.create("a", "b", "c") == ([0, 0, EXCEEDED], 5000)  # 16 of 11: overdrawn by 5
    assert set(quorum.image.topics) == {"a", "b"}
    quorum.now_ms = 4_000
    assert quorum.create("c") == ([EXCEEDED], 1000)
    quorum.now_ms = 5_000
    assert quorum.create("c") == ([0], 0)


def test_old_versions_are_throttled_and_never_refused():
    quorum = Quorum()
    assert quorum.create("a", "b", "c", version=5) == ([0, 0, 0], 13_000)
    assert quorum.create("d", version=5) == ([0], 21_000)


def test_others_and_nodes_are_not_limited():
    quorum = Quorum()
    quorum.create("a", "b")
    assert quorum.create("c", "d", caller=Caller(Principal("User", "bob")))[0] == [0, 0]
    assert quorum.create("e", "f", caller=node_caller(1))[0] == [0, 0]
    assert quorum.create("g")[0] == [EXCEEDED]


def test_what_is_refused_for_another_reason_costs_nothing():
    quorum = Quorum()
    for _ in range(5):
        assert quorum.create("not legal", partitions=100)[0] == [ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert quorum.create("a")[0] == [0]


def test_deletions_and_more_partitions_count():
    quorum = Quorum()
    quorum.create("a", partitions=11)
    more = quorum.decide(CreatePartitionsRequest([CreatePartitionsTopic("a", 12, None)]), 3)
    assert more.results[0].error_code == 0
    more = quorum.decide(CreatePartitionsRequest([CreatePartitionsTopic("a", 13, None)]), 3)
    assert (more.results[0].error_code, more.throttle_time_ms) == (EXCEEDED, 1000)
    deleted = quorum.decide(DeleteTopicsRequest([DeleteTopicState("a")]), 6)
    assert (deleted.responses[0].error_code, deleted.throttle_time_ms) == (EXCEEDED, 1000)
    deleted = quorum.decide(DeleteTopicsRequest([DeleteTopicState("a")]), 4)
    assert (deleted.responses[0].error_code, deleted.throttle_time_ms) == (0, 13_000)
