"""Requests to single brokers, by our own client: `ask` one broker, `ask_any` of them, or `ask_coordinator` of a group.

It takes settings by Java's names. Settings written for librdkafka are translated as far as they concern the connection
to a broker (`client_names`). A connection is used again by the next request, if that follows at once.
"""

import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from odradek.admin.access import (
    CONNECT_TIMEOUT_S,
    REQUEST_TIMEOUT_S,
    Access,
    Address,
    Kept,
    connect_reason,
    nobody_reached,
)
from odradek.admin.client_names import to_java
from odradek.admin.failures import AdminError, NoContact, Refused, check
from odradek.client.connection import CannotConnect, Connection, ConnectionLost
from odradek.client.properties import MAPPED, InvalidProperty, parse_properties
from odradek.client.settings import ClientSettings
from odradek.errors import ErrorCode, KafkaError, ProtocolError
from odradek.wire.codec import Message

Response = TypeVar("Response", bound=Message)
Result = TypeVar("Result")

RETRY_S = 0.1
GROUP_COORDINATOR, TRANSACTION_COORDINATOR = 0, 1
PASSING = (  # the cluster is busy with itself, and a later attempt can succeed
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_CONTROLLER,
)
SASL_REASONS = {
    ErrorCode.ILLEGAL_SASL_STATE: "SASL Handshake not supported by broker: this listener wants no login",
    ErrorCode.SASL_AUTHENTICATION_FAILED: "SASL authentication error: {said}",
}


class Node(NamedTuple):
    """A broker, as another one names it."""

    id: int
    address: Address


def ask(
    cluster: Access, address: Address, request: Message, response_type: type[Response], least_version: int = 0
) -> Response:
    """One request to one broker; NoContact says why there is no response. Below the least version, the request could
    not say what is wanted: then this raises AdminError."""
    try:
        connection = _connection(cluster, address)
        _check_version(connection, request, least_version)
        response = connection.call(request, response_type)
    except (ConnectionLost, KafkaError, ProtocolError) as error:
        raise _no_contact(address, error) from None
    except (InvalidProperty, OSError) as error:
        raise AdminError(f"bad client settings: {error}") from None
    cluster.kept[address] = Kept(connection, time.monotonic())
    return response


def _connection(cluster: Access, address: Address) -> Connection:
    kept = cluster.kept.pop(address, None)
    if kept is not None:
        if kept.connection.is_idle and time.monotonic() - kept.used_s < cluster.keep_s:
            return kept.connection
        kept.connection.close()
    return Connection(address.host, address.port, client_settings(cluster, address))


def client_settings(cluster: Access, address: Address) -> ClientSettings:
    known = {name: value for name, value in to_java(cluster.given).items() if name in MAPPED}
    defaults = {
        "request.timeout.ms": str(int(REQUEST_TIMEOUT_S * 1000)),
        "socket.connection.setup.timeout.ms": str(int(CONNECT_TIMEOUT_S * 1000)),
    }
    own = {"bootstrap.servers": str(address), "client.id": cluster.client_id}
    return parse_properties({**defaults, **known, **own}).client


def _check_version(connection: Connection, request: Message, least_version: int) -> None:
    version = connection.version_of(request.API_KEY)  # type: ignore[attr-defined]
    if version < least_version:
        name = type(request).__name__.removesuffix("Request")
        raise AdminError(
            f"{connection.host}:{connection.port} is too old: it serves {name} in version {version}, "
            f"and what you ask for is in version {least_version}"
        )


def _no_contact(address: Address, error: Exception) -> NoContact:
    cause = error.__cause__
    if isinstance(error, KafkaError) and error.code in SASL_REASONS:
        return NoContact(f"{address}: {SASL_REASONS[error.code].format(said=error)}", is_mismatch=True)
    if type(cause).__module__ == "ssl":  # which is imported only if it is used
        reason = getattr(cause, "reason", None) or cause
        return NoContact(f"{address}: SSL handshake failed: {reason}", is_mismatch=True)
    if isinstance(error, CannotConnect) and isinstance(cause, OSError):
        return NoContact(f"{address} ({connect_reason(cause)})", is_refused=True)
    if isinstance(cause, TimeoutError):
        return NoContact(f"{address}: no response within {REQUEST_TIMEOUT_S:g} s", is_silent=True)
    if isinstance(error, ConnectionLost):
        return NoContact(f"{address}: {cause or error}", is_mismatch=isinstance(cause, ConnectionError))
    return NoContact(f"{address}: {error}")


def ask_any(
    cluster: Access, request: Message, response_type: type[Response], least_version: int = 0
) -> Response:
    """The response of the first server that gives one; brokers pass on to the controller what it must decide."""
    servers = cluster.servers()
    failures: list[NoContact] = []
    for address in sorted(servers, key=lambda one: one not in cluster.kept):
        try:
            return ask(cluster, address, request, response_type, least_version)
        except NoContact as error:
            failures.append(error)
    if all(one.is_refused for one in failures):
        raise nobody_reached([str(one) for one in failures], cluster.place)
    if any(one.is_silent for one in failures):
        raise NoContact(cluster.unreachable(None), is_silent=True)
    told = "; ".join(map(str, failures))
    raise NoContact(cluster.unreachable(told) if any(one.is_mismatch for one in failures) else told)


def retried(attempt: Callable[[], Result], timeout_s: float = REQUEST_TIMEOUT_S) -> Result:
    """Try again while the cluster refuses for a passing reason."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            return attempt()
        except Refused as error:
            if error.code not in PASSING or time.monotonic() > deadline_s:
                raise
        time.sleep(RETRY_S)


def coordinator_of(cluster: Access, name: str, kind: int = GROUP_COORDINATOR) -> Node:
    """The broker that coordinates a group or a transactional id."""
    from odradek.wire.messages.find_coordinator import (
        Coordinator,
        FindCoordinatorRequest,
        FindCoordinatorResponse,
    )

    def find() -> Node:
        request = FindCoordinatorRequest(name, kind, [name])
        response = ask_any(cluster, request, FindCoordinatorResponse)
        found: Coordinator | FindCoordinatorResponse = (
            response.coordinators[0] if response.coordinators else response
        )
        check(found.error_code, found.error_message, name)
        return Node(found.node_id, Address(found.host, found.port))

    return retried(find)


def ask_coordinator(
    cluster: Access,
    group: str,
    request: Message,
    response_type: type[Response],
    code_of: Callable[[Response], int],
) -> Response:
    """The response of a group's coordinator. `code_of` finds the error code that says whether it is one."""

    def attempt() -> Response:
        response = ask(cluster, coordinator_of(cluster, group).address, request, response_type)
        code = code_of(response)
        if code in PASSING:
            check(code, None, group)
        return response

    return retried(attempt)
