"""The table of APIs: every row says what is needed, and no other table knows APIs by their keys."""

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from odradek.apis.row import Access, Api, Handling, Need, Operation, Resource
from odradek.apis.table import ANYBODY, APIS, BROKER, named
from odradek.wire.messages.index import SCHEMAS
from odradek.wire.messages.list_groups import ListedGroup, ListGroupsResponse
from odradek.wire.messages.metadata import MetadataRequest
from tests.outside_world import ROOT

ROWS = list(APIS.values())
MODULES = {schema.module for schema in SCHEMAS.values()}
FOR_ANYBODY = {"ApiVersions", "SaslHandshake", "SaslAuthenticate"}


def name_of(api: Api) -> str:
    return api.name


@pytest.mark.parametrize("api", ROWS, ids=name_of)
def test_every_row_declares_its_access(api: Api) -> None:
    assert (api.access == ANYBODY) == (api.name in FOR_ANYBODY)
    items = {items.resource for items in api.items}
    request = import_module(f"odradek.wire.messages.{SCHEMAS[api.key].module}")
    for need in api.access.needs:
        if need.field:
            assert hasattr(getattr(request, f"{api.name}Request")(), need.field)
        elif need.resource is not Resource.CLUSTER:
            assert need.resource in items, "no item names such a resource"


@pytest.mark.parametrize("api", [api for api in ROWS if api.access.function or api.access.hides], ids=name_of)
def test_the_functions_that_rows_name_are_there(api: Api) -> None:
    for module in api.modules.values():
        for function in filter(None, (api.access.function, api.access.hides)):
            assert callable(getattr(import_module(f"odradek.api.{module}"), function))


# (Produce, which is handled in runs, has a way of its own.)
@pytest.mark.parametrize("api", [api for api in ROWS if api.modules and api.name != "Produce"], ids=name_of)
def test_a_handler_works_as_its_row_says(api: Api) -> None:
    for module in set(api.modules.values()):
        (handle,) = _functions_named("handle", ROOT / "api" / f"{module.replace('.', '/')}.py")
        assert isinstance(handle, ast.AsyncFunctionDef) == (api.handling is Handling.WAITS)
        if isinstance(handle, ast.FunctionDef) and handle.returns is not None:
            assert ast.unparse(handle.returns).startswith("Steps") == (api.handling is Handling.IN_STEPS)


def _functions_named(name: str, path: Path) -> list[ast.AST]:
    """Return the functions of a module, and the methods of its classes."""
    tree = ast.parse(path.read_text())
    scopes: list[Any] = [tree, *(item for item in tree.body if isinstance(item, ast.ClassDef))]
    return [item for scope in scopes for item in scope.body if getattr(item, "name", "") == name]


def test_either_or() -> None:
    access = import_module("odradek.api.create_topics").access
    assert access(None, 7, lambda *_: True) == ()
    assert access(None, 7, lambda *_: False) == (Need(Operation.CREATE, Resource.TOPIC),)


def test_listings_hide_what_the_caller_may_not_see() -> None:
    def may(operation: Operation, resource: Resource, name: str) -> bool:
        return (operation, resource, name[:1]) == (Operation.DESCRIBE, Resource.GROUP, "a")

    groups = ListGroupsResponse(groups=[ListedGroup("a"), ListedGroup("b")])
    import_module("odradek.api.list_groups").hide(None, groups, may)
    assert [group.group_id for group in groups.groups] == ["a"]
    metadata = import_module("odradek.api.metadata")
    assert metadata.access(MetadataRequest(topics=None), 12, may) == ()


# --- no other table ---


def tables_of_keys(source: str) -> Iterator[str]:
    """Constants of a module that list two or more API keys as plain numbers."""
    for item in ast.parse(source).body:
        if isinstance(item, (ast.Assign, ast.AnnAssign)) and item.value is not None:
            target = item.targets[0] if isinstance(item, ast.Assign) else item.target
            if isinstance(target, ast.Tuple):  # names for single values
                names, numbers = [ast.unparse(name).lower() for name in target.elts], _numbers(item.value)
                if numbers and None not in numbers and any(name in MODULES for name in names):
                    yield ast.unparse(target)
                continue
            for literal in ast.walk(item.value):
                numbers = _numbers(literal)
                is_about_apis = "API" in (ast.unparse(target) + source[:2000]).upper()
                if len(numbers) >= 2 and is_about_apis and all(number in SCHEMAS for number in numbers):
                    yield ast.unparse(target)
                    break


def _numbers(literal: ast.AST) -> list[Any]:
    elements: list[Any] = []
    if isinstance(literal, (ast.Set, ast.Tuple, ast.List)):
        elements = literal.elts
    elif isinstance(literal, ast.Dict):
        elements = literal.keys
    values = [getattr(element, "value", None) for element in elements]
    return [value if type(value) is int else None for value in values]


def test_no_table_of_bare_api_keys_is_left() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in sorted(ROOT.rglob("*.py"))
        for name in tables_of_keys(path.read_text())
    }
    assert found == {"wire/messages/index.py: SCHEMAS"}, "which is Kafka's own, and generated"


@pytest.mark.parametrize(
    "source",
    [
        '"""Of an API."""\nFORWARDED = frozenset({19, 20, 37})',
        '"""Of an API."""\nMODULES = {19: "create_topics", 20: "delete_topics"}',
        "READ_APIS = (1, 3)",
        "FETCH, VOTE = 1, 52",
    ],
)
def test_the_rule_sees_such_a_table(source: str) -> None:
    assert list(tables_of_keys(source))


def test_a_row_is_found_by_its_name() -> None:
    assert named("Envelope").key == 58
    assert named("Fetch").access == Access(function="access", asked_by_handler=(BROKER,))
