"""Lives of one broker: random work from a seed, a sudden end, a new start, and a look at whether all is kept.

The work mixes what users do with what operators do: records and group commits beside topics deleted and made again,
records deleted, cleanup policies and segment sizes changed, partitions added. Every life ends with kill -9, now and
then with requests of any kind under way, or with a clean stop; some are killed again while they start. After each start
everything that can be read is compared with the ledger, byte for byte.
"""

import random
import uuid
from collections.abc import Callable
from typing import Any

from odradek.errors import ErrorCode
from odradek.records.record import Record, build_batch, decode_batch
from odradek.records.walk import whole_batches
from odradek.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from odradek.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.wire.messages.init_producer_id import InitProducerIdRequest
from odradek.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.wire.messages.metadata import MetadataRequest
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.lives.homes import Home, Link
from tests.lives.ledger import (
    Batch,
    BrokenPromise,
    GroupLedger,
    KeyValue,
    Ledger,
    PartitionLedger,
    TopicLedger,
)
from tests.lives.members import ClassicMember, ConsumerMember, Member, commit, committed_offsets

# Everything that a broker does now and then, it does all the time.
SETTINGS = {
    "auto_create_topics_enable": "false",
    "group_initial_rebalance_delay_ms": "0",
    "log_cleaner_backoff_ms": "50",
    "log_retention_check_interval_ms": "150",
    "metadata_log_max_record_bytes_between_snapshots": "700",
    "metadata_max_retention_bytes": "3000",
    "offsets_topic_num_partitions": "2",
    "replica_high_watermark_checkpoint_interval_ms": "100",
}
NAMES = ["apple", "bear", "cedar"]
KEYS = [b"k%d" % number for number in range(6)]
MAX_PARTITIONS = 4
MAX_IN_FLIGHT = 4  # batches; a broker remembers five of a producer
EARLIEST, LATEST = -2, -1
TOPIC_RESOURCE, SET = 2, 0


