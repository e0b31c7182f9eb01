"""Authorize a request: which of it its caller may have, as the row of its API says.

A need that names a field of the request, or the cluster, is for the whole request: without it, all of it is refused.
Any other need is for the items of the request: those that are denied are set apart and refused (`apis.items`), the rest
is handled, and the response has both. Resources that are named are denied without a look at whether they exist. Where a
response describes all that there is, what the caller may not see is taken out of it at the end.
"""

from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

from odradek.apis.items import add_refused, changed, refuse_items, set_apart
from odradek.apis.row import Api, Items, May, Need, Resource
from odradek.apis.table import APIS
from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.image import ResourceType
from odradek.model import NO_TOPIC_ID
from odradek.serving.authorizer import DENIED
from odradek.wire.codec import Message, Steps

THE_CLUSTER = ""
# Types of resources with settings, as ACLs see them: brokers, their loggers and client metrics are the cluster's.
CONFIGURED = {
    ResourceType.TOPIC: Resource.TOPIC,
    ResourceType.GROUP: Resource.GROUP,
    ResourceType.BROKER: Resource.CLUSTER,
    ResourceType.BROKER_LOGGER: Resource.CLUSTER,
    ResourceType.CLIENT_METRICS: Resource.CLUSTER,
}
KINDS = (Resource.TOPIC, Resource.GROUP, Resource.CLUSTER)  # that they can be

TopicName = Callable[[UUID], str | None]
Hide = Callable[[Any, Any, May], None]  # the request, its response, what the caller may see


class Permitted(NamedTuple):
    """The rest of a request after the denied items are taken out."""

    rest: Message | None  # to be handled; None if nothing is left
    refused: Message | None  # a response with the items that are denied
    is_bare: bool = False  # no item is left, but the response is about more than the items


def authorize(
    api: Api, needs: tuple[Need, ...], message: Message, version: int, may: May, topic_name: TopicName
) -> Steps[Permitted]:
    """KafkaError if the whole request is denied."""
    rest: Message | None = message
    refused: Message | None = None
    for need in needs:
        lists = [items for items in api.items if _is_for(need, items)]
        if not lists:
            _check_whole(need, message, may)
            continue
        for resource in (need.resource,) if need.resource is not None else KINDS:
            if rest is not None:
                denied = _Denied(need, resource, may, topic_name)
                rest, more = yield from _refuse_denied(api, rest, version, lists, denied)
                if more is not None:
                    refused = more if refused is None else add_refused(refused, more)
    if rest is None and api.access.says_more:
        return Permitted(_without_items(message), refused, is_bare=True)
    return Permitted(rest, refused)


def _refuse_denied(
    api: Api, message: Message, version: int, lists: list[Items], denied: "_Denied"
) -> Steps[tuple[Message | None, Message | None]]:
    """Return what is left of the request, and the refusal of the rest."""
    division = yield from set_apart(message, lists, denied.is_denied)
    if division is None:
        return message, None
    error = KafkaError(DENIED[denied.resource])
    refused = yield from refuse_items(division.concerned, version, lists, error)
    if division.rest is None or not api.access.all_or_none:
        return division.rest, refused
    skipped = KafkaError(ErrorCode.OPERATION_NOT_ATTEMPTED)
    others = yield from refuse_items(division.rest, version, lists, skipped)
    return None, add_refused(refused, others)


def _is_for(need: Need, items: Items) -> bool:
    if need.field:
        return need.field == items.request
    return bool(items.request) and need.resource is not Resource.CLUSTER and items.resource is need.resource


def _check_whole(need: Need, message: Message, may: May) -> None:
    assert need.resource is not None
    name = getattr(message, need.field) if need.field else THE_CLUSTER
    if name is not None and not may(need.operation, need.resource, name):
        raise KafkaError(DENIED[need.resource])


class _Denied(NamedTuple):
    """Finds the items that are denied."""

    need: Need
    resource: Resource
    may: May
    topic_name: TopicName

    def is_denied(self, items: Items, item: Any) -> bool:
        if self.need.resource is None and CONFIGURED.get(item.resource_type) is not self.resource:
            return False
        operation = self.need.operation
        return not all(self.may(operation, self.resource, name) for name in self._names(items, item))

    def _names(self, items: Items, item: Any) -> list[str]:
        """An item may have a name and an id: both have to be allowed. An id that is not known names nothing."""
        if self.need.resource is None:
            return [THE_CLUSTER if self.resource is Resource.CLUSTER else item.resource_name]
        values = [getattr(item, source) if source else item for source in items.names.values()]
        names = [value for value in values if isinstance(value, str) and value]
        ids = [value for value in values if isinstance(value, UUID) and value != NO_TOPIC_ID]
        found = [self.topic_name(topic_id) for topic_id in ids]
        return [*names, *(name for name in found if name is not None)] or ([] if ids else [""])


def _without_items(message: Message) -> Message:
    """(Version 0 of Metadata takes that for all topics, which `Amendment` leaves out again.)"""
    for items in APIS[message.API_KEY].items:  # type: ignore[attr-defined]
        message = changed(message, items.request, [])
    return message


class Amendment(NamedTuple):
    """The last change to the response of a request that was authorized in part, or that lists things."""

    message: Message  # the request
    permitted: Permitted
    hide: Hide | None
    may: May

    def amend(self, response: Any) -> Any:
        if self.hide is not None:
            self.hide(self.message, response, self.may)
        if self.permitted.is_bare:
            for items in APIS[response.API_KEY].items:
                setattr(response, items.response, [])
        refused = self.permitted.refused
        return response if refused is None else add_refused(response, refused)
