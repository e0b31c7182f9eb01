"""The protection of a node: who may connect to it, and how it connects to others.

Nearly all of it is imported only where a listener or a link has TLS or SASL: OpenSSL alone takes longer to import than
the rest of a node takes to start.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.config.broker import BrokerConfig
from odradek.config.definition import ConfigError
from odradek.config.listeners import Listener, SecurityProtocol
from odradek.host.interface import Host
from odradek.metadata.image import MetadataImage
from odradek.net.network import Dialer, Network
from odradek.net.security import PLAINTEXT, Security
from odradek.serving.session import NewSession, open_session

if TYPE_CHECKING:
    from odradek.services.cluster.authentication import Authentication
    from odradek.services.cluster.greeting_nodes import Link

log = logging.getLogger(__name__)

RandomBytes = Callable[[int], bytes]


class Protection:
    def __init__(self, config: BrokerConfig, host: Host, network: Network, random_bytes: RandomBytes) -> None:
        """Raises ConfigError. `random_bytes` must not be predictable."""
        self._host = host
        self._random_bytes = random_bytes
        self._links: list[Link] = []
        self._authentication: Authentication | None = None
        self.to_brokers = Dialer(
            network, self._link(config, config.brokers_listener_name, config.inter_broker_protocol)
        )
        self.to_controllers = Dialer(
            network, self._link(config, config.controller_listener_names[0], config.controller_protocol)
        )

    def _link(self, config: BrokerConfig, listener: str, protocol: SecurityProtocol) -> Security:
        """Return the way in which this node connects to the listener of that name on others."""
        if protocol is SecurityProtocol.PLAINTEXT:
            return PLAINTEXT
        from odradek.services.cluster.greeting_nodes import Link

        link = Link(config, listener, protocol, self._host, self._random_bytes)
        self._links.append(link)
        return link.security

    def new_session_of(self, config: BrokerConfig, image: Callable[[], MetadataImage]) -> NewSession:
        """Return the function that begins the sessions of clients. Dynamic settings that cannot be used must not keep
        a node from its start, because it has to run to be told better ones: its own are taken then.
        """
        for link in self._links:
            link.reconfigure(config)
        if all(item.protocol is SecurityProtocol.PLAINTEXT for item in config.listeners):
            return open_session
        from odradek.services.cluster.authentication import Authentication

        try:
            self._authentication = Authentication(config, self._host, image, self._random_bytes)
        except ConfigError as error:
            if not config.dynamic:
                raise
            log.error("the dynamic settings of this broker are not used for its certificates: %s", error)
            static = BrokerConfig(config.static)
            self._authentication = Authentication(static, self._host, image, self._random_bytes)
        return self._authentication.new_session

    async def start(self) -> "Authentication | None":
        """Returns what has to run from now on, if anything. Raises ConfigError."""
        if self._authentication is not None:
            await self._authentication.start()
        return self._authentication

    def of_listener(self, listener: Listener) -> Security:
        contexts = None if self._authentication is None else self._authentication.contexts(listener.name)
        if contexts is None:
            return Security(listener.protocol)
        return Security(listener.protocol, tls=lambda: contexts.current)

    def reconfigure(self, config: BrokerConfig) -> None:
        """Read certificates from where they are now; connections stay."""
        if self._authentication is not None:
            self._authentication.reconfigure(config)
        for link in self._links:
            link.reconfigure(config)
