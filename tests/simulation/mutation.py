"""A bug, as a change to the text of one module of the product, made when a fresh process imports it.

So nothing stands in for the product's code, and nothing of what runs knows of it: neither the simulation nor the
checkers. A bug is some text that is replaced by another. The text must be found exactly once: otherwise the code has
moved on, and the bug must be planted anew.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import NamedTuple

PACKAGE = "odradek"


class CannotPlant(Exception):
    """The text that was to be changed is not there, or the module is imported already."""


class Mutation(NamedTuple):
    module: str  # within the package, as "storage.log.log"
    old: str
    new: str

    def apply(self, source: str) -> str:
        count = source.count(self.old)
        if count != 1:
            raise CannotPlant(f"{self.module} has this {count} times, not once: {self.old!r}")
        return source.replace(self.old, self.new)


class Planted(NamedTuple):
    name: str
    bug: str
    seed: int  # that catches it
    mutations: tuple[Mutation, ...]


class MutatedLoader(SourceFileLoader):
    def __init__(self, name: str, path: str, mutations: Sequence[Mutation]) -> None:
        super().__init__(name, path)
        self._mutations = mutations

    def get_code(self, fullname: str) -> CodeType:
        """Not from the cache of compiled modules, nor into it."""
        source = self.get_source(fullname)
        assert source is not None
        for mutation in self._mutations:
            source = mutation.apply(source)
        return compile(source, f"{self.path} (mutated)", "exec", dont_inherit=True)


class MutatingFinder(MetaPathFinder):
    def __init__(self, mutations: Sequence[Mutation]) -> None:
        self._mutations = mutations

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        wanted = [item for item in self._mutations if f"{PACKAGE}.{item.module}" == fullname]
        spec = PathFinder.find_spec(fullname, path, target) if wanted else None
        if spec is not None:
            assert spec.origin is not None
            spec.loader = MutatedLoader(fullname, spec.origin, wanted)
        return spec


def plant(mutations: Sequence[Mutation]) -> None:
    """In this process, for good. Raises CannotPlant now if a text is not there, not when its module is imported."""
    early = [name for name in sys.modules if name == PACKAGE or name.startswith(f"{PACKAGE}.")]
    if early:
        raise CannotPlant(f"{early[0]} is imported already: bugs are planted in a fresh process")
    sys.meta_path.insert(0, MutatingFinder(mutations))
    for mutation in mutations:
        spec = PathFinder.find_spec(PACKAGE, None)
        assert spec is not None and spec.submodule_search_locations is not None
        (root,) = spec.submodule_search_locations
        with open(f"{root}/{mutation.module.replace('.', '/')}.py") as file:
            mutation.apply(file.read())
