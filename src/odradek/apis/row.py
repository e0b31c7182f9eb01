"""The columns of the table of APIs: all that is known about an API besides what its handler does."""

from collections.abc import Callable, Mapping
from enum import Enum, StrEnum
from typing import Any, NamedTuple

from odradek.acls.codes import Operation as Operation
from odradek.acls.codes import Resource as Resource
from odradek.wire.codec import FOREVER

NEVER = -1


class ListenerKind(StrEnum):
    """Clients, and brokers that talk to brokers, use the listeners of a broker; the replicas of the quorum, and brokers
    that talk to the active controller, those of a controller. The split is Kafka's own."""

    BROKER = "broker"
    CONTROLLER = "controller"


class Handling(Enum):
    """The way in which the handler of an API works: `handle(services, request, message)`.

    It returns the response, or None if somebody else responds (`request.answer`) or if it waits for something before
    it can (`request.then`).
    """

    AT_ONCE = "at once"  # a function; its effect is done when it returns
    WAITS = "waits"  # a coroutine: later requests on the connection wait for its effect
    IN_STEPS = "in steps"  # a generator, which yields every few items: large requests take several turns


class Need(NamedTuple):
    """Access that a caller needs."""

    operation: Operation
    resource: Resource | None  # None: what the `resource_type` of the item says
    # The field of the request that names the resource, or lists the names. If it is empty, the items of that kind name
    # theirs; the cluster has no name.
    field: str = ""


ANY_NAME = None  # may it be done to any resource of the kind?
# Whether a caller may do this to the resource of that name. The cluster has no name: it is empty.
May = Callable[[Operation, Resource, str | None], bool]


class Access(NamedTuple):
    """The rights that a caller needs for a request. Where that does not follow from its items alone, the row names
    functions of the API's module.
    """

    needs: tuple[Need, ...] = ()
    function: str = ""  # (message, version, may) -> the needs: of one kind of access, or else of another
    hides: str = ""  # (message, response, may) -> None: takes out of a response what the caller may not see
    all_or_none: bool = False  # if an item is denied, the others are not attempted
    says_more: bool = (
        False  # the response is about more than the items: it is made even if all of them are denied
    )
    # Handlers that ask for each item themselves, because they have their own codecs, by kind of listener.
    asked_by_handler: tuple[ListenerKind, ...] = ()


class Items(NamedTuple):
    """A list of a response that has one item for each item of a list of the request."""

    response: str
    request: str  # empty: the response lists what the request did not name
    # The fields that name an item: those of the response, and in the request (empty: the request lists plain values).
    names: Mapping[str, str]
    inner: "Items | None" = None  # the codes are one level further down
    resource: Resource | None = None  # that an item names
    values: Mapping[str, Any] = {}  # other fields of a refused item that are not the default
    refused_until: int = (
        FOREVER  # the last version in which the refusal of the whole request repeats its code here
    )


class Api(NamedTuple):
    """One API."""

    key: int
    name: str
    modules: Mapping[ListenerKind, str]  # of `odradek.api`, by the kinds of listener that serve it
    min_version: int
    max_version: int
    advertised_min_version: int
    handling: Handling
    access: Access
    items: tuple[Items, ...]
    copied: tuple[str, ...]  # fields of the request that its refusal repeats
    values: Mapping[str, Any]  # other fields of a refusal that are not the default
    is_forwarded: bool  # a broker sends it to the active controller in an Envelope
    before_authentication: bool
    waits_by_design: bool  # for data, or for other members: a long wait is not slow
