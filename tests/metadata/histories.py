"""Random histories of the metadata: lists of records that fit one after the other, of every kind there is."""

import random
from collections.abc import Callable
from uuid import UUID

from odradek.metadata.delta import apply_records
from odradek.metadata.image import MetadataImage
from odradek.metadata.records import (
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuotaEntity,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    SupportedFeature,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
)


class History:
    """`next` gives the records of one commit, which the next ones build on."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.image = MetadataImage("")
        self.kinds: set[type[MetadataRecord]] = set()
        self._changes: list[Callable[[], list[MetadataRecord]]] = [
            self._topic,
            self._topic,
            self._remove_topic,
            self._partitions,
            self._change_partition,
            self._config,
            self._quota,
            self._credential,
            self._acl,
            self._feature,
            self._broker,
            self._change_broker,
            self._unregister,
            self._controller,
            self._producer_ids,
            self._transaction,
            lambda: [NoOpRecord()],
        ]

    def next(self) -> list[MetadataRecord]:
        records = self._some()
        self.kinds.update(map(type, records))
        self.image, _ = apply_records(self.image, records, self.image.offset + len(records), 1)
        return records

    def _some(self) -> list[MetadataRecord]:
        while True:
            records = self._rng.choice(self._changes)()
            if records:
                return records

    def _id(self) -> UUID:
        return UUID(int=self._rng.getrandbits(128))

    def _numbers(self) -> list[int]:
        return self._rng.sample(range(5), self._rng.randrange(4))

    def _ids(self) -> list[UUID]:
        return [self._id() for _ in range(self._rng.randrange(3))]

    # Topics

    def _topic(self) -> list[MetadataRecord]:
        topic_id, name = self._id(), f"{self._rng.choice('ab')}.{self._rng.randrange(200)}"
        if name in self.image.topics:
            return []
        count = self._rng.choice([0, 1, 1, 3, 100])
        return [TopicRecord(name, topic_id), *(self._partition(topic_id, index) for index in range(count))]

    def _partition(self, topic_id: UUID, index: int) -> PartitionRecord:
        rng = self._rng
        return PartitionRecord(
            index,
            topic_id,
            replicas=self._numbers(),
            isr=self._numbers(),
            removing_replicas=self._numbers(),
            adding_replicas=self._numbers(),
            leader=rng.randrange(-1, 5),
            leader_recovery_state=rng.randrange(2),
            leader_epoch=rng.randrange(9),
            partition_epoch=rng.randrange(9),
            directories=self._ids(),
            eligible_leader_replicas=rng.choice([None, [], [1, 2]]),
            last_known_elr=rng.choice([None, [], [3]]),
        )

    def _any_topic(self) -> UUID | None:
        return self._rng.choice(list(self.image.topics_by_id)) if self.image.topics_by_id else None

    def _remove_topic(self) -> list[MetadataRecord]:
        topic_id = self._any_topic()
        return [RemoveTopicRecord(topic_id)] if topic_id else []

    def _partitions(self) -> list[MetadataRecord]:
        topic_id = self._any_topic()
        if topic_id is None:
            return []
        count = len(self.image.topics_by_id[topic_id].partitions)
        return [self._partition(topic_id, count + more) for more in range(self._rng.randint(1, 3))]

    def _change_partition(self) -> list[MetadataRecord]:
        topic_id = self._any_topic()
        if topic_id is None or not self.image.topics_by_id[topic_id].partitions:
            return []
        rng = self._rng
        change = PartitionChangeRecord(
            rng.choice(list(self.image.topics_by_id[topic_id].partitions)), topic_id
        )
        for name in ("isr", "replicas", "adding_replicas", "removing_replicas", "eligible_leader_replicas"):
            if rng.random() < 0.3:
                setattr(change, name, self._numbers())
        change.leader = rng.choice([-2, -1, 1, 2])
        change.leader_recovery_state = rng.choice([-1, 0, 1])
        change.last_known_elr = rng.choice([None, [4]])
        change.directories = rng.choice([None, self._ids()])
        return [change]

    # Nodes

    def _endpoints(self) -> list[BrokerEndpoint]:
        rng = self._rng
        names = ("PLAINTEXT", "INTERNAL")[: rng.randrange(3)]
        return [BrokerEndpoint(name, f"h{rng.randrange(9)}", rng.randrange(1, 9999), 0) for name in names]

    def _features(self) -> list[SupportedFeature]:
        return [SupportedFeature("f", 1, self._rng.randrange(1, 9))][: self._rng.randrange(2)]

    def _broker(self) -> list[MetadataRecord]:
        rng = self._rng
        return [
            RegisterBrokerRecord(
                broker_id=rng.randrange(4),
                incarnation_id=self._id(),
                broker_epoch=rng.randrange(1000),
                end_points=self._endpoints(),
                features=self._features(),
                rack=rng.choice([None, "r"]),
                fenced=rng.random() < 0.5,
                in_controlled_shutdown=rng.random() < 0.5,
                log_dirs=self._ids(),
            )
        ]

    def _change_broker(self) -> list[MetadataRecord]:
        rng, brokers = self._rng, self.image.brokers
        if not brokers:
            return []
        broker = rng.choice(list(brokers.values()))
        kind = rng.choice([FenceBrokerRecord, UnfenceBrokerRecord, None])
        if kind is not None:
            return [kind(broker.id, broker.epoch)]
        return [
            BrokerRegistrationChangeRecord(
                broker.id, broker.epoch, rng.choice([-1, 0, 1]), rng.choice([0, 1]), self._ids()
            )
        ]

    def _unregister(self) -> list[MetadataRecord]:
        if not self.image.brokers or self._rng.random() < 0.7:
            return []
        broker = self._rng.choice(list(self.image.brokers.values()))
        return [UnregisterBrokerRecord(broker.id, broker.epoch)]

    def _controller(self) -> list[MetadataRecord]:
        return [
            RegisterControllerRecord(
                self._rng.randrange(3), self._id(), False, self._endpoints(), self._features()
            )
        ]

    # All else

    def _config(self) -> list[MetadataRecord]:
        rng = self._rng
        resource = rng.choice([(2, f"a.{rng.randrange(5)}"), (4, ""), (4, "1"), (32, "g")])
        return [ConfigRecord(*resource, f"k{rng.randrange(3)}", rng.choice([None, "", "v"]))]

    def _quota(self) -> list[MetadataRecord]:
        rng = self._rng
        entity = [QuotaEntity("user", rng.choice([None, "u"])), QuotaEntity("client-id", "c")]
        return [ClientQuotaRecord(entity[: rng.randint(1, 2)], "rate", rng.random(), rng.random() < 0.3)]

    def _credential(self) -> list[MetadataRecord]:
        rng, users = self._rng, self.image.credentials
        if users and rng.random() < 0.4:
            mechanism, name = rng.choice(list(users))
            return [RemoveUserScramCredentialRecord(name, mechanism)]
        keys = [rng.randbytes(4) for _ in range(3)]
        return [UserScramCredentialRecord(f"u{rng.randrange(3)}", rng.choice([1, 2]), *keys, 4096)]

    def _acl(self) -> list[MetadataRecord]:
        rng, acls = self._rng, self.image.acls
        if acls and rng.random() < 0.4:
            return [RemoveAccessControlEntryRecord(rng.choice(list(acls)))]
        pattern = rng.choice([3, 4])
        name = f"t{rng.randrange(1000)}"  # nearly never one that is there
        return [
            AccessControlEntryRecord(UUID(int=rng.getrandbits(128)), 2, name, pattern, "User:u", "*", 3, 2)
        ]

    def _feature(self) -> list[MetadataRecord]:
        rng = self._rng
        return [FeatureLevelRecord(rng.choice(["f", "g", "metadata.version"]), rng.randrange(3))]

    def _producer_ids(self) -> list[MetadataRecord]:
        return [ProducerIdsRecord(1, 2, self.image.next_producer_id + self._rng.randint(1, 1000))]

    def _transaction(self) -> list[MetadataRecord]:
        """A whole one: nobody here writes one in parts, or aborts what has changed something."""
        if self._rng.random() < 0.3:
            return [BeginTransactionRecord("x"), AbortTransactionRecord("y")]
        return [BeginTransactionRecord("x"), *self._some_plain(), EndTransactionRecord()]

    def _some_plain(self) -> list[MetadataRecord]:
        while True:
            records = self._some()
            if not isinstance(records[0], BeginTransactionRecord):
                return records
