"""Tests of what handlers work with: four facets, each built once. A handler takes the one that it needs, or all of
them.
"""

import ast
from dataclasses import FrozenInstanceError, fields
from importlib import import_module
from typing import Any, get_type_hints

import pytest

from odradek.apis.table import APIS
from odradek.serving.cluster import Cluster
from odradek.serving.coordination import Coordination
from odradek.serving.partitions import Partitions
from odradek.serving.registry import new_handler
from odradek.serving.services import Services, ThisNode
from tests.outside_world import ROOT, modules_of_a_node

FACETS: dict[str, type] = {
    "cluster": Cluster,
    "partitions": Partitions,
    "coordination": Coordination,
    "node": ThisNode,
}
MODULES = sorted({module for api in APIS.values() for module in api.modules.values()})


def test_the_facets_are_all_that_services_has() -> None:
    assert {name for name in Services.__slots__ if not name.startswith("_")} == {
        *FACETS,
        "authorizer",
        "new_session",
        "quotas",
    }


@pytest.mark.parametrize("facet", FACETS.values(), ids=list(FACETS))
def test_a_facet_is_never_changed(facet: type) -> None:
    values: Any = [None] * len(fields(facet))
    built = facet(*values)
    with pytest.raises(FrozenInstanceError):
        setattr(built, fields(facet)[0].name, 1)


def test_nobody_changes_what_a_node_serves_with() -> None:
    assert [change for path in modules_of_a_node() for change in changes(path.read_text())] == []


def changes(source: str) -> list[str]:
    """Assignments to attributes or items of something called services, or of a facet of it."""
    return [
        ast.unparse(target)
        for node in ast.walk(ast.parse(source))
        for target in getattr(node, "targets", [getattr(node, "target", None)])
        if isinstance(target, ast.Attribute | ast.Subscript)
        and any(f"services{end}" in ast.unparse(target.value) + "." for end in (".", "["))
    ]


@pytest.mark.parametrize(
    "source",
    [
        "services.config = config",
        "self.services.node.config = x",
        "services.roads[kind] = road",
        "services.told += 1",
    ],
)
def test_the_rule_sees_a_change(source: str) -> None:
    assert changes(source)


@pytest.mark.parametrize("name", MODULES)
def test_a_handler_takes_what_it_needs(name: str) -> None:
    module = import_module(f"odradek.api.{name}")
    if hasattr(module, "Handler"):
        assert get_type_hints(module.Handler.__init__)["services"] is Services
        return
    first = module.handle.__code__.co_varnames[0]
    assert get_type_hints(module.handle)[first] is FACETS.get(first, Services)
    if first == "services":
        source = (ROOT / "api" / f"{name}.py").read_text()
        used = [facet for facet in FACETS if f"services.{facet}" in source]
        assert len(used) != 1 or "(services" in source, f"{used} would be enough"


def test_a_handler_gets_its_facet() -> None:
    services: Any = Services.__new__(Services)
    services.cluster = "the cluster"
    assert new_handler(services, APIS[19].key).handle.args == ("the cluster",)
