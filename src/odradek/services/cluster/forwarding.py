"""Forwards requests to the active controller, and returns its responses.

A client's request travels in an Envelope, together with the client's identity; a broker's own request is sent as it
is. While no controller is known, or it cannot be reached, or it answers NOT_CONTROLLER, the request is retried until
its timeout. So a request may be carried out twice, as in Kafka: the client then sees TOPIC_ALREADY_EXISTS for a topic
that it has just created.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from odradek.apis.items import carries
from odradek.apis.table import APIS, api_name
from odradek.errors import ErrorCode, KafkaError, ProtocolError
from odradek.host.interface import Host
from odradek.host.log_lines import counted
from odradek.model import Caller
from odradek.net.link import Link
from odradek.net.network import Dialer
from odradek.raft.address import NodeAddress
from odradek.services.cluster.calls import call
from odradek.services.cluster.quorum import Quorum
from odradek.serving.turns import Turns
from odradek.wire.codec import Message, drain
from odradek.wording import why

log = logging.getLogger(__name__)

RETRY_SECONDS = 0.05

DecideHere = Callable[[Message, int, Caller], Awaitable[Any]]


class Forwarder:
    def __init__(
        self, node_id: int, quorum: Quorum, host: Host, dialer: Dialer, turns: Turns, timeout_ms: int
    ) -> None:
        self._client_id = f"node-{node_id}"
        self._quorum = quorum
        self._host = host
        self._turns = turns
        self._timeout_seconds = timeout_ms / 1000
        self._link = Link(host, dialer)
        self._last_id = 0

    async def forward(self, request: Message, version: int, caller: Caller, decide_here: DecideHere) -> Any:
        """Returns the controller's response. Raises KafkaError if there is none in time. If this node becomes the
        active controller meanwhile, `decide_here` decides."""
        deadline = self._host.monotonic() + self._timeout_seconds
        reason = "there is no controller"
        while (left := deadline - self._host.monotonic()) > 0:
            if self._quorum.is_active:
                return await decide_here(request, version, caller)
            leader = self._quorum.leader
            if leader is None or leader[1] is None:
                reason = "no controller is known"
            else:
                try:
                    return await self._ask(leader[1], request, version, caller, left)
                except (OSError, ProtocolError) as error:
                    reason = why(error)
                    counted(
                        log, logging.INFO, "", reason, "cannot reach the controller, trying again: %s", reason
                    )
                except KafkaError as error:
                    if error.code is not ErrorCode.NOT_CONTROLLER:
                        raise
                    reason = f"node {leader[0]} is not the controller"
            await self._pause(min(RETRY_SECONDS, left))
        raise KafkaError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"The controller did not respond within {self._timeout_seconds:g} s: {reason}.",
        )

    async def _pause(self, seconds: float) -> None:
        """Wait for a change of the quorum, but no longer than this."""
        try:
            async with asyncio.timeout(seconds):
                await self._quorum.changed()
        except TimeoutError:
            pass

    async def _ask(
        self, address: NodeAddress, request: Message, version: int, caller: Caller, seconds: float
    ) -> Any:
        from odradek.serving.envelope import unwrap_response_in_steps, wrap

        api_key: int = request.API_KEY  # type: ignore[attr-defined]
        if not APIS[api_key].is_forwarded:
            response = await call(self._link, address, request, version, self._client_id, seconds)
            if drain(carries(response, ErrorCode.NOT_CONTROLLER)):
                raise KafkaError(ErrorCode.NOT_CONTROLLER, f"{api_name(api_key)} was refused.")
            return response
        self._last_id += 1
        correlation_id = self._last_id & 0x7FFFFFFF
        envelope = wrap(request, version, caller, correlation_id)
        wrapped: Any = await call(
            self._link, address, envelope, envelope.MAX_VERSION, self._client_id, seconds
        )
        return await self._turns.complete(unwrap_response_in_steps(wrapped, api_key, version, correlation_id))

    def leader_changed(self) -> None:
        """Send to the new controller what the old one has not answered yet: it may be cut off, and never answer."""
        leader = self._quorum.leader
        if leader is not None and leader[1] is not None:
            self._link.go_to(leader[1])

    def close(self) -> None:
        self._link.close()
