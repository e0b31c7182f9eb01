"""The input of a page or an action: the cluster, who asks, and query and body as dataclasses.

A query or body is described by a frozen dataclass: its fields are the names, their types say what is accepted, their
defaults what may be left out. `doc()` adds a sentence for the description of the API.
"""

import dataclasses
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from odradek.admin.access import Access, read_settings
from odradek.admin.failures import BadRequest

if TYPE_CHECKING:
    from odradek.console.clusters import Console, WatchedCluster
    from odradek.console.sessions import Session

Result = TypeVar("Result")


@dataclass(frozen=True)
class Nothing:
    """The query or body of those who take none."""


@dataclass(frozen=True)
class Ask:
    console: "Console"
    cluster: "WatchedCluster"
    session: "Session"
    path: Mapping[str, str]
    query: Any
    body: Any
    address: str = ""

    def access(self) -> Access:
        """The cluster, reached as the user who asks if the users file gives settings for that."""
        own, client = self.cluster.access, self._client()
        given = own.given if client is None else read_settings(client)
        return replace(own, given=given, kept={}, client_id="odradek-console")

    def _client(self) -> Path | None:
        """The file with the settings of the user who asks; None for those of the console."""
        user = (self.console.sessions.users or {}).get(self.session.user or "")
        return None if user is None else user.client

    def recent(self, name: str, look: Callable[[Access], Result]) -> Result:
        """Return what `look` finds, shared for a moment with all who ask the same with the same settings."""
        return self.cluster.recent.look((name, self._client()), lambda: look(self.access()))


class NotFound(BadRequest):
    """The thing that was asked for does not exist; 404."""


def doc(text: str, default: Any = dataclasses.MISSING) -> Any:
    """A field with a sentence about it."""
    if default is dataclasses.MISSING:
        return field(metadata={"doc": text})
    if isinstance(default, list | dict):
        kept = default
        return field(default_factory=lambda: kept.copy(), metadata={"doc": text})
    return field(default=default, metadata={"doc": text})


def parse(kind: type, given: Mapping[str, Any]) -> Any:
    """An instance from what a browser or script sent. Raises BadRequest, in words."""
    hints = get_type_hints(kind)
    known = {one.name: one for one in dataclasses.fields(kind)}
    if unknown := given.keys() - known.keys():
        raise BadRequest(f"{min(unknown)!r} is not known here")
    values = {}
    for name, one in known.items():
        if name in given:
            values[name] = _value(name, given[name], hints[name])
        elif one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING:
            raise BadRequest(f"{name} is missing")
    return kind(**values)


def _value(name: str, given: Any, kind: Any) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        if given is None or given == "":
            return None
        return _value(name, given, next(one for one in arguments if one is not type(None)))
    if origin is list:
        if not isinstance(given, list):
            raise BadRequest(f"{name} is not a list")
        return [_value(name, each, arguments[0]) for each in given]
    if origin is dict:
        if not isinstance(given, dict):
            raise BadRequest(f"{name} is not an object")
        return {str(key): _value(name, each, arguments[1]) for key, each in given.items()}
    return _plain(name, given, kind)


def _plain(name: str, given: Any, kind: Any) -> Any:
    if kind is Any:
        return given
    if kind is bool:
        if given in (True, "true", "1", "on", "yes"):
            return True
        if given in (False, "false", "0", "off", "no", ""):
            return False
    if kind is int and not isinstance(given, bool):
        try:
            return int(str(given))
        except ValueError:
            pass
    if kind is str and isinstance(given, str):
        return given
    nouns = {bool: "true or false", int: "a whole number", str: "text"}
    raise BadRequest(f"{name} is not {nouns.get(kind, kind)}")
