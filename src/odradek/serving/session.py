"""The client of a conversation, and which APIs it may call now.

On a listener without authentication every client is `ANONYMOUS` and may call every API. If a client has to
authenticate, its session starts with the few APIs for that, and allows all of them after `authenticated`. A client that
authenticates again keeps its principal, and is not cut off meanwhile (KIP-368).
"""

from collections.abc import Callable

from odradek.apis.table import APIS
from odradek.errors import ProtocolError
from odradek.model import Caller, Principal
from odradek.serving.authorizer import Remembered

AUTHENTICATION_APIS = frozenset(api.key for api in APIS.values() if api.before_authentication)


class Session:
    __slots__ = ("_when_open", "admitted", "caller", "remembered")

    def __init__(self, caller: Caller, admitted: frozenset[int] | None = None) -> None:
        self.caller = caller  # of its last request
        self.admitted = admitted  # api keys; None: all of them
        self.remembered: Remembered | None = None  # what the caller may do, as far as it was asked
        self._when_open: Callable[[], None] | None = None

    @property
    def is_open(self) -> bool:
        return self.admitted is None

    def when_open(self, callback: Callable[[], None]) -> None:
        """It is called once the caller has authenticated."""
        self._when_open = callback

    def authenticated(self, principal: Principal) -> None:
        """From the next request on every API passes, and requests carry this principal."""
        before = self.caller.principal
        if self.is_open and before != principal:
            raise ProtocolError(f"{before} cannot become {principal} on the same connection")
        self.caller = self.caller._replace(principal=principal)
        self.admitted = None
        callback, self._when_open = self._when_open, None
        if callback is not None:
            callback()


NewSession = Callable[[Caller], Session]


def open_session(caller: Caller) -> Session:
    """The session of a client on a listener without authentication."""
    return Session(caller)
