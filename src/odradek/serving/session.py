"""The client of a conversation, and which APIs it may call now.

On a listener without SASL every client may call every API, as `ANONYMOUS` or as the principal of its certificate. On
one with SASL a session has a login (`security.login`), which admits the few APIs for that until the client has
authenticated, and ends the session in time. A client that authenticates again keeps its principal (KIP-368).
"""

from collections.abc import Callable
from typing import NamedTuple

from odradek.apis.table import name_of
from odradek.errors import ProtocolError
from odradek.model import Caller
from odradek.security.login import FAILURE_DELAY_MS, Login, Reply, State, Terms
from odradek.serving.authorizer import Remembered

MAX_FRAME_SIZE = 64 * 1024


class Sasl(NamedTuple):
    """The way for the clients of a listener to log in."""

    terms: Terms
    wall_ms: Callable[[], int]
    steady_ms: Callable[[], int]
    failure_delay_ms: int = FAILURE_DELAY_MS
    max_frame_size: int = MAX_FRAME_SIZE  # until a client has authenticated, and while it does so again


class Session:
    __slots__ = ("_when_open", "caller", "login", "remembered", "sasl")

    def __init__(self, caller: Caller, sasl: Sasl | None = None) -> None:
        self.caller = caller  # of its last request
        self.sasl = sasl
        self.login = None if sasl is None else Login(sasl.terms)
        self.remembered: Remembered | None = None  # what the caller may do, as far as it was asked
        self._when_open: Callable[[], None] | None = None

    @property
    def is_open(self) -> bool:
        """True once the client has authenticated, or if it need not."""
        return self.login is None or self.login.principal is not None

    @property
    def is_raw(self) -> bool:
        """True while the next frame is a message of the mechanism, without a header."""
        return self.login is not None and self.login.state is State.RAW

    def when_open(self, callback: Callable[[], None]) -> None:
        """It is called once the caller has authenticated."""
        self._when_open = callback

    def check(self, api_key: int, version: int, size: int) -> None:
        """Raises ProtocolError for a request that is not admitted now."""
        if self.login is None or self.sasl is None:
            return
        reason = self.login.why_not(api_key, self.sasl.steady_ms())
        if reason:
            raise ProtocolError(f"{name_of(api_key, version)}: {reason}")
        if self.login.state is not State.OPEN:
            self.check_size(size)

    def check_size(self, size: int) -> None:
        """Raises ProtocolError for a large message of a login, also of one that is repeated: it is handled at once."""
        if self.sasl is not None and size > self.sasl.max_frame_size:
            raise ProtocolError(
                f"a message of its login has {size} bytes, when {self.sasl.max_frame_size} are allowed"
            )

    def handshake(self, mechanism: str, version: int) -> Reply:
        assert self.login is not None and self.sasl is not None
        return self.login.handshake(mechanism, version, self.sasl.steady_ms())

    def authenticate(self, message: bytes) -> Reply:
        """Authenticate the client. If this is a success, every API passes from the next request on, and requests
        carry the new principal.
        """
        assert self.login is not None and self.sasl is not None
        reply = self.login.authenticate(message, self.sasl.wall_ms(), self.sasl.steady_ms())
        if self.login.state is State.OPEN and self.login.principal is not None:
            self.caller = self.caller._replace(principal=self.login.principal)
            callback, self._when_open = self._when_open, None
            if callback is not None:
                callback()
        return reply


NewSession = Callable[[Caller, bytes | None], Session]


def open_session(caller: Caller, certificate: bytes | None = None) -> Session:
    """The session of a client on a listener without authentication."""
    return Session(caller)
