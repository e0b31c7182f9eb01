"""The basic types that everything else uses: topic names, partitions, ids, callers."""

import base64
import re
import uuid
from typing import NamedTuple

from odradek.errors import ErrorCode, KafkaError

MAX_TOPIC_NAME_LENGTH = 249
LEGAL_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+")

METADATA_TOPIC = "__cluster_metadata"
OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})

# The level of the feature transaction.version since which every transaction has an epoch of its own (KIP-890): its end
# raises the epoch, its marker has a higher one than its data, and the first Produce adds a partition to it.
EPOCH_FOR_EACH_TRANSACTION = 2

NO_TOPIC_ID = uuid.UUID(int=0)
METADATA_TOPIC_ID = uuid.UUID(int=1)


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Principal(NamedTuple):
    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS = Principal("User", "ANONYMOUS")
NODE = "Node"  # the type of a node's own principal; nobody can log in as one, because logins make users


class Caller(NamedTuple):
    """The sender of a request, and the way on which it came."""

    principal: Principal = ANONYMOUS
    address: str = (
        ""  # host and port; without a port where a broker forwarded the request; empty for a node itself
    )
    listener: str = ""  # by name
    client_id: str | None = None

    @property
    def host(self) -> str:
        return self.address.rpartition(":")[0] or self.address

    @property
    def is_node(self) -> bool:
        """True if a node of the cluster asks on its own behalf."""
        return self.principal.type == NODE


def node_caller(node_id: int, listener: str = "") -> Caller:
    """The caller of a node's own requests."""
    return Caller(Principal(NODE, str(node_id)), "", listener, f"broker {node_id}")


def check_topic_name(name: str) -> None:
    """Refuse a name that Kafka refuses; other names are also safe as part of a path."""
    if not name:
        reason = "the empty string is not allowed"
    elif name in (".", ".."):
        reason = "'.' or '..' is not allowed"
    elif len(name) > MAX_TOPIC_NAME_LENGTH:
        reason = f"the length of '{name[:20]}…' is {len(name)}, more than {MAX_TOPIC_NAME_LENGTH}"
    elif not LEGAL_TOPIC_NAME.fullmatch(name):
        reason = f"{name!r} has a character other than ASCII letters, digits, '.', '_' and '-'"
    else:
        return
    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")


def id_to_text(value: uuid.UUID) -> str:
    """A UUID as Kafka writes it: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def id_from_text(text: str) -> uuid.UUID:
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
