"""Templates. Everything that a template shows is escaped, and a name that is missing is an error."""

import dataclasses
import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request

from odradek.console.users import Role
from odradek.wording import readable_size

if TYPE_CHECKING:
    from odradek.console.clusters import Console
    from odradek.console.registry import Page
    from odradek.console.requests import Ask

HERE = Path(__file__).parent


class Renderer:
    def __init__(self, console: "Console", pages: "list[Page]") -> None:
        self._console = console
        self._pages = pages
        self._environment = Environment(
            loader=PackageLoader("odradek.console"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters |= {
            "size": size,
            "number": number,
            "rate": rate,
            "age": age,
            "at_most_ms": at_most_ms,
            "moment": moment,
            "long": long_duration,
            "segment": lambda text: quote(str(text), safe=""),
            "points": points,
            "as_json": lambda value: json.dumps(jsonable(value)),
        }
        self._environment.globals |= {"static": static_path, "Role": Role, "now_ms": now_ms}

    def page(self, page: "Page", ask: "Ask", view: Any, is_fragment: bool) -> str:
        template = page.live_template if is_fragment and page.live_template else page.template
        return self._environment.get_template(template).render(
            view=view,
            page=page,
            ask=ask,
            title=page.title.format(**ask.path),
            **self._shared(ask),
        )

    def _shared(self, ask: "Ask") -> dict[str, Any]:
        name = ask.cluster.name
        return {
            "cluster": name,
            "clusters": list(self._console.clusters),
            "base": f"/c/{quote(name, safe='')}",
            "api": f"/api/clusters/{quote(name, safe='')}",
            "session": ask.session,
            "problem": ask.cluster.poller.seen.problem,
            "read_only": self._console.settings.read_only,
            "has_login": self._console.sessions.need_login,
            "nav": [one for one in self._pages if one.nav and _is_offered(one, ask)],
            "may_edit": ask.session.role >= Role.EDITOR,
            "is_admin": ask.session.role >= Role.ADMIN,
        }

    def failure(self, request: Request, ask: "Ask | None", page: "Page | None", reason: str) -> str:
        """Inside of the page's frame, if it is known which one that is."""
        shared = self._shared(ask) if ask is not None and page is not None else {}
        values = {"reason": reason, "title": "Failed", "page": page, "shared": shared, **shared}
        return self._environment.get_template("failure.html").render(values)

    def plain(self, template: str, **values: Any) -> str:
        return self._environment.get_template(template).render(**values)


def _is_offered(page: "Page", ask: "Ask") -> bool:
    """True if the cluster serves it, and who asks may see it."""
    return ask.session.role >= page.role and (page.needs is None or ask.cluster.serves(page.needs))


@cache
def static_version() -> str:
    """A digest of all files: a browser may keep them until others are installed, and modules that import each other
    are of one version."""
    digest = sha256()
    for path in sorted((HERE / "static").iterdir()):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def static_path(name: str) -> str:
    return f"/static/{static_version()}/{name}"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def size(size_bytes: int | None) -> str:
    return readable_size(size_bytes) or "–"


def number(value: float | None) -> str:
    """1234567 is 1,234,567"""
    return "–" if value is None else f"{value:,}"


def rate(per_second: float | None) -> str:
    if per_second is None:
        return "–"
    if per_second == 0:
        return "0/s"
    return f"{per_second:,.0f}/s" if per_second >= 10 else f"{per_second:.1f}/s"


def at_most_ms(seconds: float | None) -> str:
    """The bound of a histogram's bucket."""
    return "–" if seconds is None else f"≤ {seconds * 1000:,.3g} ms" if seconds < 1 else f"≤ {seconds:,.3g} s"


def long_duration(seconds: float | None) -> str:
    """45 s, 3 min, 2 h, 5 d"""
    if seconds is None:
        return "–"
    for unit, size_s in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size_s:
            return f"{seconds / size_s:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def age(time_ms: int | None) -> str:
    return "–" if time_ms is None else f"{long_duration((now_ms() - time_ms) / 1000)} ago"


def moment(time_ms: int | None) -> str:
    """In UTC, as ISO 8601; pages show it in the browser's time."""
    if time_ms is None:
        return ""
    try:
        return (
            datetime.fromtimestamp(time_ms / 1000, UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z")
        )
    except (ValueError, OverflowError, OSError):  # a producer may send any 64-bit number
        return ""


def jsonable(value: Any) -> Any:
    """Turn dataclasses, tuples, sets and arrays into what JSON can say."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: jsonable(getattr(value, one.name)) for one in dataclasses.fields(value)}
    if hasattr(value, "_asdict"):
        return jsonable(value._asdict())
    if isinstance(value, dict):
        return {str(name): jsonable(each) for name, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset) or hasattr(value, "typecode"):
        return [jsonable(each) for each in value]
    return value


def points(values: Sequence[float], width: int = 120, height: int = 28) -> str:
    """A line through values, for an SVG polyline; the lowest possible value is 0."""
    if len(values) < 2:
        return ""
    top, step = max(max(values), 1e-9), width / (len(values) - 1)
    return " ".join(
        f"{at * step:.1f},{height - 1 - value / top * (height - 2):.1f}" for at, value in enumerate(values)
    )
