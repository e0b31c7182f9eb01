"""Sessions: a cookie says who looks, and a token that only our pages know must come with every change."""

import hmac
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from odradek.console.users import NOBODY, Attempts, Role, User, is_password

LIFETIME_S = 12 * 3600.0
MOST_SESSIONS = 1_000
HASHES_AT_ONCE = 2


@dataclass
class Session:
    user: str | None  # None: nobody has logged in yet
    role: Role
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    used_s: float = 0.0

    def accepts(self, token: str) -> bool:
        return hmac.compare_digest(self.token.encode(), token.encode())


class Sessions:
    """All sessions of a console. Without users everybody is `local`, who may do all that the console allows."""

    def __init__(
        self, users: dict[str, User] | None, read_only: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.users = users
        self.most = Role.VIEWER if read_only else Role.ADMIN
        self.attempts = Attempts(clock)
        self._clock = clock
        self._hashing = threading.BoundedSemaphore(HASHES_AT_ONCE)
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._visitors: OrderedDict[str, Session] = (
            OrderedDict()
        )  # who have not logged in, though they have to

    @property
    def need_login(self) -> bool:
        return self.users is not None

    def find(self, cookie: str | None) -> Session | None:
        for sessions in (self._sessions, self._visitors):
            session = sessions.get(cookie or "")
            if session is None or cookie is None:
                continue
            if self._clock() - session.used_s > LIFETIME_S:
                del sessions[cookie]
                return None
            session.used_s = self._clock()
            sessions.move_to_end(cookie)
            return session
        return None

    def begin(self) -> tuple[str, Session]:
        """A session of somebody who has just come."""
        return self._add(Session(None if self.need_login else "local", self.most))

    def may_try(self, name: str, address: str) -> bool:
        """False after too many failed logins; True counts as one of them until the login succeeds."""
        return self.attempts.begin(f"user {name}", f"address {address}")

    def log_in(self, name: str, password: str, address: str) -> tuple[str, Session] | None:
        """None if the password is wrong or there is no such user; nobody learns which. Takes a tenth of a second, and
        32 MB: few do it at a time."""
        user = (self.users or {}).get(name)
        with self._hashing:
            is_right = is_password(password, user.password if user else NOBODY)
        if user is None or not is_right:
            return None
        self.attempts.succeeded(f"user {name}", f"address {address}")
        return self._add(Session(name, min(user.role, self.most)))

    def end(self, cookie: str | None) -> None:
        self._sessions.pop(cookie or "", None)
        self._visitors.pop(cookie or "", None)

    def _add(self, session: Session) -> tuple[str, Session]:
        """Strangers, however many come, end no session of somebody who has logged in."""
        session.used_s = self._clock()
        sessions = self._visitors if session.user is None else self._sessions
        while len(sessions) >= MOST_SESSIONS:
            sessions.popitem(last=False)
        cookie = secrets.token_urlsafe(32)
        sessions[cookie] = session
        return cookie, session
