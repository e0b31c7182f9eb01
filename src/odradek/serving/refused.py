"""Log lines about refused requests: which client asked for what, and why it was refused.

Most clients show their users only the name of an error code, if that. The log has the reason. A response is searched
for error codes if its API has any (`apis.table` knows where); Produce and Fetch, whose responses are
written by hand, report each error where it occurs, so a response without one costs nothing.

Codes that are a part of a protocol's normal course, such as REBALANCE_IN_PROGRESS, are written at debug level.
"""

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from odradek.apis.items import code_of
from odradek.apis.row import Items
from odradek.apis.table import APIS, api_name, name_of, named
from odradek.errors import ErrorCode, KafkaError
from odradek.host.log_lines import counted
from odradek.host.metrics import count_error
from odradek.model import TopicPartition
from odradek.serving import audit
from odradek.serving.naming import request_fields, sender_of
from odradek.wording import one_line, shown

if TYPE_CHECKING:
    from odradek.serving.request import Request

log = logging.getLogger(__name__)

MAX_REASON = 300  # characters
MAX_LOOKED_AT = 200  # items of one response, and of each list in them
MAX_NAMED = 5
PRODUCE = named("Produce").key

# Errors in normal operation, which clients handle themselves.
ROUTINE = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.MEMBER_ID_REQUIRED,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)
# Admin clients ask by the newer protocol first, and for a group that it does not know by the older one.
ROUTINE_OF_API = frozenset({(named("ConsumerGroupDescribe").key, ErrorCode.GROUP_ID_NOT_FOUND)})
# Explanations for responses that have no room for a sentence.
EXPLANATIONS = {
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "no ACL allows it",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "its internal topic is not available yet",
    ErrorCode.FENCED_INSTANCE_ID: "another member has joined with its group.instance.id",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "no ACL allows it",
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no such group",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "the group has as many members as group.max.size allows",
    ErrorCode.ILLEGAL_GENERATION: "its generation is not the group's current one",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "it shares no assignor (partition.assignment.strategy) with the group",
    ErrorCode.INVALID_GROUP_ID: "the group id is empty",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "the transactional id has another producer, or is not known: it expired",
    ErrorCode.INVALID_REQUIRED_ACKS: "acks must be 0, 1 or all",
    ErrorCode.INVALID_SESSION_TIMEOUT: "its session.timeout.ms is not between group.min.session.timeout.ms "
    "and group.max.session.timeout.ms",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "its transaction.timeout.ms is more than transaction.max.timeout.ms",
    ErrorCode.INVALID_TXN_STATE: "its transaction is not open, or has ended the other way",
    ErrorCode.NON_EMPTY_GROUP: "the group has members: stop its consumers first",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "the metadata of an offset is longer than offset.metadata.max.bytes",
    ErrorCode.OFFSET_OUT_OF_RANGE: "the log does not have this offset",
    ErrorCode.OPERATION_NOT_ATTEMPTED: "another partition of the same request was refused",
    ErrorCode.PRODUCER_FENCED: "another producer has taken its transactional id, or its transaction timed out",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "no ACL allows it",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "there is no such transactional id",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group does not know this member: it left, or its session timed out",
    ErrorCode.UNKNOWN_TOPIC_ID: "no topic has this id: it was deleted, and perhaps created again",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such topic or partition",
}


def log_refusals(request: "Request", response: Any) -> None:
    """Look through a response for error codes."""
    code = code_of(response)
    if code:
        log_refusal(request, subject_of(request), code, getattr(response, "error_message", None))
    for items in APIS[request.api_key].items:
        _log_refused_items(request, items, getattr(response, items.response))


def subject_of(request: "Request") -> str:
    return "" if request.subject is None else str(request.subject)


class Refused:
    """Items of a response that carry the same error code."""

    __slots__ = ("count", "names", "reason")

    def __init__(self, reason: str | None) -> None:
        self.reason = reason  # of the first
        self.names: list[str] = []  # of the first few
        self.count = 0

    def __str__(self) -> str:
        rest = self.count - len(self.names)
        return ", ".join(self.names) + (f" and {rest} more" if rest else "")


