"""Requests and responses by item: refuse, divide, merge and cut them, and find the error codes in them.

NOT_CONTROLLER, KAFKA_STORAGE_ERROR, REQUEST_TIMED_OUT and similar errors concern a request as a whole, but half of
Kafka's responses have no field for such an error: they have a code for each topic, partition, group or resource. Such a
response names every item of its request, with the same code. The row of an API says which list of its response goes
with which list of its request (`row.Items`), so one function builds the refusal of any API.

Some responses have both. There we do as Kafka does: Fetch before version 13, Metadata and AlterPartitionReassignments
repeat the code for each item, the others have it at the top only. DescribeLogDirs has no field for the code before
version 3: its refusal is empty.

If only some items are refused, the request is divided: one part is refused, the rest is handled, and the two responses
are merged. A request that names more than should be decided in one turn of the event loop is cut into parts, which are
handled in order; their responses are joined. The result for each item is the same: a request was never promised to be
atomic.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from odradek.apis.messages import response_type
from odradek.apis.row import NEVER, Items
from odradek.apis.table import APIS
from odradek.errors import ErrorCode, KafkaError
from odradek.wire.codec import M, Message, Steps, field_of

T = TypeVar("T")

MOST = 500  # items in a part
NAMELESS = (None, "", UUID(int=0))


# --- refuse ---


def refuse(request: Message, version: int, error: KafkaError) -> Steps[Message]:
    """The response to `request` that says `error` wherever this version has a place for it."""
    api = APIS[request.API_KEY]  # type: ignore[attr-defined]
    refused_type = response_type(api.key)
    response = refused_type()
    for name in api.copied:
        setattr(response, name, getattr(request, name))
    for name, value in api.values.items():
        if value is not None or field_of(refused_type, name).wire.is_nullable_in(version):
            setattr(response, name, value)
    _set_error(response, error)
    for items in api.items:
        if version <= items.refused_until:
            refused = getattr(response, items.response)
            refused += yield from _refuse_items(items, refused_type, request, version, error)
    return response


def _refuse_items(
    items: Items, parent: Any, request: Any, version: int, error: KafkaError
) -> Steps[list[Any]]:
    item_type = field_of(parent, items.response).struct_type
    refused = []
    for asked in getattr(request, items.request) or ():
        item = item_type(**items.values)
        for name, source in items.names.items():
            value = getattr(asked, source) if source else asked
            if value is not None or field_of(item_type, name).wire.is_nullable_in(version):
                setattr(item, name, value)
        _set_error(item, error)
        if items.inner is not None and version <= items.inner.refused_until:
            inner = yield from _refuse_items(items.inner, item_type, asked, version, error)
            setattr(item, items.inner.response, inner)
        refused.append(item)
        yield
    return refused


def refuse_undone(response: M, error: KafkaError) -> M:
    """The response to a change of metadata that was decided but could not be written, as on a full disk.

    Items that would have succeeded get the error instead, and nothing else except their names; items that were refused
    before keep their own error, which a retry would not change.
    """
    refusal = type(response)()
    all_items = APIS[response.API_KEY].items  # type: ignore[attr-defined]
    if not all_items:
        _set_error(refusal, error)
        return refusal
    _refuse_undone_items(all_items[0], response, refusal, error)
    return refusal


def _refuse_undone_items(items: Items, response: Any, refusal: Any, error: KafkaError) -> None:
    refused = getattr(refusal, items.response)
    for item in getattr(response, items.response):
        if items.inner is not None or not item.error_code:
            undone = type(item)(**{name: getattr(item, name) for name in items.names})
            if items.inner is not None:
                _refuse_undone_items(items.inner, item, undone, error)
            else:
                _set_error(undone, error)
            item = undone
        refused.append(item)


def _set_error(item: Any, error: KafkaError) -> None:
    """Fields that a version does not have are left out when the response is written."""
    if hasattr(item, "error_code"):
        item.error_code = int(error.code)
    if hasattr(item, "partition_error_code"):
        item.partition_error_code = int(error.code)
    if hasattr(item, "error_message"):
        item.error_message = str(error)


# --- find error codes ---


def code_of(item: Any) -> int:
    """The error code of a response, or of an item; AddPartitionsToTxn has its own name for it."""
    code: int = getattr(item, "error_code", 0) or getattr(item, "partition_error_code", 0)
    return code


def has_codes(items: Items, parent: Any) -> bool:
    """True if items of this message type have error codes, or those inside them."""
    item_type = field_of(parent, items.response).struct_type
    if items.inner is not None:
        return has_codes(items.inner, item_type)
    return hasattr(item_type, "error_code") or hasattr(item_type, "partition_error_code")


def carries(response: Any, code: ErrorCode) -> Steps[bool]:
    """Look for this code in a response, at its top and in its items."""
    if code_of(response) == code:
        return True
    for items in APIS[response.API_KEY].items:
        if (yield from _item_carries(items, response, code)):
            return True
    return False


def _item_carries(items: Items, parent: Any, code: ErrorCode) -> Steps[bool]:
    for item in getattr(parent, items.response) or ():
        if code_of(item) == code:
            return True
        if items.inner is not None and (yield from _item_carries(items.inner, item, code)):
            return True
        yield
    return False


# --- divide and merge ---


class Division(NamedTuple):
    """A request in two: the part that is concerned, and the rest, None if nothing is left."""

    concerned: Message
    rest: Message | None


def divide(
    request: Message,
    version: int,
    is_concerned: Callable[[Any], bool],
    is_inner_concerned: Callable[[Any], bool] | None = None,
) -> Division | None:
    """Divide a request by its items, and those further by the names of the items inside them (partitions), if
    `is_inner_concerned` is given. None if nothing is concerned."""
    concerned, rest = copy.copy(request), copy.copy(request)
    has_any = has_rest = False
    for items in APIS[request.API_KEY].items:  # type: ignore[attr-defined]
        if version <= items.refused_until:
            asked = getattr(request, items.request) or ()
            mine, others = _divide_items(items, asked, is_concerned, is_inner_concerned)
            setattr(concerned, items.request, mine)
            setattr(rest, items.request, others)
            has_any |= bool(mine)
            has_rest |= bool(others)
    return Division(concerned, rest if has_rest else None) if has_any else None


def _divide_items(
    items: Items,
    asked: Iterable[Any],
    is_concerned: Callable[[Any], bool],
    is_inner_concerned: Callable[[Any], bool] | None,
) -> tuple[list[Any], list[Any]]:
    mine: list[Any] = []
    others: list[Any] = []
    for item in asked:
        if not is_concerned(item):
            others.append(item)
        elif items.inner is None or is_inner_concerned is None:
            mine.append(item)
        else:
            inner, (source,) = items.inner, items.inner.names.values()
            for part, wanted in ((mine, True), (others, False)):
                kept = [
                    each
                    for each in getattr(item, inner.request)
                    if is_inner_concerned(getattr(each, source) if source else each) is wanted
                ]
                if kept:
                    part.append(changed(item, inner.request, kept))
    return mine, others


def set_apart(
    request: Message, lists: Sequence[Items], is_apart: Callable[[Items, Any], bool]
) -> Steps[Division | None]:
    """Divide a request by the items of some of its lists. None if nothing is set apart."""
    concerned, rest = copy.copy(request), copy.copy(request)
    has_any = has_rest = False
    for items in lists:
        mine: list[Any] = []
        others: list[Any] = []
        for item in getattr(request, items.request) or ():
            (mine if is_apart(items, item) else others).append(item)
            yield
        if mine:
            setattr(rest, items.request, others)
        setattr(concerned, items.request, mine)
        has_any |= bool(mine)
        has_rest |= bool(others)
    return Division(concerned, rest if has_rest else None) if has_any else None


def refuse_items(request: Message, version: int, lists: Sequence[Items], error: KafkaError) -> Steps[Message]:
    """A response that has the items of these lists, each refused, and nothing else."""
    refused_type = response_type(request.API_KEY)  # type: ignore[attr-defined]
    response = refused_type()
    for items in lists:
        refused = getattr(response, items.response)
        refused += yield from _refuse_items(items, refused_type, request, version, error)
    return response


def add_refused(response: M, refused: Message) -> M:
    """Add the refused items of a divided request to the response to its rest. A response that refuses the whole at its
    top lists them only if it lists all items then."""
    for name, items in {items.response: items for items in APIS[response.API_KEY].items}.items():  # type: ignore[attr-defined]
        found = getattr(refused, name)
        if found and not (code_of(response) and items.refused_until == NEVER):
            setattr(response, name, [*(getattr(response, name) or ()), *found])
    return response


def changed(item: Any, name: str, value: Any) -> Any:
    """A copy with another value in one field."""
    copied = copy.copy(item)
    setattr(copied, name, value)
    return copied


def merge(response: M, refusal: Message) -> M:
    """The fields of a refused item replace those in the response."""
    for items in APIS[response.API_KEY].items:  # type: ignore[attr-defined]
        _merge_items(items, getattr(response, items.response), getattr(refusal, items.response))
    return response


def _merge_items(items: Items, into: list[Any], refused: Sequence[Any]) -> None:
    for item in refused:
        at = next((n for n, other in enumerate(into) if _is_same(items, item, other)), None)
        if at is None:
            into.append(item)
        elif items.inner is None or not getattr(item, items.inner.response):
            into[at] = item
        else:
            name = items.inner.response
            _merge_items(items.inner, getattr(into[at], name), getattr(item, name))


def _is_same(items: Items, item: Any, other: Any) -> bool:
    names = [name for name in items.names if getattr(item, name) not in NAMELESS]
    return all(getattr(item, name) == getattr(other, name) for name in names)


# --- cut and join ---


def cut(items: Sequence[T], field: str = "", most: int = MOST) -> Steps[list[list[T]]]:
    """The items in lists that together have not more than `most` elements in this field (by default, items)."""
    parts: list[list[T]] = []
    room = 0
    for item in items:
        for piece in _pieces(item, field, most):
            weight = max(len(getattr(piece, field)), 1) if field else 1
            if weight > room:
                parts.append([])
                room = most
            parts[-1].append(piece)
            room -= weight
        yield
    return parts or [[]]


def _pieces(item: Any, field: str, most: int) -> Iterator[Any]:
    """The item, or several like it with some of its elements each."""
    elements = getattr(item, field) if field else ()
    if len(elements) <= most:
        yield item
        return
    for at in range(0, len(elements), most):
        yield replace(item, **{field: elements[at : at + most]})


def join(responses: Iterable[Any]) -> Any:
    """The responses to the parts of one request, in its order, as one. Of several errors one is kept."""
    responses = iter(responses)
    joined = next(responses)
    for response in responses:
        for items in {each.response: each for each in APIS[joined.API_KEY].items}.values():
            _extend(items, getattr(joined, items.response), getattr(response, items.response))
        if hasattr(joined, "error_code"):
            joined.error_code = joined.error_code or response.error_code
        if hasattr(joined, "throttle_time_ms"):
            joined.throttle_time_ms = max(joined.throttle_time_ms, response.throttle_time_ms)
    return joined


def _extend(items: Items, results: list[Any], others: list[Any]) -> None:
    """The first of the others may continue the last of the results."""
    if results and others and items.inner is not None:
        last, first = results[-1], others[0]
        if all(getattr(last, name) == getattr(first, name) for name in items.names):
            name = items.inner.response
            _extend(items.inner, getattr(last, name), getattr(first, name))
            others = others[1:]
    results.extend(others)
