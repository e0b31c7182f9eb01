"""The application: pages, their JSON, the event stream, the login, and the gate before all of them."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import (
    FileResponse,
    HTMLResponse,
    JSONResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route

from odradek.console.clusters import Console
from odradek.console.gate import Gate, cookie_name
from odradek.console.openapi import describe
from odradek.console.pages import ACTIONS, PAGES
from odradek.console.registry import Routes
from odradek.console.rendering import HERE, Renderer, static_version
from odradek.console.settings import ConsoleSettings

STATIC_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
FOR_A_YEAR = "public, max-age=31536000, immutable"


def build_app(settings: ConsoleSettings) -> Starlette:
    settings.check()
    console = Console(settings)
    renderer = Renderer(console, PAGES)
    site = Site(console, renderer)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        console.start()
        try:
            yield
        finally:
            await run_in_threadpool(console.stop)

    app = Starlette(
        routes=[*site.routes(), *Routes(console, renderer, PAGES, ACTIONS)],
        middleware=[Middleware(Gate, settings=settings, sessions=console.sessions)],
        exception_handlers={404: site.missing},
        lifespan=lifespan,
    )
    app.state.console = console
    return app


def is_ours(address: str) -> bool:
    """True for a path of this console. Browsers take a backslash for a slash, and leave out tabs and line ends, so that
    these would lead to another site."""
    return bool(address.isprintable() and re.match(r"/(?![/\\])", address) and "\\" not in address)


class Site:
    """The routes that do not belong to a cluster."""

    def __init__(self, console: Console, renderer: Renderer) -> None:
        self._console, self._renderer = console, renderer
        self._static = {
            path.name: path for path in (HERE / "static").iterdir() if path.suffix in STATIC_TYPES
        }

    def routes(self) -> list[Route]:
        return [
            Route("/", self.first),
            Route("/static/{version}/{name}", self.static),
            Route("/favicon.ico", self.favicon),
            Route("/events", self.events),
            Route("/login", self.login_page, methods=["GET"]),
            Route("/login", self.log_in, methods=["POST"]),
            Route("/logout", self.log_out, methods=["POST"]),
            Route("/api", self.openapi),
            Route("/api/session", self.session),
            Route("/api/clusters", self.clusters),
        ]

    async def first(self, request: Request) -> Response:
        return RedirectResponse(f"/c/{quote(next(iter(self._console.clusters)), safe='')}", 303)

    async def static(self, request: Request) -> Response:
        path = self._static.get(request.path_params["name"])
        if path is None:
            return Response(status_code=404)
        is_ours = request.path_params["version"] == static_version()
        headers = {"cache-control": FOR_A_YEAR if is_ours else "no-cache"}
        return FileResponse(path, media_type=STATIC_TYPES[path.suffix], headers=headers)

    async def favicon(self, request: Request) -> Response:
        return FileResponse(self._static["icon.svg"], media_type="image/svg+xml")

    async def events(self, request: Request) -> Response:
        if self._console.hub.is_full:
            return JSONResponse({"error": "too many streams are open"}, 503)
        return StreamingResponse(self._console.hub.lines(), media_type="text/event-stream")

    async def openapi(self, request: Request) -> Response:
        return JSONResponse(describe(PAGES, ACTIONS))

    async def session(self, request: Request) -> Response:
        session = request.scope["session"]
        return JSONResponse({"user": session.user, "role": str(session.role), "token": session.token})

    async def clusters(self, request: Request) -> Response:
        return JSONResponse([{"cluster": name} for name in self._console.clusters])

    async def missing(self, request: Request, error: Exception) -> Response:
        if request.url.path.startswith("/api"):
            return JSONResponse({"error": "there is nothing here"}, 404)
        return HTMLResponse(self._renderer.failure(request, None, None, "there is no such page"), 404)

    # Logins

    async def login_page(self, request: Request) -> Response:
        session = request.scope["session"]
        if session.user is not None:
            return RedirectResponse("/", 303)
        wanted = request.query_params.get("next", "/")
        html = self._renderer.plain(
            "login.html", session=session, wanted=wanted if is_ours(wanted) else "/", title="Log in"
        )
        return HTMLResponse(html)

    async def log_in(self, request: Request) -> Response:
        sessions = self._console.sessions
        try:
            given = await request.json()
            name, password = str(given["user"])[:200], str(given["password"])[:1000]
        except (ValueError, KeyError, TypeError, RecursionError):
            return JSONResponse({"error": "user and password are missing"}, 400)
        address = request.client.host if request.client else ""
        if not sessions.may_try(name, address):
            return JSONResponse({"error": "too many failed logins: try again in a few minutes"}, 429)
        found = await run_in_threadpool(sessions.log_in, name, password, address)
        await run_in_threadpool(
            self._console.audit.note, name, address, "-", "log in", "", "done" if found else "refused"
        )
        if found is None:
            return JSONResponse({"error": "wrong user or password"}, 403)
        sessions.end(request.scope["session_cookie"])
        has_tls = self._console.settings.has_tls
        response = JSONResponse({"done": True})
        name = cookie_name(request.scope, has_tls)
        response.set_cookie(name, found[0], httponly=True, samesite="lax", secure=has_tls)
        return response

    async def log_out(self, request: Request) -> Response:
        self._console.sessions.end(request.scope["session_cookie"])
        return JSONResponse({"done": True})
