"""Read TLS and SASL from the settings: of each listener, and of the connections that this node makes.

A setting is looked up for the listener first (`listener.name.<listener>.<key>`, for a mechanism
`listener.name.<listener>.<mechanism>.<key>`), then for all. What would leave a listener weaker than it looks is refused
here, with a sentence: a broker that starts does what its settings say.

Controllers know each other by their certificates, or by PLAIN. With SCRAM, a vote would need credentials that are in
the metadata log, which is readable only after an election.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from odradek.config.definition import ConfigError
from odradek.config.listeners import SecurityProtocol
from odradek.security import bearer, jaas, plain
from odradek.security.ciphers import BadCiphers, openssl_ciphers
from odradek.security.credentials import SCRAM_MECHANISMS
from odradek.security.jaas import JaasError, LoginModule
from odradek.security.key_sets import BadKeySource, KeySource, parse_source
from odradek.security.principals import BadRules, PrincipalRules
from odradek.security.stores import BadStore, Store, store_kind
from odradek.security.tls_settings import VERSIONS, TlsSettings
from odradek.security.tokens import TokenPolicy, has_library

if TYPE_CHECKING:
    from odradek.config.broker import BrokerConfig

ENABLED = "sasl.enabled.mechanisms"
JAAS = "sasl.jaas.config"
CLIENT_AUTH = "ssl.client.auth"
BETWEEN_BROKERS, TO_CONTROLLERS = (
    "sasl.mechanism.inter.broker.protocol",
    "sasl.mechanism.controller.protocol",
)
KEYS_URL, ALLOWED_URLS = (
    "sasl.oauthbearer.jwks.endpoint.url",
    "org.apache.kafka.sasl.oauthbearer.allowed.urls",
)
ISSUER, AUDIENCE = "sasl.oauthbearer.expected.issuer", "sasl.oauthbearer.expected.audience"
MODULES = {
    plain.MECHANISM: jaas.PLAIN,
    **dict.fromkeys(SCRAM_MECHANISMS, jaas.SCRAM),
    bearer.MECHANISM: jaas.OAUTHBEARER,
}


class Tokens(NamedTuple):
    """The rules by which bearer tokens are checked."""

    policy: TokenPolicy
    source: KeySource
    refresh_ms: int


class Mechanism(NamedTuple):
    """A mechanism that clients may use on a listener."""

    name: str
    passwords: dict[str, str]  # of PLAIN
    max_reauth_ms: int
    tokens: Tokens | None = None

    def __repr__(self) -> str:
        return f"Mechanism({self.name}, [hidden])"


class ListenerSecurity(NamedTuple):
    """The means by which a listener learns who its clients are."""

    protocol: SecurityProtocol
    tls: TlsSettings | None
    rules: PrincipalRules
    mechanisms: tuple[Mechanism, ...]  # none: no SASL
    max_receive_size: int = 0  # of frames before authentication


class LinkSecurity(NamedTuple):
    """The means by which this node connects to others."""

    protocol: SecurityProtocol
    tls: TlsSettings | None
    mechanism: str = ""  # empty: no SASL
    username: str = ""
    password: str = ""

    def __repr__(self) -> str:
        return f"LinkSecurity({self.protocol.name}, {self.mechanism}, [hidden])"


# --- listeners ---


def listener_security(config: "BrokerConfig", name: str, protocol: SecurityProtocol) -> ListenerSecurity:
    """Raises ConfigError."""
    is_controllers = name in config.controller_listener_names
    tls = _tls(config, name, is_server=True) if protocol.uses_tls else None
    mechanisms = tuple(_mechanisms(config, name, is_controllers)) if protocol.uses_sasl else ()
    if (
        is_controllers
        and protocol is SecurityProtocol.SSL
        and tls
        and tls.client_authentication != "required"
    ):
        raise ConfigError(
            _key(name, CLIENT_AUTH),
            tls.client_authentication,
            "anybody could vote: the certificates of controllers and brokers must be required on a controller's "
            "listener",
        )
    max_receive_size: int = config.for_listener(name, "sasl.server.max.receive.size")
    return ListenerSecurity(protocol, tls, _rules(config, name), mechanisms, max_receive_size)


def _mechanisms(config: "BrokerConfig", listener: str, is_controllers: bool) -> Iterable[Mechanism]:
    names: tuple[str, ...] = config.for_listener(listener, ENABLED)
    if not names:
        raise ConfigError(
            _key(listener, ENABLED), "", f"listener {listener} uses SASL, and needs a mechanism"
        )
    for name in names:
        if name not in MODULES:
            known = ", ".join(MODULES)
            raise ConfigError(_key(listener, ENABLED), name, f"must be of {known}; Kerberos is not supported")
        if is_controllers and name != plain.MECHANISM:
            raise ConfigError(_key(listener, ENABLED), name, _only_plain(name))
        yield _mechanism(config, listener, name)


def _only_plain(mechanism: str) -> str:
    if mechanism in SCRAM_MECHANISMS:
        why = "a vote would need credentials that are only known after an election"
    else:
        why = "the quorum must not depend on another service"
    return (
        f"controllers authenticate with PLAIN, or with certificates (SSL and {CLIENT_AUTH}=required): {why}"
    )


def _mechanism(config: "BrokerConfig", listener: str, name: str) -> Mechanism:
    max_reauth_ms = _of_mechanism(config, listener, name, "connections.max.reauth.ms")
    if name == bearer.MECHANISM:
        return Mechanism(name, {}, max_reauth_ms, _tokens(config, listener))
    if name != plain.MECHANISM:
        return Mechanism(name, {}, max_reauth_ms)
    passwords = _module(config, listener, name).passwords
    if not passwords or not all(passwords.values()):
        raise ConfigError(
            _key(listener, JAAS, name),
            "[hidden]",
            'nobody could log in: name users and their passwords in it, as user_ada="…"',
        )
    return Mechanism(name, passwords, max_reauth_ms)


def _tokens(config: "BrokerConfig", listener: str) -> Tokens:
    if not has_library():
        raise ConfigError(
            _key(listener, ENABLED),
            bearer.MECHANISM,
            "it needs PyJWT: install with pip install '.[security]' in a clone of Odradek",
        )

    def needed(key: str) -> str:
        value = _of_mechanism(config, listener, bearer.MECHANISM, key)
        if not value:
            raise ConfigError(_key(listener, key), "", "OAUTHBEARER is not safe without it")
        return ",".join(value) if isinstance(value, tuple) else str(value)

    def get(key: str) -> int | str:
        value: int | str = _of_mechanism(config, listener, bearer.MECHANISM, key)
        return value

    url = needed(KEYS_URL)
    try:
        source = parse_source(url, config[ALLOWED_URLS])
    except BadKeySource as error:
        raise ConfigError(_key(listener, KEYS_URL), url, str(error)) from None
    policy = TokenPolicy(
        needed(ISSUER),
        tuple(needed(AUDIENCE).split(",")),
        int(get("sasl.oauthbearer.clock.skew.seconds")),
        str(get("sasl.oauthbearer.sub.claim.name")),
    )
    return Tokens(policy, source, int(get("sasl.oauthbearer.jwks.endpoint.refresh.ms")))


# --- connections of our own ---


def link_security(config: "BrokerConfig", listener: str, protocol: SecurityProtocol) -> LinkSecurity:
    """Return the means to connect to the listener of that name on another node. Raises ConfigError."""
    is_controllers = listener in config.controller_listener_names
    tls = _tls(config, listener, is_server=False) if protocol.uses_tls else None
    if not protocol.uses_sasl:
        return LinkSecurity(protocol, tls)
    key = TO_CONTROLLERS if is_controllers else BETWEEN_BROKERS
    mechanism = str(config[key])
    if is_controllers and mechanism != plain.MECHANISM:
        raise ConfigError(key, mechanism, _only_plain(mechanism))
    _check_enabled(config, listener, key, mechanism)
    if mechanism not in MODULES or mechanism == bearer.MECHANISM:
        allowed = ", ".join([plain.MECHANISM, *SCRAM_MECHANISMS])
        raise ConfigError(key, mechanism, f"nodes log in to each other with {allowed}")
    options = _module(config, listener, mechanism).options
    for option in ("username", "password"):
        if not options.get(option):
            raise ConfigError(
                _key(listener, JAAS, mechanism),
                "[hidden]",
                f"this node logs in to others with it: no {option}",
            )
    return LinkSecurity(protocol, tls, mechanism, options["username"], options["password"])


def _check_enabled(config: "BrokerConfig", listener: str, key: str, mechanism: str) -> None:
    """Nodes have the same settings: what this one does not let in, others will not either."""
    is_own = any(item.name == listener for item in config.listeners)
    enabled: tuple[str, ...] = config.for_listener(listener, ENABLED)
    if is_own and mechanism not in enabled:
        raise ConfigError(key, mechanism, f"{ENABLED} of listener {listener} does not have it")


# --- parts ---


def _tls(config: "BrokerConfig", listener: str, is_server: bool) -> TlsSettings:
    def get(key: str) -> str | None:
        value: str | None = config.for_listener(listener, key)
        return value

    oldest, newest = _versions(config, listener)
    algorithm = get("ssl.endpoint.identification.algorithm") or ""
    if algorithm not in ("https", ""):
        raise ConfigError("ssl.endpoint.identification.algorithm", algorithm, "must be https, or empty")
    settings = TlsSettings(
        trust=_store(config, listener, "ssl.truststore", "certificates"),
        identity=_store(config, listener, "ssl.keystore", "certificate.chain"),
        check_hostname=algorithm == "https",
        oldest_version=oldest,
        newest_version=newest,
        ciphers=_ciphers(config, listener, oldest, newest),
        client_authentication=_client_authentication(config, listener) if is_server else "none",
    )
    if is_server and settings.identity is None:
        raise ConfigError(
            _key(listener, "ssl.keystore.location"),
            "",
            f"listener {listener} uses TLS, and needs a certificate",
        )
    if settings.trust is None and (settings.client_authentication != "none" or not is_server):
        raise ConfigError(
            _key(listener, "ssl.truststore.location"),
            "",
            "needed to know whose certificates are trusted; without it, anybody could buy one",
        )
    return settings


def _client_authentication(config: "BrokerConfig", listener: str) -> str:
    """Decide what `ssl.client.auth` means for a listener. As in Kafka, without a prefix it is for SSL alone: clients of
    SASL_SSL log in otherwise, and show certificates only where the listener's own setting asks for it."""
    own = config.own_of_listener(listener, CLIENT_AUTH)
    is_sasl = config.protocol_of(listener).uses_sasl
    return str(own or ("none" if is_sasl else config[CLIENT_AUTH]) or "none")


