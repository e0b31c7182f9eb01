"""One socket to one broker: requests out, responses in, in order.

Several requests may be under way; a broker responds in the order in which they came. A connection may go to another
user only while nothing is under way (`is_idle`): an unread response would be taken for the next one's. Any failure is
`ConnectionLost`; the connection is then closed for good.

Versions come from ApiVersions v0, which every broker supports, and the highest common one is used, up
to `HIGHEST_VERSIONS`: later versions of these name topics by an id that a checkpoint does not know, or belong to the
newer protocol of transactions (KIP-890), which `transactions` does not speak.
"""

import socket
import time
from collections import deque
from typing import NamedTuple, TypeVar, cast

from odradek.client.settings import ClientSettings
from odradek.errors import ErrorCode, KafkaError, ProtocolError
from odradek.wire.codec import Message, read_message
from odradek.wire.frame import SIZE, encode_request, has_tagged_response_header
from odradek.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.wire.messages.index import SCHEMAS

HIGHEST_VERSIONS = {  # by name: a short command imports none of them
    "Fetch": 12,
    "OffsetCommit": 9,
    "OffsetFetch": 9,
    "Produce": 11,
    "InitProducerId": 4,
    "AddPartitionsToTxn": 3,
    "EndTxn": 4,
}
MAX_RESPONSE_BYTES = 1 << 30
NO_TLS = ". This listener does not seem to speak TLS: check kafka.security.protocol"
SESSION_SHARE = 0.8  # of a session's life; the broker closes a connection that outlives it

Response = TypeVar("Response", bound=Message)


class ConnectionLost(Exception):
    """The broker cannot be reached, closed the connection or does not respond; a retry may succeed."""


class CannotConnect(ConnectionLost):
    """There is no connection to begin with."""


class _Pending(NamedTuple):
    correlation_id: int
    api_key: int
    version: int
    response_type: type[Message]