class Lives:
    def __init__(self, home: Home, rng: random.Random) -> None:
        self._home = home
        self._rng = rng
        self._ledger = Ledger()
        self._members: list[Member] = [
            ClassicMember("classic"),
            ConsumerMember("consumer", uuid.UUID(int=self._rng.getrandbits(128), version=4)),
        ]
        self._ledger.groups = {member.group: GroupLedger(member.group) for member in self._members}
        self._count = 0
        self._parked: list[Link] = []
        self._link = home.connect()
        self.trace: list[str] = []
        self.acknowledged = 0  # records
        self._actions: list[tuple[int, Callable[[], None]]] = [
            (40, self.produce),
            (10, self.commit),
            (8, self.delete_records),
            (8, self.alter_config),
            (6, self.create_topic),
            (5, self.remake_topic),
            (3, self.delete_topic),
            (3, self.add_partitions),
            (4, self.park_fetch),
            (5, self.let_time_pass),
            (3, self.check),
        ]

    def __enter__(self) -> "Lives":
        return self

    def __exit__(self, *_: object) -> None:
        for link in (self._link, *self._parked):
            link.close()

    def live(self, actions: int) -> None:
        """One life, from an open port to the next."""
        weights = [weight for weight, _ in self._actions]
        for _ in range(actions):
            (action,) = self._rng.choices([action for _, action in self._actions], weights)
            action()
            self._read_parked()
        self._end()
        self._begin()
        self.check()
        self._retry_in_flight()

    def _note(self, what: str) -> None:
        self.trace.append(what)

    # --- topics ---

    def create_topic(self) -> None:
        free = [name for name in NAMES if name not in self._ledger.topics]
        if free:
            self._create(self._rng.choice(free))

    def _create(self, name: str) -> None:
        topic = self._new_topic(name)
        (created,) = self._link.ask(self._create_request(topic)).topics
        self._note(f"create {name} {len(topic.partitions)}: {created.error_code}")
        assert created.error_code == ErrorCode.NONE, created
        topic.id = created.topic_id
        self._ledger.topics[name] = topic

    def _new_topic(self, name: str) -> TopicLedger:
        topic = TopicLedger(name, uuid.UUID(int=0), [])
        topic.grow(self._rng.randint(1, 2))
        if self._rng.random() < 0.4:
            topic.policy, topic.may_be_compacted = "compact", True
        return topic

    def _create_request(self, topic: TopicLedger) -> CreateTopicsRequest:
        settings = {
            "internal.segment.bytes": str(self._rng.choice([700, 2_000, 10_000])),
            "file.delete.delay.ms": str(self._rng.choice([0, 50, 1_000])),
            "cleanup.policy": topic.policy,
            "retention.ms": "-1",
            "min.cleanable.dirty.ratio": "0.01",
            "delete.retention.ms": str(self._rng.choice([0, 100_000])),
            "index.interval.bytes": str(self._rng.choice([0, 100, 4096])),
        }
        configs = [CreatableTopicConfig(name, value) for name, value in settings.items()]
        wanted = CreatableTopic(topic.name, len(topic.partitions), 1, configs=configs)
        return CreateTopicsRequest(topics=[wanted])

    def delete_topic(self) -> None:
        topic = self._any_topic()
        if topic is not None:
            self._delete(topic)

    def _delete(self, topic: TopicLedger) -> None:
        (response,) = self._link.ask(self._delete_request(topic)).responses
        self._note(f"delete {topic.name}: {response.error_code}")
        assert response.error_code == ErrorCode.NONE, response
        self._ledger.topic_deleted(topic.name)

    @staticmethod
    def _delete_request(topic: TopicLedger) -> DeleteTopicsRequest:
        return DeleteTopicsRequest(topics=[DeleteTopicState(name=topic.name)], timeout_ms=10_000)

    def remake_topic(self) -> None:
        """Delete and create at once, most often while somebody waits for its records."""
        topic = self._any_topic()
        if topic is None:
            return
        if self._rng.random() < 0.7:
            self.park_fetch()
        self._delete(topic)
        self._create(topic.name)
        self._produce_to(self._ledger.topics[topic.name].partitions[0], topic.name, 0)

    def add_partitions(self) -> None:
        topic = self._any_topic()
        if topic is None or len(topic.partitions) >= MAX_PARTITIONS:
            return
        count = len(topic.partitions) + 1
        (result,) = self._link.ask(self._grow_request(topic, count)).results
        self._note(f"grow {topic.name} to {count}: {result.error_code}")
        assert result.error_code == ErrorCode.NONE, result
        topic.grow(count)

    @staticmethod
    def _grow_request(topic: TopicLedger, count: int) -> CreatePartitionsRequest:
        return CreatePartitionsRequest([CreatePartitionsTopic(topic.name, count, None)], 10_000)

    def alter_config(self) -> None:
        topic = self._any_topic()
        if topic is None:
            return
        name, value = self._rng.choice(
            [
                ("cleanup.policy", "compact"),
                ("cleanup.policy", "compact"),
                ("cleanup.policy", "delete"),
                ("cleanup.policy", "delete"),
                ("cleanup.policy", "compact,delete"),
                ("internal.segment.bytes", "700"),
                ("internal.segment.bytes", "5000"),
                ("segment.ms", "20"),
                ("segment.ms", "100000"),
                ("retention.bytes", "3000"),
                ("retention.bytes", "-1"),
                ("compression.type", "gzip"),
                ("compression.type", "producer"),
                ("index.interval.bytes", "0"),
            ]
        )
        self._alter(topic, name, value)

    def _alter(self, topic: TopicLedger, name: str, value: str) -> None:
        (response,) = self._link.ask(self._alter_request(topic, name, value)).responses
        self._note(f"alter {topic.name} {name}={value}: {response.error_code}")
        assert response.error_code == ErrorCode.NONE, response
        if name == "cleanup.policy":
            topic.policy = value

    @staticmethod
    def _alter_request(topic: TopicLedger, name: str, value: str) -> IncrementalAlterConfigsRequest:
        # What the new setting allows may begin before its response comes.
        topic.may_be_compacted |= value.startswith("compact")
        topic.may_be_deleted |= name == "retention.bytes" and value != "-1"
        resource = AlterConfigsResource(TOPIC_RESOURCE, topic.name, [AlterableConfig(name, SET, value)])
        return IncrementalAlterConfigsRequest([resource])

    # --- records ---

    def produce(self) -> None:
        place = self._any_partition()
        if place is not None:
            for _ in range(self._rng.randint(1, 4)):
                self._produce_to(*place)

    def _produce_to(self, partition: PartitionLedger, topic: str, index: int) -> None:
        batch = self._new_batch(partition)
        response = self._link.ask(self._produce_request(partition, topic, index, batch), 9)
        self._take_produced(partition, batch, response)

    def _take_produced(self, partition: PartitionLedger, batch: Batch, response: Any) -> None:
        (result,) = response.responses[0].partition_responses
        self._note(f"produce {partition.name} {len(batch.records)}: {result.error_code} {result.base_offset}")
        assert result.error_code == ErrorCode.NONE, result
        partition.acknowledged(result.base_offset, batch.records)
        self.acknowledged += len(batch.records)

    def _new_batch(self, partition: PartitionLedger) -> Batch:
        records = [self._new_record() for _ in range(self._rng.randint(1, 5))]
        if partition.producer_id < 0 and self._rng.random() < 0.5:
            response = self._link.ask(InitProducerIdRequest(None, 0), 4)
            assert response.error_code == ErrorCode.NONE, response
            partition.producer_id = response.producer_id
        if partition.producer_id < 0:
            return Batch(records)
        sequence, partition.next_sequence = partition.next_sequence, partition.next_sequence + len(records)
        return Batch(records, sequence)

    def _new_record(self) -> KeyValue:
        self._count += 1
        key = self._rng.choice(KEYS)
        if self._rng.random() < 0.05:
            return key, None
        return key, b"%d %s" % (self._count, b"x" * self._rng.choice([0, 10, 80]))

    def _produce_request(
        self, partition: PartitionLedger, topic: str, index: int, batch: Batch
    ) -> ProduceRequest:
        records = [
            Record(at, self._home.now_ms(), key, value) for at, (key, value) in enumerate(batch.records)
        ]
        options = {}
        if batch.sequence >= 0:
            options = {
                "producer_id": partition.producer_id,
                "producer_epoch": 0,
                "base_sequence": batch.sequence,
            }
        data = [PartitionProduceData(index, bytes(build_batch(records, **options)))]
        return ProduceRequest(None, -1, 30_000, [TopicProduceData(name=topic, partition_data=data)])

    def delete_records(self) -> None:
        place = self._any_partition()
        if place is None or place[0].end == 0:
            return
        partition, topic, index = place
        offset = self._rng.randint(partition.start, partition.end)
        (response,) = self._link.ask(self._delete_records_request(topic, index, offset)).topics
        (result,) = response.partitions
        self._note(f"delete records {partition.name} {offset}: {result.error_code} {result.low_watermark}")
        if self._ledger.topics[topic].policy == "compact":
            assert result.error_code == ErrorCode.POLICY_VIOLATION, result
            return
        may_be_deleted = self._ledger.topics[topic].may_be_deleted
        assert result.error_code == ErrorCode.NONE, result
        assert result.low_watermark == offset or (may_be_deleted and result.low_watermark >= offset), result
        partition.deleted_before(offset)

    @staticmethod
    def _delete_records_request(topic: str, index: int, offset: int) -> DeleteRecordsRequest:
        partitions = [DeleteRecordsPartition(index, offset)]
        return DeleteRecordsRequest([DeleteRecordsTopic(topic, partitions)], 10_000)

    # --- groups ---

    def commit(self) -> None:
        place = self._any_partition()
        if place is None:
            return
        partition, topic, index = place
        member = self._rng.choice(self._members)
        offset = self._rng.randint(0, partition.end)
        commit(self._link, member, sorted(self._ledger.topics), topic, index, offset)
        self._note(f"commit {member.group} {partition.name} {offset}")
        self._ledger.groups[member.group].committed[topic, index] = offset

    # --- waiting ---

    def park_fetch(self) -> None:
        """Wait at the end of every partition, on a connection that is read later."""
        if len(self._parked) < 3 and self._ledger.topics:
            parked = self._home.connect()
            parked.send(self._fetch_at_ends(max_wait_ms=3_000), 12)
            self._parked.append(parked)
            self._note("park a fetch")

    def let_time_pass(self) -> None:
        """Give checkpoints, retention and compaction some time."""
        self._link.ask(self._fetch_at_ends(max_wait_ms=self._rng.choice([20, 60, 150])), 12)
        self._note("wait")

    def _fetch_at_ends(self, max_wait_ms: int) -> FetchRequest:
        topics = [
            FetchTopic(
                topic=topic.name,
                partitions=[
                    FetchPartition(index, fetch_offset=partition.end, partition_max_bytes=1 << 20)
                    for index, partition in enumerate(topic.partitions)
                ],
            )
            for topic in self._ledger.topics.values()
        ]
        return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1 << 20, topics=topics)

    def _read_parked(self) -> None:
        for parked in [parked for parked in self._parked if parked.has_response()]:
            parked.receive()  # one whole response
            parked.ask(MetadataRequest(topics=[]), 12)  # and no second one behind it
            parked.close()
            self._parked.remove(parked)

    # --- the end, and a new beginning ---

    def _end(self) -> None:
        for parked in self._parked:
            parked.close()
        self._parked.clear()
        kind = self._rng.choices(["kill", "kill with work under way", "stop"], [3, 4, 2])[0]
        self._note(kind)
        if kind == "stop":
            self._home.stop()
        elif kind == "kill":
            self._home.kill()
        else:
            self._leave_work_under_way()
            self._home.kill(soon=self._rng.random() < 0.8)
        self._link.close()

    def _leave_work_under_way(self) -> None:
        """Sent, and never answered as far as we are concerned."""
        leave = self._rng.choice(
            [
                self._leave_batches,
                self._leave_batches,
                self._leave_commit,
                self._leave_deleted_records,
                self._leave_new_topic,
                self._leave_deleted_topic,
                self._leave_topic_made_again,
                self._leave_more_partitions,
                self._leave_policy,
            ]
        )
        leave()

    def _leave_batches(self) -> None:
        place = self._any_partition()
        if place is None:
            return
        partition, topic, index = place
        partition.in_flight = [self._new_batch(partition) for _ in range(self._rng.randint(1, MAX_IN_FLIGHT))]
        for batch in partition.in_flight:
            self._link.send(self._produce_request(partition, topic, index, batch), 9)
        self._note(f"leave {len(partition.in_flight)} batches to {partition.name}")

    def _leave_commit(self) -> None:
        place = self._any_partition()
        member = self._rng.choice(self._members)
        if place is None or not member.is_joined:
            return
        partition, topic, index = place
        offset = self._rng.randint(0, partition.end)
        self._ledger.groups[member.group].in_flight[topic, index] = offset
        self._link.send(member.commit_request(topic, index, offset), 9)
        self._note(f"leave commit {member.group} {partition.name} {offset}")

    def _leave_deleted_records(self) -> None:
        place = self._any_partition()
        if place is None or self._ledger.topics[place[1]].policy == "compact":
            return
        partition, topic, index = place
        partition.start_in_flight = self._rng.randint(partition.start, partition.end)
        self._link.send(self._delete_records_request(topic, index, partition.start_in_flight))
        self._note(f"leave delete records {partition.name} {partition.start_in_flight}")

    def _leave_new_topic(self) -> None:
        free = [name for name in NAMES if name not in self._ledger.topics]
        if free:
            self._send_creation(self._rng.choice(free))

    def _leave_deleted_topic(self) -> None:
        topic = self._any_topic()
        if topic is not None:
            self._send_deletion(topic)

    def _leave_topic_made_again(self) -> None:
        """Make a topic again with records in it: they come after the others, or not at all."""
        topic = self._any_topic()
        if topic is None:
            return
        new = self._new_topic(topic.name)
        batch = self._new_batch(new.partitions[0])
        self._send_deletion(topic)
        self._send_creation(topic.name, new)
        new.partitions[0].in_flight = [batch]
        self._link.send(self._produce_request(new.partitions[0], new.name, 0, batch), 9)

    def _send_creation(self, name: str, topic: TopicLedger | None = None) -> None:
        topic = topic or self._new_topic(name)
        self._ledger.may_have_come[name] = topic
        self._link.send(self._create_request(topic))
        self._note(f"leave create {name} {len(topic.partitions)}")

    def _send_deletion(self, topic: TopicLedger) -> None:
        topic.may_be_gone = True
        self._link.send(self._delete_request(topic))
        self._note(f"leave delete {topic.name}")

    def _leave_more_partitions(self) -> None:
        topic = self._any_topic()
        if topic is None or len(topic.partitions) >= MAX_PARTITIONS:
            return
        topic.may_have_grown_to = len(topic.partitions) + 1
        self._link.send(self._grow_request(topic, topic.may_have_grown_to))
        self._note(f"leave grow {topic.name} to {topic.may_have_grown_to}")

    def _leave_policy(self) -> None:
        topic = self._any_topic()
        if topic is not None:
            topic.policy_in_flight = self._rng.choice(["compact", "delete"])
            self._link.send(self._alter_request(topic, "cleanup.policy", topic.policy_in_flight))
            self._note(f"leave alter {topic.name} cleanup.policy={topic.policy_in_flight}")

    def _begin(self) -> None:
        if self._rng.random() < 0.15:
            self._note("kill while it starts")
            self._home.kill_while_starting()
        self._home.start()
        self._note("start")
        self._link = self._home.connect()

    def _retry_in_flight(self) -> None:
        """Like a client that got no response: each batch of an idempotent producer is there once, where it was."""
        for topic in self._ledger.topics.values():
            if topic.policy_in_flight is not None:
                value, topic.policy_in_flight = topic.policy_in_flight, None
                self._alter(topic, "cleanup.policy", value)
            for index, partition in enumerate(topic.partitions):
                batches, partition.in_flight = partition.in_flight, []
                for batch in batches:
                    if batch.sequence >= 0:
                        self._retry(partition, topic.name, index, batch)

    def _retry(self, partition: PartitionLedger, topic: str, index: int, batch: Batch) -> None:
        response = self._link.ask(self._produce_request(partition, topic, index, batch), 9)
        (result,) = response.responses[0].partition_responses
        self._note(f"retry {partition.name} at {batch.sequence}: {result.error_code} {result.base_offset}")
        assert result.error_code == ErrorCode.NONE, result
        if result.base_offset == partition.end:
            partition.acknowledged(result.base_offset, batch.records)
            return
        stored = [partition.records.get(result.base_offset + at) for at in range(len(batch.records))]
        for at, record in enumerate(stored):
            if record not in (None, batch.records[at]):  # None: deleted or compacted since
                raise BrokenPromise(
                    f"{partition.name}: a repeated batch was answered with {result.base_offset}"
                )

    # --- comparing ---

    def check(self) -> None:
        self._check_topics()
        for topic in self._ledger.topics.values():
            for index, partition in enumerate(topic.partitions):
                start, end = (
                    self._offset(topic.name, index, EARLIEST),
                    self._offset(topic.name, index, LATEST),
                )
                partition.check(start, end, self._read(topic.name, index, start, end), topic)
        for group in self._ledger.groups.values():
            if group.committed or group.in_flight:
                group.check(committed_offsets(self._link, group.name))
        self._note("check")

    def _check_topics(self) -> None:
        response = self._link.ask(MetadataRequest(topics=None), 12)
        found = {
            topic.name: (topic.topic_id, len(topic.partitions))
            for topic in response.topics
            if not topic.is_internal
        }
        self._ledger.check_topics(found)

    def _offset(self, topic: str, index: int, timestamp: int) -> int:
        wanted = [ListOffsetsTopic(topic, [ListOffsetsPartition(index, -1, timestamp)])]
        (response,) = self._link.ask(ListOffsetsRequest(-1, topics=wanted), 7).topics
        (result,) = response.partitions
        assert result.error_code == ErrorCode.NONE, result
        return int(result.offset)

    def _read(self, topic: str, index: int, start: int, end: int) -> dict[int, KeyValue]:
        found: dict[int, KeyValue] = {}
        offset = start
        while offset < end:
            wanted = FetchPartition(index, fetch_offset=offset, partition_max_bytes=1 << 20)
            request = FetchRequest(
                max_wait_ms=0, max_bytes=1 << 22, topics=[FetchTopic(topic=topic, partitions=[wanted])]
            )
            (result,) = self._link.ask(request, 12).responses[0].partitions
            if result.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                offset = self._offset(topic, index, EARLIEST)  # retention was faster
                assert offset > start, result
                continue
            assert result.error_code == ErrorCode.NONE, result
            batches = list(whole_batches(memoryview(result.records or b"")))
            if not batches:
                break
            for header, batch in batches:
                for record in decode_batch(batch, header):
                    if start <= record.offset < end:
                        found[record.offset] = (record.key or b"", record.value)
                offset = header.next_offset
        return found

    # --- choosing ---

    def _any_topic(self) -> TopicLedger | None:
        topics = list(self._ledger.topics.values())
        return self._rng.choice(topics) if topics else None

    def _any_partition(self) -> tuple[PartitionLedger, str, int] | None:
        topic = self._any_topic()
        if topic is None:
            return None
        index = self._rng.randrange(len(topic.partitions))
        return topic.partitions[index], topic.name, index