def _store(config: "BrokerConfig", listener: str, prefix: str, certificates: str) -> Store | None:
    def get(key: str) -> str | None:
        value: str | None = config.for_listener(listener, key)
        return value

    location, text = get(f"{prefix}.location"), get(f"{prefix}.{certificates}")
    if not location and not text:
        return None
    try:
        kind = store_kind(get(f"{prefix}.type"), location, bool(text))
    except BadStore as error:
        raise ConfigError(_key(listener, f"{prefix}.type"), get(f"{prefix}.type"), str(error)) from None
    key = get("ssl.keystore.key") if prefix == "ssl.keystore" else None
    return Store(kind, location, get(f"{prefix}.password"), text, key, get("ssl.key.password"))


def _versions(config: "BrokerConfig", listener: str) -> tuple[str, str]:
    key = "ssl.enabled.protocols"
    given = config.for_listener(listener, key)
    if not given or not set(given) <= set(VERSIONS):
        raise ConfigError(_key(listener, key), ",".join(given), "must be TLSv1.2, TLSv1.3 or both")
    return min(given), max(given)


def _ciphers(config: "BrokerConfig", listener: str, oldest: str, newest: str) -> tuple[str, ...]:
    key = "ssl.cipher.suites"
    given: tuple[str, ...] = config.for_listener(listener, key)
    try:
        if given:
            openssl_ciphers(given, oldest, newest)
    except BadCiphers as error:
        raise ConfigError(_key(listener, key), ",".join(given), str(error)) from None
    return given


