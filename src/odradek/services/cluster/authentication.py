"""The listeners' knowledge of who connects to this node, from its settings and from the metadata.

Passwords of PLAIN are in the settings, SCRAM's credentials in the metadata: a change is in force for the next login.
Certificates and the keys of bearer tokens are read again when they change, in a thread; what cannot be read then leaves
the old ones in use, and a line in the log. At start it stops the node.
"""

import asyncio
import base64
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from odradek.config.broker import BrokerConfig
from odradek.config.definition import ConfigError
from odradek.config.listeners import Listener, SecurityProtocol
from odradek.config.security import ListenerSecurity, Mechanism, Tokens, listener_security
from odradek.host.interface import Host
from odradek.metadata.image import DECOYS, MetadataImage, ScramUser
from odradek.model import Caller
from odradek.security import bearer, plain, tokens
from odradek.security.bearer import BearerExchange, Token
from odradek.security.contexts import ContextSource, server_context
from odradek.security.credentials import SCRAM_MECHANISMS, ScramCredential, ScramMechanism
from odradek.security.decoys import Form, decoy, usual_form
from odradek.security.exchange import NewExchange
from odradek.security.key_sets import BadKeySource, KeySet
from odradek.security.login import Terms
from odradek.security.names import BadCertificate
from odradek.security.plain import PlainExchange
from odradek.security.principals import NoRuleMatches
from odradek.security.scram_server import ScramExchange
from odradek.security.stores import BadStore
from odradek.serving import audit
from odradek.serving.session import Sasl, Session

log = logging.getLogger(__name__)

NONCE_BYTES = 24
LOOK_SECONDS = 5.0  # how often files of certificates are looked at
MIN_KEY_REFRESH_MS = 10_000  # for a key that is not known, at most this often

RandomBytes = Callable[[int], bytes]


class _Door(NamedTuple):
    """A listener's way of letting clients in."""

    security: ListenerSecurity
    sasl: Sasl | None
    contexts: ContextSource | None


class Authentication:
    def __init__(
        self,
        config: BrokerConfig,
        host: Host,
        image: Callable[[], MetadataImage],
        random_bytes: RandomBytes,
    ) -> None:
        """Raises ConfigError. `random_bytes` must not be predictable."""
        self._host = host
        self._scram = ScramCredentials(image)
        self._random_bytes = random_bytes
        self._keys: list[TokenKeys] = []
        self._is_told = asyncio.Event()  # that settings have changed
        self._doors = {item.name: self._open_door(config, item) for item in config.listeners}

    def _open_door(self, config: BrokerConfig, listener: Listener) -> _Door:
        security = listener_security(config, listener.name, listener.protocol)
        contexts = None
        if security.tls is not None:
            try:
                contexts = ContextSource(security.tls, server_context)
            except BadStore as error:
                raise ConfigError("listeners", listener.name, str(error)) from None
        if not security.mechanisms:
            return _Door(security, None, contexts)
        terms = Terms(
            {item.name: self._new_exchange(item) for item in security.mechanisms},
            {item.name: item.max_reauth_ms for item in security.mechanisms},
        )
        sasl = Sasl(
            terms,
            self._host.now_ms,
            self._host.steady_ms,
            config["connection.failed.authentication.delay.ms"],
            security.max_receive_size,
        )
        return _Door(security, sasl, contexts)

    def _new_exchange(self, mechanism: Mechanism) -> NewExchange:
        if mechanism.name == plain.MECHANISM:
            return lambda: PlainExchange(mechanism.passwords)
        if mechanism.name == bearer.MECHANISM:
            assert mechanism.tokens is not None
            keys = TokenKeys(mechanism.tokens, self._host)
            self._keys.append(keys)
            return lambda: BearerExchange(keys.validate)
        scram = SCRAM_MECHANISMS[mechanism.name]
        return lambda: ScramExchange(scram, lambda user: self._scram.find(scram, user), self._nonce())

    def _nonce(self) -> str:
        return base64.b64encode(self._random_bytes(NONCE_BYTES)).decode()

    # --- connections ---

    def new_session(self, caller: Caller, certificate: bytes | None = None) -> Session:
        """The session of a client that connects. Raises ConnectionRefusedError if its certificate names nobody."""
        door = self._doors.get(caller.listener)
        if door is None:
            return Session(caller)
        if door.security.protocol is SecurityProtocol.SSL:
            try:
                principal = door.security.rules.principal_of_certificate(certificate)
            except (BadCertificate, NoRuleMatches) as error:
                audit.login_failed(caller, str(error))
                raise ConnectionRefusedError(str(error)) from None
            caller = caller._replace(principal=principal)
        return Session(caller, door.sasl)

    def contexts(self, listener: str) -> ContextSource | None:
        door = self._doors.get(listener)
        return None if door is None else door.contexts

    def reconfigure(self, config: BrokerConfig) -> None:
        """Read certificates from where the settings say now, at once."""
        for name, door in self._doors.items():
            if door.contexts is not None:
                try:
                    tls = listener_security(config, name, door.security.protocol).tls
                except ConfigError as error:
                    _log_kept(name, error)
                    continue
                assert tls is not None
                door.contexts.look_at(tls)
        self._is_told.set()

    # --- life ---

    async def start(self) -> None:
        """Raises ConfigError if there is no key for bearer tokens."""
        for keys in self._keys:
            await keys.read_first()

    async def run(self) -> None:
        """Look for changes until cancelled."""
        sources = {name: door.contexts for name, door in self._doors.items() if door.contexts is not None}
        while sources or self._keys:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._is_told.wait()
            self._is_told.clear()
            await self._refresh_contexts(sources)
            for keys in self._keys:
                await keys.maybe_refresh()

    async def _refresh_contexts(self, sources: Mapping[str, ContextSource]) -> None:
        for name, source in sources.items():
            try:
                if await self._host.in_thread(source.refresh):
                    log.info("listener %s uses new certificates for new connections", name)
            except BadStore as error:
                _log_kept(name, error)


