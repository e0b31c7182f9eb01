"""A broker that says what a test tells it to: recorded responses, in any order, at any moment.

Handlers are functions from a request to a response (or to None, which closes the connection), one per API. It
advertises exactly the APIs it has handlers for, and notes every request.
"""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any

from odradek.client.settings import ClientSettings
from odradek.wire.codec import Message, read_message
from odradek.wire.frame import SIZE, encode_response, read_request_header
from odradek.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from odradek.wire.messages.index import SCHEMAS
from odradek.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

API_VERSIONS, METADATA, FETCH, PRODUCE, LIST_OFFSETS = 18, 3, 1, 0, 2
INIT_PRODUCER_ID, SASL_HANDSHAKE, SASL_AUTHENTICATE = 22, 17, 36
FIND_COORDINATOR, OFFSET_COMMIT = 10, 8

Handler = Callable[[Any], Message | bytes | None]


class ScriptedBroker:
    def __init__(
        self,
        node_id: int = 1,
        tls: ssl.SSLContext | None = None,
        port: int = 0,
        handlers: dict[int, Handler] | None = None,
    ) -> None:
        self.node_id = node_id
        self.handlers: dict[int, Handler] = handlers or {}
        self.requests: list[Any] = []
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port: int = self._listener.getsockname()[1]
        self._connections: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> "ScriptedBroker":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections, as if its process were killed."""
        for one in (self._listener, *self._connections):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def settings(self, **changes: Any) -> ClientSettings:
        values = {"retry_backoff_s": 0.001, "api_timeout_s": 10.0, "request_timeout_s": 10.0} | changes
        return ClientSettings(bootstrap=(("127.0.0.1", self.port),), **values)

    def requests_of(self, kind: type) -> list[Any]:
        return [request for request in self.requests if isinstance(request, kind)]

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._connections.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError):
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
            while True:
                frame = _receive(connection, SIZE.unpack(_receive(connection, SIZE.size))[0])
                response = self._answer(frame)
                if response is None:
                    break
                connection.sendall(response)
        connection.close()

    def _answer(self, frame: bytes) -> bytes | None:
        header = read_request_header(frame)
        if header.api_key == API_VERSIONS:
            return bytes(
                encode_response(self._versions(), API_VERSIONS, header.version, header.correlation_id)
            )
        schema = SCHEMAS[header.api_key]
        module = import_module(f"odradek.wire.messages.{schema.module}")
        request_type = getattr(module, f"{schema.name}Request")
        request, _ = read_message(request_type, header.version, frame, header.body)
        self.requests.append(request)
        response = self.handlers[header.api_key](request)
        if response is None or isinstance(response, bytes):
            return response
        return bytes(encode_response(response, header.api_key, header.version, header.correlation_id))

    def _versions(self) -> ApiVersionsResponse:
        known = [SCHEMAS[key] for key in (API_VERSIONS, *self.handlers)]
        return ApiVersionsResponse(
            api_keys=[ApiVersion(one.key, one.min_version, one.max_version) for one in known]
        )


def _receive(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise EOFError
        data += part
    return data


def metadata_of(
    brokers: list[ScriptedBroker], leaders: dict[tuple[str, int], tuple[int, int]]
) -> Callable[[MetadataRequest], MetadataResponse]:
    """Answers Metadata from (topic, partition) -> (leader, epoch), which the test may change on the way."""

    def respond(request: MetadataRequest) -> MetadataResponse:
        names = {topic for topic, _ in leaders}
        wanted = names if request.topics is None else [topic.name for topic in request.topics]
        topics = [
            MetadataResponseTopic(
                error_code=0 if name in names else 3,
                name=name,
                partitions=[
                    MetadataResponsePartition(partition_index=index, leader_id=leader, leader_epoch=epoch)
                    for (topic, index), (leader, epoch) in sorted(leaders.items())
                    if topic == name
                ],
            )
            for name in sorted(wanted)
        ]
        nodes = [MetadataResponseBroker(one.node_id, "127.0.0.1", one.port) for one in brokers]
        return MetadataResponse(brokers=nodes, topics=topics)

    return respond
