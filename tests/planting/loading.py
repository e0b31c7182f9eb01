"""Bugs are planted when a fresh process imports the modules that they are in.

So nothing stands in for the product's code, and nothing that runs knows of it: neither the simulation nor its checkers.
"""

import ast
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from tests.planting.changes import CannotPlant, Change, find_function

PACKAGE = "odradek"
ROOT = Path(__file__).parents[2] / "src" / PACKAGE


def module_of(change: Change) -> str:
    """The module that has the function. It is found by its name where it was moved to another one."""
    if _has(change.module, change.qualified_name):
        return change.module
    last = change.qualified_name.rpartition(".")[2]
    places = [module for module in _modules_with(last) if _has(module, change.qualified_name)]
    if len(places) != 1:
        raise CannotPlant(
            f"there is no {change.function}, and {len(places)} other modules have one: {places}"
        )
    return places[0]


def source_path(module: str) -> Path:
    return ROOT / f"{module.replace('.', '/')}.py"


def _has(module: str, qualified_name: str) -> bool:
    path = source_path(module)
    return path.exists() and find_function(ast.parse(path.read_text()), qualified_name) is not None


@cache
def _modules_with(name: str) -> list[str]:
    return [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in sorted(ROOT.rglob("*.py"))
        if f"def {name}(" in path.read_text()
    ]


def mutate(source: str, changes: Iterable[Change]) -> ast.Module:
    tree = ast.parse(source)
    for change in changes:
        change.apply(tree)
    return tree


class MutatedLoader(SourceFileLoader):
    def __init__(self, name: str, path: str, changes: Sequence[Change]) -> None:
        super().__init__(name, path)
        self._changes = changes

    def get_code(self, fullname: str) -> CodeType:
        """Compiled anew: neither read from the cache of compiled modules nor written to it."""
        source = self.get_source(fullname)
        assert source is not None
        return compile(mutate(source, self._changes), f"{self.path} (mutated)", "exec", dont_inherit=True)


class MutatingFinder(MetaPathFinder):
    def __init__(self, changes: dict[str, list[Change]]) -> None:
        self._changes = changes

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        wanted = self._changes.get(fullname.removeprefix(f"{PACKAGE}."))
        spec = PathFinder.find_spec(fullname, path, target) if wanted else None
        if spec is not None and wanted is not None:
            assert spec.origin is not None
            spec.loader = MutatedLoader(fullname, spec.origin, wanted)
        return spec


def by_module(changes: Iterable[Change]) -> dict[str, list[Change]]:
    """Raises CannotPlant if one of them does not fit the code any more."""
    found: dict[str, list[Change]] = {}
    for change in changes:
        found.setdefault(module_of(change), []).append(change)
    for module, some in found.items():
        mutate(source_path(module).read_text(), some)
    return found


def plant(changes: Iterable[Change]) -> None:
    """Plant a bug in this process, for good. Raises CannotPlant now, and not when a module is imported."""
    early = [name for name in sys.modules if name == PACKAGE or name.startswith(f"{PACKAGE}.")]
    if early:
        raise CannotPlant(f"{early[0]} is imported already: bugs are planted in a fresh process")
    sys.meta_path.insert(0, MutatingFinder(by_module(changes)))
