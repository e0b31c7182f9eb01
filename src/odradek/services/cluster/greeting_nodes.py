"""The proof of who this node is, given on the connections that it opens: by its certificate, or by SASL.

The greeting is SaslHandshake and then SaslAuthenticate, as any client sends them. What is slow in SCRAM runs in a
thread. A node that is not let in treats the other one as one that cannot be reached, and tries again.
"""

import base64
import logging
from collections.abc import Callable, Generator
from typing import Any

from odradek.config.broker import BrokerConfig
from odradek.config.definition import ConfigError
from odradek.config.listeners import SecurityProtocol
from odradek.config.security import LinkSecurity, link_security
from odradek.errors import ErrorCode
from odradek.host.interface import Host
from odradek.net.greeting import GreetingRefused
from odradek.net.security import Exchange, Greet, Security
from odradek.security import plain, scram_client
from odradek.security.contexts import ContextSource, client_context
from odradek.security.credentials import SCRAM_MECHANISMS
from odradek.security.exchange import Refused
from odradek.security.stores import BadStore
from odradek.security.tls_settings import TlsSettings
from odradek.wire.codec import Message, read_message
from odradek.wire.frame import encode_request, skip_response_header
from odradek.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

log = logging.getLogger(__name__)

HANDSHAKE_VERSION, AUTHENTICATE_VERSION = 1, 2
NONCE_BYTES = 24

RandomBytes = Callable[[int], bytes]
Conversation = Generator[bytes, bytes, None]


class Link:
    """The way to the listener of one name on other nodes."""

    def __init__(
        self,
        config: BrokerConfig,
        listener: str,
        protocol: SecurityProtocol,
        host: Host,
        random_bytes: RandomBytes,
    ) -> None:
        """Raises ConfigError."""
        self._listener, self._protocol = listener, protocol
        link = link_security(config, listener, protocol)
        greet = _new_greet(link, f"node-{config.node_id}", host, random_bytes) if link.mechanism else None
        self._contexts = None if link.tls is None else self._new_contexts(link.tls)
        self.security = Security(protocol, greet, None if self._contexts is None else self._newest)

    def _new_contexts(self, tls: TlsSettings) -> ContextSource:
        try:
            return ContextSource(tls, client_context)
        except BadStore as error:
            key = f"listener.name.{self._listener.lower()}.ssl.keystore.location"
            raise ConfigError(key, "", str(error)) from None

    def _newest(self) -> Any:
        """Connections are opened rarely: each looks whether the files have changed."""
        assert self._contexts is not None
        try:
            self._contexts.refresh()
        except BadStore:
            pass  # the listener with the same files says so in the log
        return self._contexts.current

    def reconfigure(self, config: BrokerConfig) -> None:
        """New connections use the certificates that the settings name now."""
        if self._contexts is None:
            return
        try:
            tls = link_security(config, self._listener, self._protocol).tls
        except ConfigError as error:
            log.error(
                "connections to listeners %s of other nodes keep their certificates, because the new ones cannot be "
                "used: %s",
                self._listener,
                error,
            )
            return
        assert tls is not None
        self._contexts.look_at(tls)


def _new_greet(link: LinkSecurity, client_id: str, host: Host, random_bytes: RandomBytes) -> Greet:
    async def greet(exchange: Exchange) -> None:
        await _shake_hands(exchange, link.mechanism, client_id)
        conversation = _converse(link, random_bytes)
        message = next(conversation)
        while True:
            request = SaslAuthenticateRequest(message)
            response = await _ask(
                exchange, request, AUTHENTICATE_VERSION, client_id, SaslAuthenticateResponse
            )
            if response.error_code:
                raise GreetingRefused(response.error_message or ErrorCode(response.error_code).name)
            following = await host.in_thread(_go_on, conversation, response.auth_bytes)
            if following is None:
                return
            message = following

    return greet


def _converse(link: LinkSecurity, random_bytes: RandomBytes) -> Conversation:
    if link.mechanism == plain.MECHANISM:
        return _say(plain.client_message(link.username, link.password))
    nonce = base64.b64encode(random_bytes(NONCE_BYTES)).decode()
    return scram_client.converse(SCRAM_MECHANISMS[link.mechanism], link.username, link.password, nonce)


def _say(message: bytes) -> Conversation:
    yield message


def _go_on(conversation: Conversation, response: bytes) -> bytes | None:
    """The next message; None if that was all."""
    try:
        return conversation.send(response)
    except StopIteration:
        return None
    except Refused as error:
        raise GreetingRefused(str(error)) from None


async def _shake_hands(exchange: Exchange, mechanism: str, client_id: str) -> None:
    request = SaslHandshakeRequest(mechanism)
    response = await _ask(exchange, request, HANDSHAKE_VERSION, client_id, SaslHandshakeResponse)
    if response.error_code:
        offered = ", ".join(response.mechanisms) or "no SASL"
        raise GreetingRefused(f"it offers {offered}, and this node logs in with {mechanism}")


async def _ask(
    exchange: Exchange, request: Any, version: int, client_id: str, response_type: type[Message]
) -> Any:
    frame = await exchange.ask(encode_request(request, request.API_KEY, version, 0, client_id))
    position = skip_response_header(frame, request.API_KEY, version)
    return read_message(response_type, version, frame, position)[0]
