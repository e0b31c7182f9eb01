"""Envelope (58): a client's request on its way from the broker that received it to the active controller.

Inside is the request as the client sent it, header and all, in the client's version; around it is what the controller
could not know otherwise: the client's principal (in the format of Kafka's own principals) and its IP address. The
response comes back the same way, in the version of the request inside.

Only requests that a client may send to a controller are forwarded (`Api.is_forwarded`). Requests of nodes have no
envelope.

An envelope may contain a large request. It is read and written in steps, as without the envelope.
"""

from ipaddress import ip_address
from typing import NamedTuple

from odradek.apis.items import carries
from odradek.apis.messages import request_type, response_type
from odradek.apis.table import APIS, name_of
from odradek.errors import ErrorCode, KafkaError, ProtocolError
from odradek.model import Caller, Principal
from odradek.wire.codec import Message, Steps, drain, encode, read_in_steps, read_message
from odradek.wire.frame import (
    SIZE,
    RequestHeader,
    encode_request,
    encode_response_in_steps,
    read_request_header,
    skip_response_header,
)
from odradek.wire.messages.default_principal_data import DefaultPrincipalData
from odradek.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse

PRINCIPAL_VERSION = 0
VERSION_SIZE = 2
CORRELATION_ID_SIZE = 4
MAX_ELEMENTS = 200_000  # of all arrays of the request inside
IPV6 = 6
NO_ADDRESS = bytes(4)  # 0.0.0.0: of a client on a network that has none


class Forwarded(NamedTuple):
    """The contents of an envelope."""

    header: RequestHeader
    request: Message
    caller: Caller  # without a listener: that is where the envelope arrives


# Requests


def wrap(request: Message, version: int, caller: Caller, correlation_id: int) -> EnvelopeRequest:
    """`correlation_id` is of the request inside; its response repeats it."""
    api_key: int = request.API_KEY  # type: ignore[attr-defined]
    frame = encode_request(request, api_key, version, correlation_id, caller.client_id)
    return EnvelopeRequest(
        bytes(memoryview(frame)[SIZE.size :]),
        _write_principal(caller.principal),
        _write_address(caller.address),
    )


def _write_principal(principal: Principal) -> bytes:
    data = encode(DefaultPrincipalData(*principal), PRINCIPAL_VERSION)
    return PRINCIPAL_VERSION.to_bytes(VERSION_SIZE) + bytes(data)


def _write_address(client: str) -> bytes:
    for host in (client.rpartition(":")[0], client):
        try:
            return ip_address(host).packed
        except ValueError:
            continue
    return NO_ADDRESS


def unwrap(envelope: EnvelopeRequest) -> Forwarded:
    """KafkaError if it cannot be read, or the request inside is not forwardable."""
    return drain(unwrap_in_steps(envelope))


def unwrap_in_steps(envelope: EnvelopeRequest) -> Steps[Forwarded]:
    principal = _read_principal(envelope.request_principal)
    host = _read_address(envelope.client_host_address)
    data = memoryview(envelope.request_data)
    try:
        header = read_request_header(data)
        message_type = _forwardable_type(header)
        request, end = yield from read_in_steps(message_type, header.version, data, header.body, MAX_ELEMENTS)
    except ProtocolError as error:
        raise _invalid(f"The request in the envelope cannot be read: {error}.") from None
    if end != len(data):
        raise _invalid(f"{len(data) - end} bytes follow the request in the envelope.")
    return Forwarded(header, request, Caller(principal, host, client_id=header.client_id))


def _forwardable_type(header: RequestHeader) -> type[Message]:
    name = name_of(header.api_key, header.version)
    api = APIS.get(header.api_key)
    if api is None or not api.is_forwarded:
        raise _invalid(f"{name} is not forwarded to a controller.")
    message_type = request_type(header.api_key)
    if not message_type.MIN_VERSION <= header.version <= message_type.MAX_VERSION:  # type: ignore[attr-defined]
        raise _invalid(f"{name} is not served.")
    return message_type


def _read_principal(data: bytes | None) -> Principal:
    """Later versions may only append fields."""
    try:
        if data is None or int.from_bytes(data[:VERSION_SIZE], signed=True) < PRINCIPAL_VERSION:
            raise ProtocolError("it has no version")
        principal, _ = read_message(DefaultPrincipalData, PRINCIPAL_VERSION, data, VERSION_SIZE)
    except ProtocolError as error:
        raise KafkaError(
            ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE,
            f"The principal of the envelope cannot be read: {error}.",
        ) from None
    return Principal(principal.type_, principal.name)


def _read_address(data: bytes) -> str:
    """Empty where a broker asks for itself."""
    try:
        address = ip_address(bytes(data))
    except ValueError:
        raise _invalid(f"The client's address in the envelope has {len(data)} bytes, not 4 or 16.") from None
    if data == NO_ADDRESS:
        return ""
    # Without a port the last part of an IPv6 address would be taken for one.
    return f"{address}:0" if address.version == IPV6 else str(address)


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


# Responses


def wrap_response(response: Message, header: RequestHeader) -> EnvelopeResponse:
    """`header` is of the request inside."""
    return drain(wrap_response_in_steps(response, header))


def wrap_response_in_steps(response: Message, header: RequestHeader) -> Steps[EnvelopeResponse]:
    """A controller that is no longer active says so on the envelope, so its sender looks for the active one."""
    if (yield from carries(response, ErrorCode.NOT_CONTROLLER)):
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    frame = yield from encode_response_in_steps(
        response, header.api_key, header.version, header.correlation_id
    )
    return EnvelopeResponse(bytes(memoryview(frame)[SIZE.size :]))


def unwrap_response(response: EnvelopeResponse, api_key: int, version: int, correlation_id: int) -> Message:
    """KafkaError with the code of the envelope, as NOT_CONTROLLER; ProtocolError if the response inside cannot be
    read."""
    return drain(unwrap_response_in_steps(response, api_key, version, correlation_id))


def unwrap_response_in_steps(
    response: EnvelopeResponse, api_key: int, version: int, correlation_id: int
) -> Steps[Message]:
    if response.error_code:
        raise KafkaError(_known(response.error_code), "The controller refused the envelope.")
    data = memoryview(response.response_data or b"")
    if int.from_bytes(data[:CORRELATION_ID_SIZE], signed=True) != correlation_id:
        raise ProtocolError("the response in an envelope is to another request")
    position = skip_response_header(data, api_key, version)
    message, _ = yield from read_in_steps(response_type(api_key), version, data, position, MAX_ELEMENTS)
    return message


def _known(code: int) -> ErrorCode:
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
