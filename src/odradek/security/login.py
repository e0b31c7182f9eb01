"""The SASL states of one connection: handshake, messages of the mechanism, open, and the same again before it expires.

    HANDSHAKE --handshake--> MESSAGES --proven--> OPEN --handshake--> MESSAGES …

Which requests are legal follows from the state alone, so it is decided before a body is parsed. A client of
SaslHandshake version 0 sends the mechanism's messages without a header (RAW). A failure is final: its response leaves
after a delay, and then the connection is closed.

Re-authentication (KIP-368). A session has an end if `connections.max.reauth.ms` is set or the credential expires. Until
then the client may log in again, with the same mechanism and as the same user; earlier requests keep their responses.
After the end, the first request that is not a new handshake closes the connection. As in Kafka, a client that begins
again within a second is refused, and so is one whose session has no end.

Pure: `wall_ms` is the time of day, as in tokens; `steady_ms` never jumps, and decides when a session ends.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from odradek.errors import ErrorCode
from odradek.model import Principal
from odradek.security.exchange import Exchange, NewExchange, Proven, Refused
from odradek.wire.messages.index import SCHEMAS

USER = "User"
_KEYS = {schema.name: schema.key for schema in SCHEMAS.values()}
API_VERSIONS = _KEYS["ApiVersions"]
SASL_HANDSHAKE = _KEYS["SaslHandshake"]
SASL_AUTHENTICATE = _KEYS["SaslAuthenticate"]
MIN_REAUTH_INTERVAL_MS = 1_000
FAILURE_DELAY_MS = 100


class State(StrEnum):
    HANDSHAKE = "handshake"  # the client has not said how it logs in
    MESSAGES = "messages"  # of the mechanism, in SaslAuthenticate
    RAW = "raw messages"  # of the mechanism, in frames without a header
    OPEN = "open"
    FAILED = "failed"


class Event(StrEnum):
    CHOOSE = "choose a mechanism"
    CHOOSE_RAW = "choose a mechanism, in version 0"
    PROVE = "prove who it is"
    FAIL = "fail"


MOVES: Mapping[State, Mapping[Event, State]] = {
    State.HANDSHAKE: {
        Event.CHOOSE: State.MESSAGES,
        Event.CHOOSE_RAW: State.RAW,
        Event.FAIL: State.FAILED,
    },
    State.MESSAGES: {Event.PROVE: State.OPEN, Event.FAIL: State.FAILED},
    State.RAW: {Event.PROVE: State.OPEN, Event.FAIL: State.FAILED},
    State.OPEN: {
        Event.CHOOSE: State.MESSAGES,
        Event.CHOOSE_RAW: State.RAW,
        Event.FAIL: State.FAILED,
    },
    State.FAILED: {},
}
ADMITTED = {
    State.HANDSHAKE: frozenset({API_VERSIONS, SASL_HANDSHAKE}),
    State.MESSAGES: frozenset({SASL_AUTHENTICATE}),
    State.RAW: frozenset[int](),
    State.OPEN: None,  # all of them
    State.FAILED: frozenset[int](),
}


class Terms(NamedTuple):
    """The terms on which clients log in on a listener."""

    mechanisms: Mapping[str, NewExchange]  # in the order in which they are offered
    max_reauth_ms: Mapping[str, int] = {}  # by mechanism; 0 or none: a session without an end


class Reply(NamedTuple):
    """The reply to the client. If `failure` is set, it is told so after a delay, and the connection is closed."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    token: bytes = b""
    lifetime_ms: int = 0  # of the session; 0: without an end, or not yet logged in
    failure: str = ""  # why, for our log


