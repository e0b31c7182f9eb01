"""A worker of the bank: takes transfers from a topic and writes both legs of each, in a transaction with its offsets.

    python -m tests.processes.bank_worker BOOTSTRAP TRANSACTIONAL_ID SEED

It runs until it is killed. Now and then it aborts what it has done and does it again, by chance; a producer that
was fenced, or an error that nothing helps against, ends it with status 1, and whoever looks after it starts it again.

librdkafka may wait for ever, whatever its time limit says, for a coordinator whose broker has left the metadata (its
issues 5456 and 5511). So a transaction that takes too long ends the worker, too, by the alarm's default action.
"""

import random
import signal
import sys

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from tests.processes.bank import ACCOUNT_PARTITIONS, ACCOUNTS, GROUP, TRANSFERS, Transfer

MOST_AT_ONCE = 5
ABORTED = 0.2  # of the transactions, on purpose
TIMEOUT_S = 60
STUCK_AFTER_S = 30  # far longer than the transaction may be open


def main(bootstrap: str, transactional_id: str, seed: str) -> int:
    rng = random.Random(seed)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "session.timeout.ms": 6000,
        }
    )
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 10_000,
            "linger.ms": 0,
        }
    )
    producer.init_transactions(TIMEOUT_S)
    consumer.subscribe([TRANSFERS])
    while True:
        messages = [one for one in consumer.consume(MOST_AT_ONCE, 0.2) if not one.error()]
        if messages:
            signal.alarm(STUCK_AFTER_S)
            carry_out(consumer, producer, messages, rng)
            signal.alarm(0)


def carry_out(consumer: Consumer, producer: Producer, messages: list[Message], rng: random.Random) -> None:
    producer.begin_transaction()
    try:
        for message in messages:
            for account, amount in Transfer.decode(message.value()).legs:
                producer.produce(
                    ACCOUNTS,
                    key=str(account).encode(),
                    value=b"%s %d" % (message.key(), amount),
                    partition=account % ACCOUNT_PARTITIONS,
                )
        producer.send_offsets_to_transaction(
            offsets_after(messages), consumer.consumer_group_metadata(), TIMEOUT_S
        )
        if rng.random() < ABORTED:
            producer.flush(TIMEOUT_S)  # what is aborted has been written
            undo(consumer, producer)
        else:
            producer.commit_transaction(TIMEOUT_S)
    except KafkaException as error:
        if error.args[0].txn_requires_abort():
            undo(consumer, producer)
        else:
            raise


def undo(consumer: Consumer, producer: Producer) -> None:
    producer.abort_transaction(TIMEOUT_S)
    for partition in consumer.committed(consumer.assignment(), TIMEOUT_S):
        partition.offset = max(partition.offset, 0)
        consumer.seek(partition)


def offsets_after(messages: list[Message]) -> list[TopicPartition]:
    ends = {message.partition(): message.offset() + 1 for message in messages}
    return [TopicPartition(TRANSFERS, partition, offset) for partition, offset in ends.items()]


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