class Connection:
    def __init__(self, host: str, port: int, settings: ClientSettings) -> None:
        self.host, self.port = host, port
        self._settings = settings
        self._pending: deque[_Pending] = deque()
        self._next_correlation_id = 0
        self._versions = {ApiVersionsRequest.API_KEY: (0, 0)}
        self._best_before_s = float("inf")
        self._socket = self._connect()
        try:
            self._ask_versions()
            if settings.sasl is not None:
                self._authenticate()
        except BaseException:
            self.close()
            raise

    @property
    def is_idle(self) -> bool:
        """True if another user may have it: open, with no response due, its session not about to expire."""
        return not self._pending and self._socket.fileno() >= 0 and not self.is_expired

    @property
    def is_expired(self) -> bool:
        return time.monotonic() >= self._best_before_s

    def call(self, request: Message, response_type: type[Response]) -> Response:
        self.send(request, response_type)
        return cast(Response, self.receive())

    def send(self, request: Message, response_type: type[Message]) -> None:
        api_key: int = request.API_KEY  # type: ignore[attr-defined]
        version = self.version_of(api_key)
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        frame = encode_request(request, api_key, version, correlation_id, self._settings.client_id)
        self._pending.append(_Pending(correlation_id, api_key, version, response_type))
        try:
            self._socket.sendall(frame)
        except OSError as error:
            raise self._lost(error) from error

    def receive(self) -> Message:
        """The next response. Records in it are views of the received frame, never copies."""
        pending = self._pending[0]
        try:
            self._receive_exactly(size := bytearray(SIZE.size))
            (length,) = SIZE.unpack(size)
            if not SIZE.size <= length <= MAX_RESPONSE_BYTES:
                raise ProtocolError(f"a response of {length} bytes")
            self._receive_exactly(frame := bytearray(length))
            response = _read_response(memoryview(frame), pending)
        except (OSError, ProtocolError) as error:
            raise self._lost(error) from error
        self._pending.popleft()
        return response

    def _receive_exactly(self, buffer: bytearray) -> None:
        view, position = memoryview(buffer), 0
        while position < len(buffer):
            count = self._socket.recv_into(view[position:])
            if count == 0:
                raise ConnectionError("closed by the broker")
            position += count

    def version_of(self, api_key: int) -> int:
        schema = SCHEMAS[api_key]
        lowest, highest = self._versions.get(api_key, (0, -1))
        version = min(highest, schema.max_version, HIGHEST_VERSIONS.get(schema.name, schema.max_version))
        if version < max(lowest, schema.min_version):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{self.host}:{self.port} serves {schema.name} in versions {lowest} to {highest}, "
                f"this client speaks {schema.min_version} to {schema.max_version}",
            )
        return version

    def abort(self) -> None:
        """Wake a thread that waits on this connection; it gets `ConnectionLost`."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it is no longer connected, which is all we want

    def close(self) -> None:
        self._socket.close()

    def _lost(self, reason: Exception) -> ConnectionLost:
        self.close()
        return ConnectionLost(f"broker {self.host}:{self.port}: {reason or type(reason).__name__}")

    def _connect(self) -> socket.socket:
        try:
            plain = socket.create_connection((self.host, self.port), self._settings.connect_timeout_s)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connected = plain
            if self._settings.tls is not None:
                from odradek.client.tls import client_context

                context = client_context(self._settings.tls)
                connected = context.wrap_socket(plain, server_hostname=self.host)
            connected.settimeout(self._settings.request_timeout_s)
        except (OSError, ValueError) as error:  # the latter: a store that cannot be used
            hint = NO_TLS if self._settings.tls is not None and _is_no_tls(error) else ""
            raise CannotConnect(f"cannot connect to broker {self.host}:{self.port}: {error}{hint}") from error
        return connected

    def _without_sasl(self) -> KafkaError:
        protocols = "PLAINTEXT" if self._settings.tls is None else "SSL"
        return KafkaError(
            ErrorCode.ILLEGAL_SASL_STATE,
            f"broker {self.host}:{self.port} has no SASL on this listener: set kafka.security.protocol to "
            f"{protocols}, or name the port of its SASL listener in kafka.bootstrap.servers",
        )

    def _ask_versions(self) -> None:
        response = self.call(ApiVersionsRequest(), ApiVersionsResponse)
        _check(response.error_code, "")
        self._versions = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}

    def _authenticate(self) -> None:
        from odradek.client.sasl import start_authentication
        from odradek.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
        from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

        sasl = self._settings.sasl
        assert sasl is not None
        if SaslHandshakeRequest.API_KEY not in self._versions:
            raise self._without_sasl()
        shake = self.call(SaslHandshakeRequest(mechanism=sasl.mechanism), SaslHandshakeResponse)
        if shake.error_code == ErrorCode.ILLEGAL_SASL_STATE:
            raise self._without_sasl()
        offered = ", ".join(shake.mechanisms)
        _check(shake.error_code, f"the broker offers {offered}, not sasl.mechanism {sasl.mechanism}")
        conversation = start_authentication(sasl)
        message = next(conversation)
        while True:
            response = self.call(SaslAuthenticateRequest(auth_bytes=message), SaslAuthenticateResponse)
            _check(response.error_code, response.error_message or "authentication failed")
            try:
                message = conversation.send(response.auth_bytes)
            except StopIteration:
                break
        if response.session_lifetime_ms > 0:
            self._best_before_s = time.monotonic() + SESSION_SHARE * response.session_lifetime_ms / 1000


def _is_no_tls(error: Exception) -> bool:
    """True if a handshake failed as it does when the other side does not speak TLS."""
    import ssl

    if isinstance(error, ssl.SSLEOFError | ConnectionResetError):
        return True
    return isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER"


def _check(error_code: int, message: str) -> None:
    if error_code:
        raise KafkaError(ErrorCode(error_code), message)


def _read_response(frame: memoryview, pending: _Pending) -> Message:
    (correlation_id,) = SIZE.unpack_from(frame)
    if correlation_id != pending.correlation_id:
        raise ProtocolError(f"response {correlation_id} instead of {pending.correlation_id}")
    position = SIZE.size
    if has_tagged_response_header(pending.api_key, pending.version):
        if frame[position]:
            raise ProtocolError("a response header has unknown tagged fields")
        position += 1
    response, _ = read_message(pending.response_type, pending.version, frame, position)
    return response
