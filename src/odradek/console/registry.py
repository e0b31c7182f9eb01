"""Pages and actions, and the routes made from them. No route is made without a role."""

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from odradek.admin.failures import AdminError, BadRequest, NoContact, Refused
from odradek.console.clusters import Console
from odradek.console.gate import TOO_LARGE, TooLarge
from odradek.console.rendering import Renderer, jsonable
from odradek.console.requests import Ask, NotFound, Nothing, parse
from odradek.console.users import Role
from odradek.errors import ErrorCode
from odradek.wording import one_line

FRAGMENT_HEADER = "x-fragment"
MISSING = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.GROUP_ID_NOT_FOUND)

log = logging.getLogger("odradek.console")


@dataclass(frozen=True)
class Page:
    """Served at `/c/<cluster>/<path>`, and as JSON at `/api/clusters/<cluster>/<path>`."""

    path: str
    title: str  # may have the names of the path in braces
    view: Callable[[Ask], Any]  # returns a dataclass, or a Response
    template: str
    summary: str
    query: type = Nothing
    nav: str | None = None  # the noun in the navigation
    live_template: str | None = None  # what refreshes
    parts: tuple[str, ...] = ()  # of the watch: when they change, the page refreshes
    script: str | None = None
    role: Role = Role.VIEWER
    needs: str | None = None  # a name of `admin.capabilities`: shown only where the cluster serves it
    in_api: bool = True


@dataclass(frozen=True)
class Action:
    """Served at `/api/clusters/<cluster>/<path>`."""

    method: str
    path: str
    summary: str
    run: Callable[[Ask], Any]
    role: Role
    body: type = Nothing
    query: type = Nothing
    is_audited: bool = True
    target: Callable[[Ask], str] = lambda ask: " ".join(ask.path.values())
    refreshes: tuple[str, ...] = ()  # parts that the poller looks at again, at once


class Routes:
    def __init__(
        self, console: Console, renderer: Renderer, pages: list[Page], actions: list[Action]
    ) -> None:
        self.console, self.renderer = console, renderer
        self.pages, self.actions = pages, actions

    def __iter__(self) -> Iterator[Route]:
        for page in self.pages:
            yield Route(f"/c/{{cluster}}/{page.path}".rstrip("/"), self._html(page), methods=["GET"])
            if page.in_api:
                yield Route(
                    f"/api/clusters/{{cluster}}/{page.path}".rstrip("/"), self._json(page), methods=["GET"]
                )
        for action in self.actions:
            path = f"/api/clusters/{{cluster}}/{action.path}"
            yield Route(path, self._action(action), methods=[action.method])

    def _html(self, page: Page) -> Callable[..., Any]:
        async def endpoint(request: Request) -> Response:
            is_fragment = FRAGMENT_HEADER in request.headers
            ask: Ask | None = None
            try:
                ask = self._ask(request, page.role, page.query, {})
                view = await run_in_threadpool(page.view, ask)
                if isinstance(view, Response):
                    return view
                html = await run_in_threadpool(self.renderer.page, page, ask, view, is_fragment)
                return HTMLResponse(html)
            except Exception as error:
                status, reason = told(error)
                if is_fragment:
                    return JSONResponse({"error": reason}, status)
                return HTMLResponse(self.renderer.failure(request, ask, page, reason), status)

        return endpoint

    def _json(self, page: Page) -> Callable[..., Any]:
        async def endpoint(request: Request) -> Response:
            try:
                ask = self._ask(request, page.role, page.query, {})
                return to_response(await run_in_threadpool(page.view, ask))
            except Exception as error:
                status, reason = told(error)
                return JSONResponse({"error": reason}, status)

        return endpoint

    def _action(self, action: Action) -> Callable[..., Any]:
        async def endpoint(request: Request) -> Response:
            ask: Ask | None = None
            try:
                body = await _json_body(request)
                ask = self._ask(request, action.role, action.query, body, action.body)
                outcome = await run_in_threadpool(action.run, ask)
            except Exception as error:
                status, reason = told(error)
                await run_in_threadpool(self._audit, action, ask, request, f"refused: {reason}")
                return JSONResponse({"error": reason}, status)
            await run_in_threadpool(self._audit, action, ask, request, "done")
            if action.method != "GET":
                ask.cluster.recent.forget()
            if action.refreshes:
                ask.cluster.poller.nudge(*action.refreshes)
            return to_response(outcome)

        return endpoint

    def _ask(
        self, request: Request, role: Role, query: type, body: Mapping[str, Any], body_type: type = Nothing
    ) -> Ask:
        session = request.scope["session"]
        cluster = self.console.clusters.get(request.path_params["cluster"])
        if cluster is None:
            raise NotFound("this console has no cluster of that name")
        if session is None or session.role < role:
            if self.console.settings.read_only and role > Role.VIEWER:
                raise Forbidden("this console is read-only")
            raise Forbidden(f"this needs the role {role}, and yours is {session.role if session else 'none'}")
        path = {name: str(value) for name, value in request.path_params.items() if name != "cluster"}
        address = request.client.host if request.client else ""
        return Ask(
            self.console,
            cluster,
            session,
            path,
            parse(query, dict(request.query_params)),
            parse(body_type, body),
            address,
        )

    def _audit(self, action: Action, ask: Ask | None, request: Request, outcome: str) -> None:
        if not action.is_audited:
            return
        session = request.scope["session"]
        user = session.user if session is not None and session.user is not None else "nobody"
        address = request.client.host if request.client else ""
        target = action.target(ask) if ask is not None else " ".join(map(str, request.path_params.values()))
        cluster = request.path_params["cluster"]
        self.console.audit.note(user, address, cluster, action.summary.rstrip(".").lower(), target, outcome)


class Forbidden(AdminError):
    """403"""


async def _json_body(request: Request) -> Mapping[str, Any]:
    data = await request.body()
    if not data:
        return {}
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise BadRequest("the body is not application/json")
    try:
        body = json.loads(data)
        json.dumps(body, ensure_ascii=False).encode()  # half a character, as in "\\ud800", is none
    except (ValueError, RecursionError):
        raise BadRequest("the body is not JSON") from None
    if not isinstance(body, dict):
        raise BadRequest("the body is not a JSON object")
    return body


def to_response(value: Any) -> Response:
    if isinstance(value, Response):
        return value
    if value is None:
        return JSONResponse({"done": True})
    return JSONResponse(jsonable(value))


def told(error: Exception) -> tuple[int, str]:
    """The status and the one sentence of a failure; what nobody expected is logged, and not shown."""
    reason = one_line(str(error), 2000)
    match error:
        case TooLarge():
            return 413, TOO_LARGE
        case NotFound():
            return 404, reason
        case Forbidden():
            return 403, reason
        case BadRequest():
            return 400, reason
        case Refused():
            return (404 if error.code in MISSING else 409), reason
        case NoContact():
            return 502, reason
        case AdminError():
            return 409, reason
    log.error("a request failed", exc_info=error)
    return 500, "something went wrong here: the log of the console says what"
