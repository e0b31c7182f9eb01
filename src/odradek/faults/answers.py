"""Error codes in the right place of a response, for the part of a request that a fault concerns.

`requests.refusal` builds the response that refuses a whole request. If a fault is for one topic, partition or group
of several, the request is divided: one part is refused, the rest is handled as usual, and the two responses are merged.

Two APIs only read, and are handled as a whole; then the codes are put into their response. A Fetch may name
no partition because its session has them, and a client that asks for metadata needs the brokers in the response.
Fetch's codes are at its partitions, except those that are about its session.
"""

import copy
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from odradek.errors import ErrorCode, KafkaError
from odradek.faults.plan import Concern
from odradek.net.transport import Part
from odradek.requests import registry
from odradek.requests.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH
from odradek.requests.refusal import ITEMS, Items, refuse
from odradek.requests.services import Services
from odradek.storage.segments.row import Slice
from odradek.wire.codec import Message, drain, encode, read_message
from odradek.wire.frame import SIZE, skip_response_header
from odradek.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from odradek.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic

FETCH, METADATA, OFFSET_FETCH, FIND_COORDINATOR = 1, 3, 9, 10
READS = (FETCH, METADATA)
LISTS_OF_GROUPS = (15, 42, 69)  # DescribeGroups, DeleteGroups, ConsumerGroupDescribe
GROUP_KEY, TOPIC_RESOURCE = 0, 2
NO_GROUP = ""
NO_TOPIC_ID = UUID(int=0)
NAMELESS = (None, "", NO_TOPIC_ID)
SESSION_ERRORS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
PARTITION_NAMES = ("partition_index", "partition", "index")
FETCHED = Items(
    "responses",
    "topics",
    {"topic": "topic", "topic_id": "topic_id"},
    Items("partitions", "partitions", {"partition_index": "partition"}),
)
TOPICS = Items("topics", "topics", {"name": "name", "topic_id": "topic_id"})


class Division(NamedTuple):
    """A request that a fault concerns: the part that it does, and the rest, None if nothing is left."""

    concerned: Message
    rest: Message | None


