"""Listeners: the addresses that the broker binds, and those that it tells clients to connect to.

The two differ: a broker binds to all addresses and to a port that the system may choose, but must
advertise a name that clients can reach and the port that was really bound.
"""

import re
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from odradek.config.definition import ConfigError

_LISTENER = re.compile(r"(?P<name>[A-Za-z0-9_]+)://(?P<host>\[[^\]]*\]|[^:]*):(?P<port>[0-9]+)")
_SERVER = re.compile(r"(?P<host>\[[^\]]+\]|[^:\s]+):(?P<port>[0-9]+)")

_PLACE = re.compile(r"(?P<host>\[[^\]]*\]|[^:\s]*):(?P<port>[0-9]+)")

# Addresses that mean "all of them": fine to bind to, useless to connect to.
UNSPECIFIED_HOSTS = frozenset({"", "0.0.0.0", "::"})
LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})


class SecurityProtocol(IntEnum):
    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3

    @property
    def uses_tls(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def uses_sasl(self) -> bool:
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


class Listener(NamedTuple):
    name: str  # upper case
    host: str  # empty: all addresses
    port: int  # 0: the system chooses
    protocol: SecurityProtocol


class Server(NamedTuple):
    """The address at which a node is asked."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_protocol_map(text: str) -> dict[str, SecurityProtocol]:
    key = "listener.security.protocol.map"
    protocols = {}
    for item in filter(None, map(str.strip, text.split(","))):
        name, _, protocol = item.partition(":")
        if not name or protocol.strip() not in SecurityProtocol.__members__:
            allowed = ", ".join(SecurityProtocol.__members__)
            raise ConfigError(key, text, f"{item!r} is not NAME:PROTOCOL with a protocol of {allowed}")
        protocols[name.strip().upper()] = SecurityProtocol[protocol.strip()]
    return protocols


def parse_listeners(key: str, text: str, protocols: Mapping[str, SecurityProtocol]) -> tuple[Listener, ...]:
    """NAME://host:port, separated by commas. Names and, except for port 0, addresses are unique."""
    found: list[Listener] = []
    for item in filter(None, map(str.strip, text.split(","))):
        listener = _parse_listener(key, item, protocols)
        if any(other.name == listener.name for other in found):
            raise ConfigError(key, text, f"each listener needs its own name, {listener.name} is there twice")
        if listener.port and any(other[1:3] == listener[1:3] for other in found):
            raise ConfigError(key, text, f"{listener.host}:{listener.port} is there twice")
        found.append(listener)
    if not found:
        raise ConfigError(key, text, "at least one listener, such as PLAINTEXT://:9092, is needed")
    return tuple(found)


def _parse_listener(key: str, item: str, protocols: Mapping[str, SecurityProtocol]) -> Listener:
    match = _LISTENER.fullmatch(item)
    if not match or int(match["port"]) > 65535:
        raise ConfigError(key, item, "expected NAME://host:port with a port from 0 to 65535")
    name = match["name"].upper()
    if name not in protocols:
        raise ConfigError(key, item, f"no security protocol is defined for listener {name}")
    return Listener(name, match["host"].strip("[]"), int(match["port"]), protocols[name])


def parse_server(text: str) -> Server:
    """host:port, with an IPv6 address in brackets; ValueError says what is wrong."""
    match = _SERVER.fullmatch(text)
    if not match or not 1 <= int(match["port"]) <= 65535:
        raise ValueError(f"{text!r} is not host:port with a port from 1 to 65535")
    return Server(match["host"].strip("[]"), int(match["port"]))


def parse_place(text: str) -> Server:
    """host:port to listen on: no host means all addresses, port 0 that the system chooses. ValueError says what is
    wrong."""
    match = _PLACE.fullmatch(text)
    if not match or int(match["port"]) > 65535:
        raise ValueError(f"{text!r} is not host:port with a port from 0 to 65535")
    return Server(match["host"].strip("[]"), int(match["port"]))


def serves(listener: Listener, advertised: Listener, server: Server, hostname: str) -> bool:
    """True if a server is this listener on this machine, by its bound or its advertised address."""
    host, bound, told = server.host.lower(), listener.host.lower(), advertised.host.lower()
    if (host, server.port) == (told, advertised.port):
        return True
    if not listener.port or server.port != listener.port:
        return False
    if bound in UNSPECIFIED_HOSTS:
        return host in LOOPBACK_HOSTS or host in (hostname.lower(), told)
    return host == bound or {host, bound} <= LOOPBACK_HOSTS


def advertise(
    bound: Iterable[Listener], advertised: Mapping[str, Listener], default_host: str
) -> tuple[Listener, ...]:
    """The addresses for clients. `bound` has the real ports; an unspecified host becomes `default_host`."""
    endpoints = []
    for listener in bound:
        told = advertised.get(listener.name, listener)
        host = default_host if told.host in UNSPECIFIED_HOSTS else told.host
        endpoints.append(listener._replace(host=host, port=told.port or listener.port))
    return tuple(endpoints)