def _log_kept(listener: str, error: Exception) -> None:
    log.error("listener %s keeps its certificates, because the new ones cannot be used: %s", listener, error)


class ScramCredentials:
    """The SCRAM credentials of users, and what unknown users seem to have."""

    def __init__(self, image: Callable[[], MetadataImage]) -> None:
        self._image = image
        self._forms: dict[str, Form] = {}
        self._forms_of: object = None  # the credentials that `_forms` is about

    def find(self, mechanism: ScramMechanism, user: str) -> tuple[ScramCredential | None, ScramCredential]:
        image = self._image()
        secret = image.credentials.get(DECOYS)
        key = image.cluster_id.encode() if secret is None else secret.stored_key
        wanted = ScramUser(mechanism.code, user)
        found = image.credentials.get(wanted) if wanted != DECOYS else None
        return found, decoy(key, mechanism, user, self._form(mechanism, image))

    def _form(self, mechanism: ScramMechanism, image: MetadataImage) -> Form:
        if self._forms_of is not image.credentials:
            self._forms, self._forms_of = {}, image.credentials
        form = self._forms.get(mechanism.name)
        if form is None:
            form = self._forms[mechanism.name] = usual_form(_of_users(mechanism, image))
        return form


def _of_users(mechanism: ScramMechanism, image: MetadataImage) -> Iterable[ScramCredential]:
    return (
        credential
        for user, credential in image.credentials.items()
        if user.mechanism == mechanism.code and user != DECOYS
    )


class TokenKeys:
    """The keys of bearer tokens, read again from time to time, and when a token names one that is not known."""

    def __init__(self, settings: Tokens, host: Host) -> None:
        self._settings = settings
        self._host = host
        self._keys = KeySet({})
        self._read_ms = 0
        self._is_wanted = False

    async def read_first(self) -> None:
        try:
            await self._read()
        except BadKeySource as error:
            raise ConfigError("sasl.oauthbearer.jwks.endpoint.url", "", str(error)) from None

    async def _read(self) -> None:
        self._is_wanted, self._read_ms = False, self._host.steady_ms()
        self._keys = await self._host.in_thread(self._settings.source.read)

    async def maybe_refresh(self) -> None:
        age_ms = self._host.steady_ms() - self._read_ms
        if age_ms < (MIN_KEY_REFRESH_MS if self._is_wanted else self._settings.refresh_ms):
            return
        try:
            await self._read()
        except BadKeySource as error:
            log.error(
                "the keys of bearer tokens stay as they are, because new ones cannot be read: %s", error
            )

    def validate(self, text: str) -> Token:
        """Raises InvalidToken."""
        try:
            return tokens.validate(text, self._keys, self._settings.policy, self._host.now_ms())
        except bearer.UnknownKey:
            self._is_wanted = True
            raise