class Answers:
    """Knows the topics by their ids, and the partitions of fetch sessions."""

    def __init__(self, services: Services) -> None:
        self._services = services

    # --- which part of a request a fault concerns ---

    def divide(self, api_key: int, version: int, message: Message, concern: Concern) -> Division | None:
        """None if the fault does not concern the request."""
        if concern.group is not None and (group := _group_of(api_key, version, message)) is not None:
            if group != concern.group:
                return None
            if concern.topic is None:
                return Division(message, None)
        elif concern.group is None and concern.topic is None:
            return Division(message, None)
        if api_key == FETCH:
            return self._divide_fetch(message, concern)
        if isinstance(message, MetadataRequest) and _wants_all(message, version):
            return Division(message, None) if concern.topic in self._services.image.topics else None
        return self._divide(ITEMS[api_key], version, message, concern)

    def _divide(
        self, all_items: Iterable[Items], version: int, message: Message, concern: Concern
    ) -> Division | None:
        concerned, rest = copy.copy(message), copy.copy(message)
        has_any = has_rest = False
        for items in all_items:
            if version <= items.until:
                mine, others = self._divide_items(items, getattr(message, items.request) or (), concern)
                setattr(concerned, items.request, mine)
                setattr(rest, items.request, others)
                has_any |= bool(mine)
                has_rest |= bool(others)
        return Division(concerned, rest if has_rest else None) if has_any else None

    def _divide_items(
        self, items: Items, asked: Iterable[Any], concern: Concern
    ) -> tuple[list[Any], list[Any]]:
        mine: list[Any] = []
        others: list[Any] = []
        for item in asked:
            if not self._is_concerned(item, concern):
                others.append(item)
            elif items.inner is None or concern.partition is None:
                mine.append(item)
            else:
                inner = getattr(item, items.inner.request)
                for part, wanted in ((mine, True), (others, False)):
                    if kept := [
                        each for each in inner if (_partition_of(each) == concern.partition) is wanted
                    ]:
                        part.append(_with(item, items.inner.request, kept))
        return mine, others

    def _is_concerned(self, item: Any, concern: Concern) -> bool:
        if concern.topic is not None:
            return self._topic_of(item) == concern.topic
        return concern.group == (item if isinstance(item, str) else item.group_id)

    def _topic_of(self, item: Any) -> str | None:
        if isinstance(item, str):
            return item
        if hasattr(item, "resource_name"):
            return str(item.resource_name) if item.resource_type == TOPIC_RESOURCE else None
        name: str | None = getattr(item, "name", None) or getattr(item, "topic", None)
        return name or self._services.topic_name(getattr(item, "topic_id", NO_TOPIC_ID))

    # --- errors in responses ---

    def refusal(self, api_key: int, version: int, message: Message, code: ErrorCode) -> Message:
        return drain(refuse(registry.response_type(api_key), message, version, asked_for(code)))

    def merged(self, api_key: int, version: int, response: Message, refusal: Message) -> Message:
        """The fields of a refused item replace those in the response."""
        for items in ITEMS[api_key]:
            if version <= items.until:
                _merge(items, getattr(response, items.response), getattr(refusal, items.response))
        return response

    # --- Fetch and Metadata ---

    def _divide_fetch(self, message: Any, concern: Concern) -> Division | None:
        return Division(message, None) if self._fetched(message, concern) else None

    def _fetched(self, message: FetchRequest, concern: Concern) -> list[FetchableTopicResponse]:
        """The partitions of a Fetch, and of its session, that a fault concerns."""
        found: dict[tuple[str, UUID, int], None] = {}
        session = self._services.fetch_sessions.get(message.session_id)
        is_full = message.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH)
        for wanted in session.partitions.values() if session and not is_full else ():
            found[wanted.topic, wanted.topic_id, wanted.asked.partition] = None
        for topic in message.topics:
            for asked in topic.partitions:
                found[topic.topic, topic.topic_id, asked.partition] = None
        concerned: list[FetchableTopicResponse] = []
        for name, topic_id, partition in found:
            response = FetchableTopicResponse(topic=name, topic_id=topic_id)
            if concern.topic is None or (
                self._topic_of(response) == concern.topic and concern.partition in (None, partition)
            ):
                response.partitions = [PartitionData(partition, high_watermark=-1)]
                concerned.append(response)
        return concerned

    def only_to_be_answered(self, message: Message) -> Message:
        """A request that reads, changed so that it does not wait and creates nothing."""
        if isinstance(message, FetchRequest):
            return _with(message, "max_wait_ms", 0)  # type: ignore[no-any-return]
        return _with(message, "allow_auto_topic_creation", False)  # type: ignore[no-any-return]

    def spoil(self, message: Message, response: Message, concern: Concern, code: ErrorCode) -> Message:
        """Put the error into the response to a Fetch or Metadata, for the topics that a fault concerns."""
        if isinstance(response, FetchResponse):
            assert isinstance(message, FetchRequest)
            errors = self._fetched(message, concern)
            for topic in errors:
                topic.partitions[0].error_code = code
            for topic in errors:
                _merge(FETCHED, response.responses, [topic])
            return response
        assert isinstance(response, MetadataResponse) and isinstance(message, MetadataRequest)
        spoilt = [
            MetadataResponseTopic(error_code=code, name=topic.name, topic_id=topic.topic_id)
            for topic in response.topics
            if concern.topic in (None, topic.name)
        ]
        _merge(TOPICS, response.topics, spoilt)
        return response


def asked_for(code: ErrorCode) -> KafkaError:
    return KafkaError(code, f"{code.name}, as the test asked for")


def request_frame(message: Message, version: int) -> memoryview:
    """A message as a frame without a header."""
    return memoryview(encode(message, version))


def read_response(api_key: int, version: int, parts: Sequence[Part]) -> Message:
    frame = b"".join(
        part.file.read_at(part.position, part.length) if isinstance(part, Slice) else part for part in parts
    )
    position = skip_response_header(frame, api_key, version, SIZE.size)
    return read_message(registry.response_type(api_key), version, frame, position)[0]


def _group_of(api_key: int, version: int, message: Any) -> str | None:
    """The one group that a request is about as a whole."""
    if api_key == FIND_COORDINATOR:
        if message.key_type != GROUP_KEY:
            return NO_GROUP
        return str(message.key) if version < 4 else None
    if api_key in LISTS_OF_GROUPS or (api_key == OFFSET_FETCH and version >= 8):
        return None
    return str(message.group_id)


def _wants_all(message: MetadataRequest, version: int) -> bool:
    return message.topics is None or (version == 0 and not message.topics)


def _partition_of(item: Any) -> int:
    if isinstance(item, int):
        return item
    return next(int(getattr(item, name)) for name in PARTITION_NAMES if hasattr(item, name))


def _with(item: Any, name: str, value: Any) -> Any:
    changed = copy.copy(item)
    setattr(changed, name, value)
    return changed


def _merge(items: Items, into: list[Any], refused: Sequence[Any]) -> None:
    for item in refused:
        at = next((n for n, other in enumerate(into) if _is_same(items, item, other)), None)
        if at is None:
            into.append(item)
        elif items.inner is None:
            into[at] = item
        else:
            name = items.inner.response
            _merge(items.inner, getattr(into[at], name), getattr(item, name))


def _is_same(items: Items, item: Any, other: Any) -> bool:
    names = [name for name in items.names if getattr(item, name) not in NAMELESS]
    return all(getattr(item, name) == getattr(other, name) for name in names)