def _log_refused_items(request: "Request", items: Items, responses: list[Any]) -> None:
    """One line for each code. Of a large response only a part is looked at: it is about to be written in turns."""
    by_code: dict[int, Refused] = {}
    for name, item in _looked_at(items, responses):
        code = code_of(item)
        if code:
            refused = by_code.get(code)
            if refused is None:
                refused = by_code[code] = Refused(getattr(item, "error_message", None))
            refused.count += 1
            if refused.count <= MAX_NAMED:
                refused.names.append(name())
    for code, refused in by_code.items():
        log_refusal(request, str(refused), code, refused.reason)


def _looked_at(items: Items, responses: list[Any]) -> Iterator[tuple[Callable[[], str], Any]]:
    """Items that may have a code, each with a function that names it."""
    inner = items.inner
    for response in responses[:MAX_LOOKED_AT]:
        if inner is None or inner.inner is not None:
            yield partial(_name_of, response, items), response
        if inner is not None and inner.inner is not None:
            yield from _looked_at(inner, getattr(response, inner.response))
        elif inner is not None:
            for item in getattr(response, inner.response)[:MAX_LOOKED_AT]:
                yield partial(_name_of_inner, response, items, item, inner), item


def _name_of_inner(response: Any, items: Items, item: Any, inner: Items) -> str:
    return f"{_name_of(response, items)}, partition {_name_of(item, inner)}"


def _name_of(response: Any, items: Items) -> str:
    """Name it by a name if it has one, else by an id or a number, else by its list."""
    values = [getattr(response, name) for name in items.names] or [items.request]
    names = [value for value in values if isinstance(value, str) and value]
    if not names and isinstance(values[-1], list):  # the parts of an entity with quotas
        return ", ".join(
            f"{shown(part.entity_type)} {shown(part.entity_name)}" for part in values[-1][:MAX_NAMED]
        )
    return shown(names[0]) if names else str(values[-1])


def log_refused_batch(partition: TopicPartition, error: KafkaError) -> None:
    """At the append: the client is not known there, but the producer is, and `error` names it."""
    count_error(PRODUCE, error.code)
    what = f"a batch for {partition} refused with {error.code.name}"
    reason = one_line(error.message, MAX_REASON) or EXPLANATIONS.get(error.code, "")
    counted(
        log,
        logging.INFO,
        "its producers",
        what,
        "refused a batch for %s: %s: %s",
        partition,
        error.code.name,
        reason,
        api="Produce",
        error=error.code.name,
        topic=partition.topic,
        partition=partition.partition,
    )


def log_unreadable(topic: str, index: int, error: OSError) -> None:
    """Clients get KAFKA_STORAGE_ERROR, and ask again."""
    name = f"{one_line(topic, MAX_REASON)}-{index}"
    counted(
        log,
        logging.ERROR,
        "this disk",
        f"{name} cannot be read",
        "cannot read the log of %s, so clients get KAFKA_STORAGE_ERROR: %s. Look at the disk",
        name,
        error,
        topic=topic,
        partition=index,
    )


def log_refusal(
    request: "Request", subject: str, code: int, reason: str | None, *, is_routine: bool = False
) -> None:
    """Log a refusal. `subject` is the item that was requested, as shown; `is_routine`: in normal operation, this client
    handles the error itself, whatever its code."""
    error = ErrorCode(code)
    count_error(request.api_key, code)
    is_routine = is_routine or error in ROUTINE or (request.api_key, error) in ROUTINE_OF_API
    level = logging.DEBUG if is_routine else logging.INFO
    logger, source = log, request.caller.host
    if error in audit.DENIALS:
        logger, source = audit.log, audit.source(request.caller)
    if not logger.isEnabledFor(level):
        return
    reason = reason or EXPLANATIONS.get(error, "")
    why = f"{error.name}: {one_line(reason, MAX_REASON)}" if reason else error.name
    of = f" of {subject}" if subject else ""
    counted(
        logger,
        level,
        source,
        f"{api_name(request.api_key)}{of} refused with {error.name}",
        "refused %s%s from %s: %s",
        name_of(request.api_key, request.version),
        of,
        sender_of(request),
        why,
        error=error.name,
        subject=subject or None,
        **request_fields(request),
    )