class Login:
    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self.state = State.HANDSHAKE
        self.principal: Principal | None = None  # of the last success
        self._mechanism = ""  # of the last handshake
        self._proven_mechanism = ""  # of the last success
        self._exchange: Exchange | None = None
        self._expires_ms: int | None = None  # when the session ends, by the steady clock
        self._last_reauth_ms: int | None = None

    @property
    def offered(self) -> list[str]:
        return list(self._terms.mechanisms)

    @property
    def mechanism(self) -> str:
        return self._mechanism

    def why_not(self, api_key: int, steady_ms: int) -> str:
        """Why a request of this API closes the connection; empty if it is served. Decided before its body is read."""
        admitted = ADMITTED[self.state]
        if admitted is not None and api_key not in admitted:
            before = (
                "the client has authenticated"
                if self.principal is None
                else "its re-authentication is complete"
            )
            return f"it is not served before {before}"
        if self._is_expired(steady_ms) and self.state is State.OPEN and api_key != SASL_HANDSHAKE:
            return "the session has expired, and the client did not authenticate again"
        return ""

    def _is_expired(self, steady_ms: int) -> bool:
        return self._expires_ms is not None and steady_ms >= self._expires_ms

    def _move(self, event: Event) -> None:
        self.state = MOVES[self.state][event]

    # --- the handshake ---

    def handshake(self, mechanism: str, version: int, steady_ms: int) -> Reply:
        if self.state is State.OPEN:
            if not self._may_begin_again(steady_ms):
                return Reply(ErrorCode.ILLEGAL_SASL_STATE)
            self._last_reauth_ms = steady_ms
        new_exchange = self._terms.mechanisms.get(mechanism)
        if new_exchange is None:
            self._move(Event.FAIL)
            return Reply(
                ErrorCode.UNSUPPORTED_SASL_MECHANISM, failure="it asks for a mechanism that is not enabled"
            )
        self._mechanism = mechanism
        self._exchange = new_exchange()
        self._move(Event.CHOOSE if version > 0 else Event.CHOOSE_RAW)
        return Reply()

    def _may_begin_again(self, steady_ms: int) -> bool:
        last = self._last_reauth_ms
        return self._expires_ms is not None and (last is None or steady_ms - last >= MIN_REAUTH_INTERVAL_MS)

    # --- messages ---

    def authenticate(self, message: bytes, wall_ms: int, steady_ms: int) -> Reply:
        if self.state is State.OPEN:
            return Reply(
                ErrorCode.ILLEGAL_SASL_STATE,
                "SaslAuthenticate request received after successful authentication",
            )
        assert self._exchange is not None
        try:
            self._check_mechanism()
            outcome = self._exchange.step(message)
            if not isinstance(outcome, Proven):
                return Reply(token=outcome)
            self._check_principal(Principal(USER, outcome.user))
        except Refused as error:
            self._move(Event.FAIL)
            return Reply(ErrorCode.SASL_AUTHENTICATION_FAILED, error.told or self._told(), failure=str(error))
        return self._open(outcome, wall_ms, steady_ms)

    def _open(self, proven: Proven, wall_ms: int, steady_ms: int) -> Reply:
        self.principal = Principal(USER, proven.user)
        self._proven_mechanism = self._mechanism
        self._exchange = None
        limits = [self._terms.max_reauth_ms.get(self._mechanism, 0) or None]
        if proven.expires_at_ms is not None:
            limits.append(max(0, proven.expires_at_ms - wall_ms))
        ends = [limit for limit in limits if limit is not None]
        self._expires_ms = steady_ms + min(ends) if ends else None
        self._move(Event.PROVE)
        return Reply(token=proven.last, lifetime_ms=min(ends, default=0))

    def _check_mechanism(self) -> None:
        if self.principal is not None and self._mechanism != self._proven_mechanism:
            told = (
                f"SASL mechanism '{self._mechanism}' requested by client is not supported for re-authentication of "
                f"mechanism '{self._proven_mechanism}'"
            )
            raise Refused("it changes the mechanism when it authenticates again", told)

    def _check_principal(self, principal: Principal) -> None:
        before = self.principal
        if before is not None and before != principal:
            raise Refused(
                "it changes its user when it authenticates again",
                f"Cannot change principals during re-authentication from {before.type}.{before.name}: "
                f"{principal.type}.{principal.name}",
            )

    def _told(self) -> str:
        again = "re-authentication" if self.principal is not None else "authentication"
        return f"Authentication failed during {again} due to invalid credentials with SASL mechanism {self._mechanism}"
