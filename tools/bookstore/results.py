"""Reads back what was written, as any client would: topics from the broker, a Delta table with delta-rs."""

import json
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from .ledger import Rejected, Return, Suspicion, Takings

REVENUE, SUSPICIOUS, POPULAR, DEAD_LETTERS = (
    "bookstore-revenue",
    "bookstore-suspicious-logins",
    "bookstore-popular-books",
    "bookstore-dead-letters",
)
RETURNED = "returned-orders"
READ_TIMEOUT_S = 30.0


class NotRead(Exception):
    """A topic could not be read to its end."""


@dataclass(frozen=True)
class Results:
    """The results of the pipeline, in the ledger's terms."""

    takings: dict[str, Takings]
    suspicions: set[Suspicion]
    addresses: dict[tuple[str, str], str]  # of suspicions, by customer and minute
    returns: list[Return]
    looks: dict[str, int]
    rejected: list[Rejected]


def read_results(bootstrap: str, directory: Path) -> Results:
    revenue = _newest_by_key(read_topic(bootstrap, REVENUE))
    suspicious = _newest_by_key(read_topic(bootstrap, SUSPICIOUS))
    popular = _newest_by_key(read_topic(bootstrap, POPULAR))
    return Results(
        takings={_minute(row["minute"]): Takings(row["orders"], _cents(row["revenue"])) for row in revenue},
        suspicions={
            Suspicion(row["customer"], _minute(row["minute"]), row["failures"], row["got_in"])
            for row in suspicious
        },
        addresses={(row["customer"], _minute(row["minute"])): row["address"] for row in suspicious},
        returns=read_returns(directory / RETURNED),
        looks={row["book"]: row["looks"] for row in popular},
        rejected=[_rejected(message) for message in read_topic(bootstrap, DEAD_LETTERS)],
    )


def read_topic(bootstrap: str, topic: str) -> list[Message]:
    """All records of a topic, those of a partition in their order."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "bookstore-demo", "enable.auto.commit": False}
    consumer = Consumer({**settings, "enable.partition.eof": True})
    try:
        partitions = consumer.list_topics(topic, timeout=READ_TIMEOUT_S).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        found, ended = list[Message](), set[int]()
        while len(ended) < len(partitions):
            message = consumer.poll(READ_TIMEOUT_S)
            if message is None:
                raise NotRead(f"no response about {topic} within {READ_TIMEOUT_S:.0f} seconds")
            error = message.error()
            if error is None:
                found.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
            else:
                raise NotRead(f"{topic}: {error.str()}")
        return found
    except KafkaException as error:
        raise NotRead(f"{topic}: {error}") from None
    finally:
        consumer.close()


def without_delta(pipeline: str) -> str:
    """The file of a pipeline, with Parquet files in place of Delta tables: they do as well where nobody else reads."""
    return pipeline.replace('format = "delta"', 'format = "parquet"')


def read_returns(directory: Path) -> list[Return]:
    """Read from a Delta table, or from Parquet files where delta-rs is not installed."""
    from pyarrow import dataset

    if (directory / "_delta_log").exists():
        from deltalake import DeltaTable

        rows = DeltaTable(directory).to_pyarrow_table().to_pylist()
    else:
        rows = dataset.dataset(directory, format="parquet").to_table().to_pylist()
    return [
        Return(
            order_id=row["order_id"],
            book=row["book"],
            cents=_cents(row["amount"]),
            reason=row["reason"],
            minutes_kept=int((row["returned_at"] - row["bought_at"]).total_seconds() // 60),
        )
        for row in rows
    ]


def _newest_by_key(messages: list[Message]) -> list[dict[str, Any]]:
    newest = {message.key(): message.value() for message in messages}
    return [json.loads(value, parse_float=Decimal) for value in newest.values()]


def _minute(text: str) -> str:
    return text[: len("2026-01-05T18:07")]


def _cents(amount: Decimal | int) -> int:
    return int(Decimal(amount) * 100)


def headers_of(message: Message) -> dict[str, str]:
    return {name: value.decode() for name, value in message.headers() or [] if value is not None}


def _rejected(message: Message) -> Rejected:
    headers = headers_of(message)
    key = (message.key() or b"").decode()
    return Rejected(headers["odradek.topic"], key, headers["odradek.stage"])
