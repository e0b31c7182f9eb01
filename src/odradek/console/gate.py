"""The checks that every request passes before it is routed, in this order:

1. It names a host that this console is reached by: a page that made its own name point here (DNS rebinding) does not.
2. It is not sent by another site's page, unless somebody followed a link (`Sec-Fetch-Site`, `Origin`).
3. Its body is not larger than a form can be.
4. It belongs to a session; where a login is needed, to that of somebody who has logged in.
5. If it changes something, it carries the session's token.

Roles are checked where routes are made (`registry`): no route is made without. Every response says what the browser may
do with it.
"""

from typing import Any
from urllib.parse import quote, urlsplit

from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from odradek.console.sessions import Session, Sessions
from odradek.console.settings import ConsoleSettings

MAX_BODY_BYTES = 2 * 1024 * 1024
MAX_LOGIN_BYTES = 16 * 1024  # of those who have not logged in
TOO_LARGE = f"the request is larger than {MAX_BODY_BYTES} bytes"
SAFE_METHODS = ("GET", "HEAD")
PUBLIC = ("/login", "/static/", "/favicon.ico")
COOKIE = "odradek_session"
TOKEN_HEADER = "x-csrf-token"
POLICY = (
    "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class TooLarge(Exception):
    """413"""


class Gate:
    def __init__(self, app: ASGIApp, settings: ConsoleSettings, sessions: Sessions) -> None:
        self._app = app
        self._hosts = settings.hosts
        self._scheme = "https" if settings.has_tls else "http"
        self._has_tls = settings.has_tls
        self._sessions = sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        outgoing = _Outgoing(send)
        refusal = self._pass(HTTPConnection(scope), scope, outgoing)
        if refusal is not None:
            await refusal(scope, receive, outgoing)
            return
        is_known = scope["session"] is not None and scope["session"].user is not None
        bounded = _Bounded(receive, MAX_BODY_BYTES if is_known else MAX_LOGIN_BYTES)
        try:
            await self._app(scope, bounded, outgoing)
        except TooLarge:
            if not outgoing.has_started:
                await too_large()(scope, receive, outgoing)

    def _pass(self, request: HTTPConnection, scope: Scope, outgoing: "_Outgoing") -> Response | None:
        """None, with the session in the scope; or why the request goes no further."""
        refusal = self._foreign(request) or self._oversized(request)
        if refusal is not None:
            return refusal
        name = cookie_name(scope, self._has_tls)
        cookie = request.cookies.get(name)
        session = self._sessions.find(cookie)
        is_safe, path = scope["method"] in SAFE_METHODS, scope["path"]
        if session is None and is_safe and not path.startswith("/static/"):
            cookie, session = self._sessions.begin()
            outgoing.set_cookie(self._cookie_header(name, cookie))
        scope["session"], scope["session_cookie"] = session, cookie
        if path.startswith(PUBLIC) and is_safe:
            return None
        if (session is None or session.user is None) and path != "/login":
            return self._ask_for_login(scope)
        return None if is_safe else self._unproven(request, session)

    def _cookie_header(self, name: str, value: str) -> str:
        secure = "; Secure" if self._has_tls else ""
        return f"{name}={value}; Path=/; HttpOnly; SameSite=Lax{secure}"

    def _foreign(self, request: HTTPConnection) -> Response | None:
        hosts = request.headers.getlist("host")
        if len(hosts) != 1 or host_name(hosts[0]) not in self._hosts:
            return refused("this console is not reached by that host name (see --allow-host)", 421)
        origin = request.headers.get("origin")
        if origin is not None and origin != f"{self._scheme}://{hosts[0]}":
            return refused("this request comes from another site", 403)
        site = request.headers.get("sec-fetch-site", "none")
        is_link = request.headers.get("sec-fetch-mode") == "navigate" and request.scope["method"] == "GET"
        if site not in ("same-origin", "none") and not is_link:
            return refused("this request comes from another site", 403)
        return None

    def _oversized(self, request: HTTPConnection) -> Response | None:
        length = request.headers.get("content-length", "0")
        return None if length.isdecimal() and int(length) <= MAX_BODY_BYTES else too_large()

    def _ask_for_login(self, scope: Scope) -> Response:
        if scope["path"].startswith("/api") or scope["path"] == "/events" or scope["method"] != "GET":
            return JSONResponse({"error": "log in first"}, 401)
        query = scope["query_string"].decode("latin-1")
        wanted = scope["path"] + (f"?{query}" if query else "")
        return RedirectResponse(f"/login?next={quote(wanted, safe='')}", 303)

    def _unproven(self, request: HTTPConnection, session: Session | None) -> Response | None:
        if session is None or not session.accepts(request.headers.get(TOKEN_HEADER, "")):
            return refused("the token of this page is missing or old: reload the page and try again", 403)
        return None


def cookie_name(scope: Scope, has_tls: bool) -> str:
    """It names the port: browsers send cookies of one port to all of a host, and people run several consoles."""
    name = f"{COOKIE}_{scope['server'][1]}"
    return f"__Host-{name}" if has_tls else name


def host_name(host: str) -> str:
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def refused(reason: str, status: int) -> Response:
    return PlainTextResponse(f"{reason}\n", status)


def too_large() -> Response:
    return JSONResponse({"error": TOO_LARGE}, 413)


class _Bounded:
    """Receives a body up to the limit, whatever its headers say."""

    def __init__(self, receive: Receive, most: int) -> None:
        self._receive, self._most = receive, most
        self._received = 0

    async def __call__(self) -> Message:
        message = await self._receive()
        self._received += len(message.get("body", b""))
        if self._received > self._most:
            raise TooLarge
        return message


class _Outgoing:
    """Adds headers to the response."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._cookie: str | None = None
        self.has_started = False

    def set_cookie(self, header: str) -> None:
        self._cookie = header

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_started = True
            headers: list[Any] = list(message.get("headers", []))
            there = {name.lower() for name, _ in headers}
            added = dict(HEADERS)
            if b"cache-control" not in there:
                added["cache-control"] = "no-store"
            headers += [(name.encode(), value.encode()) for name, value in added.items()]
            if self._cookie is not None and b"set-cookie" not in there:
                headers.append((b"set-cookie", self._cookie.encode()))
            message["headers"] = headers
        await self._send(message)
