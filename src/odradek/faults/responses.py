"""Error codes in the right place of a response, for the part of a request that a fault concerns.

If a fault is for one topic, partition or group of several, the request is divided (`apis.items`): one part is refused,
the rest is handled as usual, and the two responses are merged.

Two APIs only read, and are handled as a whole; then the codes are put into their response. A Fetch may name
no partition because its session has them, and a client that asks for metadata needs the brokers in the response.
Fetch's codes are at its partitions, except those that are about its session.
"""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from odradek.apis.items import Division, changed, divide, merge, refuse
from odradek.apis.messages import response_type
from odradek.apis.row import Resource
from odradek.apis.table import APIS, BROKER, named
from odradek.errors import ErrorCode, KafkaError
from odradek.faults.plan import Concern
from odradek.fetching.sessions import FINAL_EPOCH, INITIAL_EPOCH, FetchSessions
from odradek.net.transport import Part
from odradek.serving.services import Services
from odradek.storage.segments.row import Slice
from odradek.wire.codec import Message, drain, encode, read_message
from odradek.wire.frame import SIZE, skip_response_header
from odradek.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from odradek.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic

FETCH, METADATA, FIND_COORDINATOR = (named(each).key for each in ("Fetch", "Metadata", "FindCoordinator"))
READS = (FETCH, METADATA)
GROUP_KEY, TOPIC_RESOURCE = 0, 2
KEYS_SINCE = 4
NO_GROUP = ""
NO_TOPIC_ID = UUID(int=0)
SESSION_ERRORS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)


class Responses:
    """Knows the topics by their ids, and the partitions of fetch sessions."""

    def __init__(self, services: Services) -> None:
        self._services = services

    @property
    def _sessions(self) -> FetchSessions:
        """The fetch sessions of clients on this broker."""
        sessions: FetchSessions = self._services.road(BROKER).handler(FETCH).sessions
        return sessions

    # --- which part of a request a fault concerns ---

    def divide(self, api_key: int, version: int, message: Message, concern: Concern) -> Division | None:
        """Divide the request; None if the fault does not concern it."""
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
            return Division(message, None) if concern.topic in self._services.cluster.image.topics else None
        partition = concern.partition
        return divide(
            message,
            version,
            lambda item: self._is_concerned(item, concern),
            None if partition is None else lambda index: index == partition,
        )

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
        return name or self._services.cluster.topic_name(getattr(item, "topic_id", NO_TOPIC_ID))

    # --- Fetch and Metadata ---

    def _divide_fetch(self, message: Any, concern: Concern) -> Division | None:
        return Division(message, None) if self._fetched(message, concern) else None

    def _fetched(self, message: FetchRequest, concern: Concern) -> list[FetchableTopicResponse]:
        """The partitions of a Fetch, and of its session, that a fault concerns."""
        found: dict[tuple[str, UUID, int], None] = {}
        session = self._sessions.get(message.session_id)
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
            return changed(message, "max_wait_ms", 0)  # type: ignore[no-any-return]
        return changed(message, "allow_auto_topic_creation", False)  # type: ignore[no-any-return]

    def spoil(self, message: Message, response: Message, concern: Concern, code: ErrorCode) -> Message:
        """Put the error into the response to a Fetch or Metadata, for the topics that a fault concerns."""
        if isinstance(response, FetchResponse):
            assert isinstance(message, FetchRequest)
            errors = self._fetched(message, concern)
            for topic in errors:
                topic.partitions[0].error_code = code
            return merge(response, FetchResponse(responses=errors))
        assert isinstance(response, MetadataResponse) and isinstance(message, MetadataRequest)
        spoilt = [
            MetadataResponseTopic(error_code=code, name=topic.name, topic_id=topic.topic_id)
            for topic in response.topics
            if concern.topic in (None, topic.name)
        ]
        return merge(response, MetadataResponse(topics=spoilt))


def refusal(version: int, message: Message, code: ErrorCode) -> Message:
    return drain(refuse(message, version, KafkaError(code, f"{code.name}, as the test asked for")))


def request_frame(message: Message, version: int) -> memoryview:
    """A message as a frame without a header."""
    return memoryview(encode(message, version))


def read_response(api_key: int, version: int, parts: Sequence[Part]) -> Message:
    frame = b"".join(
        part.file.read_at(part.position, part.length) if isinstance(part, Slice) else part for part in parts
    )
    position = skip_response_header(frame, api_key, version, SIZE.size)
    return read_message(response_type(api_key), version, frame, position)[0]


def _group_of(api_key: int, version: int, message: Any) -> str | None:
    """The one group that a request is about as a whole; None if its items are groups."""
    if api_key == FIND_COORDINATOR:
        if message.key_type != GROUP_KEY:
            return NO_GROUP
        return str(message.key) if version < KEYS_SINCE else None
    if any(
        items.resource is Resource.GROUP and getattr(message, items.request) for items in APIS[api_key].items
    ):
        return None
    return str(getattr(message, "group_id", NO_GROUP))


def _wants_all(message: MetadataRequest, version: int) -> bool:
    return message.topics is None or (version == 0 and not message.topics)
