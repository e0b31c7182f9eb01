"""Recipes for a cluster, with confluent-kafka: what code sees when a broker dies. `pytest docs/recipes` runs them."""

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

PATIENCE_S = 60


def producer_of(cluster, **settings: object) -> Producer:
    # reconnect.backoff.max.ms is 10 s by default: with less, the client finds a restarted broker at once
    common = {"bootstrap.servers": cluster.bootstrap, "reconnect.backoff.max.ms": 500, "linger.ms": 0}
    return Producer({**common, "enable.idempotence": True, **settings})


def consumer_of(cluster, group: str, **settings: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "reconnect.backoff.max.ms": 500,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            **settings,
        }
    )


def send(producer: Producer, topic: str, *values: str, partition: int = 0) -> None:
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(PATIENCE_S) == 0


def next_message(consumer: Consumer) -> Message:
    message = consumer.poll(PATIENCE_S)
    assert message is not None
    assert message.error() is None, message.error()
    return message


def read(cluster, topic: str, count: int) -> list[str]:
    """The first messages in partition 0 of a topic."""
    consumer = consumer_of(cluster, f"{topic}-reader")
    consumer.assign([TopicPartition(topic, 0, 0)])
    values = [next_message(consumer).value().decode() for _ in range(count)]
    consumer.close()
    return values


def test_a_producer_survives_its_leader(odradek_cluster, odradek_cluster_topic):
    """Messages that were acknowledged are kept, those that were under way are sent again, and none is stored twice."""
    topic = odradek_cluster_topic
    producer = producer_of(odradek_cluster)
    send(producer, topic, "acknowledged")

    leader = odradek_cluster.leader(topic)
    stored_and_nobody_knows = leader.faults.cut("Produce", topic=topic, after_handling=True)
    producer.produce(topic, "under way", partition=0)
    stored_and_nobody_knows.wait(timeout=PATIENCE_S)
    leader.crash()
    send(producer, topic, "after its death")

    assert odradek_cluster.leader(topic) is not leader
    assert read(odradek_cluster, topic, 3) == ["acknowledged", "under way", "after its death"]


def test_a_consumer_survives_its_coordinator(odradek_cluster, odradek_cluster_topic):
    """The group moves to another coordinator, which knows what was committed: nothing is lost, nothing comes twice."""
    topic, group = odradek_cluster_topic, f"{odradek_cluster_topic}-group"
    producer = producer_of(odradek_cluster)
    send(producer, topic, "1", "2", "3")
    consumer = consumer_of(odradek_cluster, group)
    consumer.subscribe([topic])
    seen = [next_message(consumer).value() for _ in range(2)]
    consumer.commit(offsets=[TopicPartition(topic, 0, 2)], asynchronous=False)

    coordinator = odradek_cluster.coordinator(group)
    coordinator.crash()
    odradek_cluster.coordinator(group, other_than=coordinator)
    send(producer, topic, "4")
    seen += [next_message(consumer).value() for _ in range(2)]
    consumer.commit(offsets=[TopicPartition(topic, 0, 4)], asynchronous=False)

    assert seen == [b"1", b"2", b"3", b"4"]
    (committed,) = consumer.committed([TopicPartition(topic, 0)], PATIENCE_S)
    assert committed.offset == 4
    consumer.close()


@pytest.mark.odradek_cluster(
    broker_session_timeout_ms=60_000
)  # nobody takes its partitions over in this test
def test_lag_while_a_broker_is_paused(odradek_cluster):
    """Partitions of other brokers are read on. Those of the paused one lag behind, and are read when it is back."""
    topic = odradek_cluster.create_topic(replicas=[[1, 2, 3], [2, 3, 1]])
    producer = producer_of(odradek_cluster)
    for partition in (0, 1):
        send(producer, topic, *map(str, range(10)), partition=partition)
    consumer = consumer_of(odradek_cluster, f"{topic}-group")
    consumer.list_topics(topic, PATIENCE_S)  # while it can ask any broker

    def lag(partition: int) -> int:
        (position,) = consumer.position([TopicPartition(topic, partition)])
        return 10 - max(position.offset, 0)

    with odradek_cluster[1].paused():
        consumer.assign([TopicPartition(topic, 0, 0), TopicPartition(topic, 1, 0)])
        for _ in range(10):
            assert next_message(consumer).partition() == 1
        assert (lag(0), lag(1)) == (10, 0)
    for _ in range(10):
        assert next_message(consumer).partition() == 0
    assert (lag(0), lag(1)) == (0, 0)
    consumer.close()


def test_an_exactly_once_loop_survives_its_coordinator(odradek_cluster):
    """The coordinator dies between the last write of a transaction and its commit."""
    cluster = odradek_cluster
    source, target = cluster.create_topic(), cluster.create_topic()
    send(producer_of(cluster), source, "1", "2", "3", "4", "5", "6")
    group = f"{source}-group"
    # Of another broker than the group's: librdkafka may wait for ever if it loses both (its issue 5456).
    names = (f"{source}-{number}" for number in range(100))
    name = next(
        one for one in names if cluster.transaction_coordinator(one) is not cluster.coordinator(group)
    )
    consumer = consumer_of(cluster, group)
    producer = producer_of(cluster, **{"transactional.id": name})
    producer.init_transactions(PATIENCE_S)
    consumer.subscribe([source])

    def double(messages: list[Message], before_commit) -> None:
        producer.begin_transaction()
        for message in messages:
            producer.produce(target, str(2 * int(message.value())), partition=0)
        position = TopicPartition(source, 0, messages[-1].offset() + 1)
        producer.send_offsets_to_transaction([position], consumer.consumer_group_metadata(), PATIENCE_S)
        before_commit()
        while True:
            try:
                return producer.commit_transaction(PATIENCE_S)
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise

    coordinator = cluster.transaction_coordinator(name)
    double([next_message(consumer) for _ in range(3)], before_commit=lambda: None)
    double([next_message(consumer) for _ in range(2)], before_commit=coordinator.crash)
    double([next_message(consumer)], before_commit=lambda: None)

    assert cluster.transaction_coordinator(name) is not coordinator
    assert read(cluster, target, 6) == ["2", "4", "6", "8", "10", "12"]
    (committed,) = consumer.committed([TopicPartition(source, 0)], PATIENCE_S)
    assert committed.offset == 6
    consumer.close()
