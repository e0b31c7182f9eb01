"""The description of the JSON API (OpenAPI 3.1), made from the same objects as the routes."""

import dataclasses
import re
import types
from typing import Any, Union, get_args, get_origin, get_type_hints

from odradek import __version__
from odradek.console.registry import Action, Page
from odradek.console.requests import Nothing

PLAIN = {str: "string", int: "integer", bool: "boolean", float: "number"}
INTRODUCTION = (
    "What the pages of the console show and do. Reading needs only the cookie of a session; a change also needs the "
    "header X-CSRF-Token, with the token that GET /api/session returns."
)


def describe(pages: list[Page], actions: list[Action]) -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {
        "/api/session": {"get": {"summary": "Say who asks, and the token that changes need.", **_responses()}}
    }
    for page in pages:
        if page.in_api:
            path = f"/api/clusters/{{cluster}}/{page.path}".rstrip("/")
            paths.setdefault(path, {})["get"] = _operation(
                page.summary, path, page.query, Nothing, str(page.role)
            )
    for action in actions:
        path = f"/api/clusters/{{cluster}}/{action.path}"
        paths.setdefault(path, {})[action.method.lower()] = _operation(
            action.summary, path, action.query, action.body, str(action.role)
        )
    return {
        "openapi": "3.1.0",
        "info": {"title": "Odradek console", "version": __version__, "description": INTRODUCTION},
        "paths": paths,
    }


def _operation(summary: str, path: str, query: type, body: type, role: str) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)", path)
    ]
    hints = get_type_hints(query)
    parameters += [
        {
            "name": one.name,
            "in": "query",
            "required": _is_required(one),
            "description": one.metadata.get("doc", ""),
            "schema": schema_of(hints[one.name]),
        }
        for one in dataclasses.fields(query)
    ]
    operation: dict[str, Any] = {
        "summary": summary,
        "description": f"Needs the role {role}.",
        "parameters": parameters,
        **_responses(),
    }
    if body is not Nothing:
        operation["requestBody"] = {"content": {"application/json": {"schema": schema_of(body)}}}
    return operation


def _responses() -> dict[str, Any]:
    json_: dict[str, Any] = {"application/json": {}}
    return {
        "responses": {
            "200": {"description": "Done.", "content": json_},
            "default": {"description": "Why not, as `error`.", "content": json_},
        }
    }


def _is_required(one: "dataclasses.Field[Any]") -> bool:
    return one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING


def schema_of(kind: Any) -> dict[str, Any]:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        found = schema_of(next(one for one in arguments if one is not type(None)))
        return {**found, "type": [found["type"], "null"]} if isinstance(found.get("type"), str) else found
    if origin is list:
        return {"type": "array", "items": schema_of(arguments[0])}
    if origin is dict:
        return {"type": "object", "additionalProperties": schema_of(arguments[1])}
    if dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind)
        fields = dataclasses.fields(kind)
        properties = {
            one.name: {**schema_of(hints[one.name]), "description": one.metadata.get("doc", "")}
            for one in fields
        }
        required = [one.name for one in fields if _is_required(one)]
        return {"type": "object", "properties": properties, "required": required}
    return {"type": PLAIN[kind]} if kind in PLAIN else {}
