"""The response to a Fetch: what is new to the client, according to its session."""

from collections.abc import Sequence
from functools import partial

from odradek.errors import ErrorCode
from odradek.fetching.sessions import NO_SESSION, FetchSession, TopicKey, Wanted
from odradek.net.transport import Part
from odradek.replication.source import Fetched
from odradek.serving.request import Request
from odradek.serving.turns import in_pieces
from odradek.storage.segments.row import Slice
from odradek.wire.codec import Steps
from odradek.wire.fetch_response import FetchedTopic, encode_fetch_response, encode_in_steps

MANY_PARTITIONS = 1_000  # are handled in several turns of the event loop

Responses = Sequence[tuple[Wanted, Fetched]]
Topics = dict[TopicKey, FetchedTopic[Slice | bytearray]]
NO_TOPICS: list[FetchedTopic[bytes]] = []


def respond(request: Request, session: FetchSession, responses: Responses) -> None:
    if len(responses) > MANY_PARTITIONS:
        request.answer_in_steps(_encode(request, session, responses))
        return
    topics: Topics = {}
    _tell(session, topics, responses)
    found = [*topics.values()]
    parts = encode_fetch_response(
        request.version, request.correlation_id, 0, session.id, found, request.throttle_ms
    )
    request.answer_parts(parts)


def respond_throttled(request: Request, session: FetchSession) -> None:
    """Without anything: the client's quota is exceeded. A session that began with this request is not told of, so the
    client begins another one."""
    session_id = session.id if session.is_incremental else NO_SESSION
    parts = encode_fetch_response(
        request.version, request.correlation_id, ErrorCode.NONE, session_id, NO_TOPICS, request.throttle_ms
    )
    request.answer_parts(parts)


def refuse_whole(request: Request, error: ErrorCode) -> None:
    """Something is wrong with the session that the request names."""
    parts = encode_fetch_response(
        request.version, request.correlation_id, error, NO_SESSION, NO_TOPICS, request.throttle_ms
    )
    request.answer_parts(parts)


def _encode(request: Request, session: FetchSession, responses: Responses) -> Steps[Sequence[Part]]:
    topics: Topics = {}
    yield from in_pieces(responses, partial(_tell, session, topics))
    found, throttle_ms = list(topics.values()), request.throttle_ms
    version, correlation_id = request.version, request.correlation_id
    return (
        yield from encode_in_steps(version, correlation_id, ErrorCode.NONE, session.id, found, throttle_ms)
    )


def _tell(session: FetchSession, topics: Topics, responses: Responses) -> None:
    """Put what is new into the response, and remember that the client knows it."""
    for wanted, response in responses:
        if session.is_incremental and not response.length and not wanted.has_news(response):
            continue
        if session.id:
            wanted.told(response)
            if response.length:
                session.move_to_end(wanted)
        topic = topics.get(wanted.topic_key)
        if topic is None:
            topic = topics[wanted.topic_key] = FetchedTopic(wanted.topic, wanted.topic_id, [])
        topic.partitions.append(response)