def _rules(config: "BrokerConfig", listener: str) -> PrincipalRules:
    key = "ssl.principal.mapping.rules"
    text = config.for_listener(listener, key)
    try:
        return PrincipalRules(text)
    except BadRules as error:
        raise ConfigError(_key(listener, key), text, str(error)) from None


def _module(config: "BrokerConfig", listener: str, mechanism: str) -> LoginModule:
    key = _key(listener, JAAS, mechanism)
    text = _of_mechanism(config, listener, mechanism, JAAS)
    if not text:
        raise ConfigError(key, "", f"{mechanism} needs a login module, {MODULES[mechanism]}")
    try:
        module = jaas.parse_jaas(text)
    except JaasError as error:
        raise ConfigError(key, "[hidden]", str(error)) from None
    if module.name != MODULES[mechanism]:
        raise ConfigError(key, "[hidden]", f"the login module of {mechanism} is {MODULES[mechanism]}")
    return module


def _of_mechanism(config: "BrokerConfig", listener: str, mechanism: str, key: str) -> Any:
    """The value for a mechanism of a listener, else for the listener, else for all."""
    value = config.for_listener(listener, f"{mechanism.lower()}.{key}")
    return value if value is not None else config.for_listener(listener, key)


def _key(listener: str, key: str, mechanism: str = "") -> str:
    """The name under which a listener has a setting of its own."""
    middle = f"{mechanism.lower()}." if mechanism else ""
    return f"listener.name.{listener.lower()}.{middle}{key}"
