"""A bug is a change to a function of the product, which is named: `storage.store:LogStore.create`.

The change says as little as it can about the inside of that function, so that it survives most of what happens to the
code: a new layout, other comments, another branch, a file that was renamed. Conditions are found by words in them
(`_segments` is one of `name in self._segments`), and calls by the end of their names (`names.sync` is one of
`self.names.sync()`). A change that finds nothing to change raises `CannotPlant`: then the code has moved on, and
the bug must be planted anew.
"""

import ast
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import NamedTuple, TypeAlias, TypeVar

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Tree = TypeVar("Tree", bound=ast.AST)


class CannotPlant(Exception):
    """The function, or what was to be changed in it, is not there."""


class Change(NamedTuple):
    function: str  # "module:Class.method", the module within the package
    what: str  # for messages
    edit: Callable[[Function], int]  # in place; returns how many places it has changed

    @property
    def module(self) -> str:
        return self.function.partition(":")[0]

    @property
    def qualified_name(self) -> str:
        return self.function.partition(":")[2]

    def apply(self, tree: ast.Module) -> None:
        found = find_function(tree, self.qualified_name)
        if found is None:
            raise CannotPlant(f"there is no {self.function}")
        if not self.edit(found):
            raise CannotPlant(f"{self.function}: nothing to change ({self.what})")
        ast.fix_missing_locations(tree)


def find_function(tree: ast.Module, qualified_name: str) -> Function | None:
    scope: ast.AST = tree
    for name in qualified_name.split("."):
        inner = [item for item in _own_scopes(scope) if item.name == name]
        if not inner:
            return None
        scope = inner[-1]
    return scope if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef) else None


def _own_scopes(node: ast.AST) -> Iterator[Function | ast.ClassDef]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield child
        else:
            yield from _own_scopes(child)


# --- changes ---


def returning(function: str, value: str) -> Change:
    """It does nothing but return this."""

    def edit(found: Function) -> int:
        found.body = ast.parse(f"return {value}" if not _is_generator(found) else f"yield from {value}").body
        return 1

    return Change(function, f"return {value}", edit)


def without(function: str, *calls: str) -> Change:
    """The statements that call these are left out."""

    def concerns(statement: ast.stmt) -> bool:
        if not isinstance(statement, ast.Expr | ast.Assign | ast.AnnAssign):
            return False
        called = [_dotted(node.func) for node in ast.walk(statement) if isinstance(node, ast.Call)]
        return any(_ends_with(name, call) for name in called for call in calls)

    class Remover(_Editor):
        def visit(self, node: ast.AST) -> ast.AST:
            if isinstance(node, ast.stmt) and concerns(node):
                return self.changed(node, ast.Pass())
            return self.generic_visit(node)

    return Change(function, f"no call of {', '.join(calls)}", Remover.edit)


def judging(function: str, *words: str, by: str) -> Change:
    """Conditions that mention all of these words are replaced by another. A word is part of a dotted name."""

    class Judge(_Editor):
        def visit(self, node: ast.AST) -> ast.AST:
            self.generic_visit(node)
            if isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert):
                node.test = self.judge(node.test)
            elif isinstance(node, ast.comprehension):
                node.ifs = [self.judge(test) for test in node.ifs]
            return node

        def judge(self, test: ast.expr) -> ast.expr:
            return self.changed(test, _expression(by)) if set(words) <= set(_words(test)) else test

    return Change(function, f"a condition that mentions {' and '.join(words)}", Judge.edit)


def never(function: str, *words: str) -> Change:
    return judging(function, *words, by="False")


def always(function: str, *words: str) -> Change:
    return judging(function, *words, by="True")


def swapping(function: str, old: str, new: str) -> Change:
    """An expression becomes another, everywhere in the function. In `old`, `f(...)` is a call with any arguments."""
    wanted = _expression(old)

    class Swapper(_Editor):
        def visit(self, node: ast.AST) -> ast.AST:
            if isinstance(node, ast.expr) and _matches(wanted, node):
                return self.changed(node, _expression(new))
            return self.generic_visit(node)

    return Change(function, old, Swapper.edit)


def assigning(function: str, target: str, value: str) -> Change:
    """Whatever was assigned to this name or attribute, now it is this value."""

    class Assigner(_Editor):
        def visit(self, node: ast.AST) -> ast.AST:
            self.generic_visit(node)
            if isinstance(node, ast.Assign) and [ast.unparse(item) for item in node.targets] == [target]:
                node.value = self.changed(node.value, _expression(value))
            return node

    return Change(function, f"{target} = …", Assigner.edit)


def beforehand(function: str, code: str) -> Change:
    """This happens first."""

    def edit(found: Function) -> int:
        found.body[:0] = ast.parse(code).body
        return 1

    return Change(function, code, edit)


def afterwards(function: str, code: str) -> Change:
    """This happens before it returns `result`; the code may assign another one."""

    def edit(found: Function) -> int:
        assert isinstance(found, ast.FunctionDef)
        original = deepcopy(found)
        original.decorator_list = []
        arguments = found.args
        positional = [ast.Name(item.arg, ast.Load()) for item in (*arguments.posonlyargs, *arguments.args)]
        values: list[ast.expr] = list(positional)
        if arguments.vararg is not None:
            values.append(ast.Starred(ast.Name(arguments.vararg.arg, ast.Load()), ast.Load()))
        keywords = [ast.keyword(item.arg, ast.Name(item.arg, ast.Load())) for item in arguments.kwonlyargs]
        if arguments.kwarg is not None:
            keywords.append(ast.keyword(None, ast.Name(arguments.kwarg.arg, ast.Load())))
        call = ast.Call(ast.Name(found.name, ast.Load()), values, keywords)
        result = ast.Assign([ast.Name("result", ast.Store())], call)
        found.body = [original, result, *ast.parse(code).body, *ast.parse("return result").body]
        return 1

    return Change(function, code, edit)


# --- trees ---


class _Editor(ast.NodeTransformer):
    def __init__(self) -> None:
        self.count = 0

    @classmethod
    def edit(cls, found: Function) -> int:
        editor = cls()
        found.body = [editor.visit(statement) for statement in found.body]
        return editor.count

    def changed(self, old: ast.AST, new: Tree) -> Tree:
        self.count += 1
        return ast.copy_location(new, old)


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _dotted(node: ast.expr) -> str:
    """Calls and subscripts on the way are left out: `self.log().sync` is `self.log.sync`."""
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    if isinstance(node, ast.Call):
        return _dotted(node.func)
    if isinstance(node, ast.Subscript):
        return _dotted(node.value)
    return node.id if isinstance(node, ast.Name) else ""


def _ends_with(name: str, end: str) -> bool:
    return f".{name}".endswith(f".{end}")


def _words(node: ast.AST) -> Iterator[str]:
    for item in ast.walk(node):
        if isinstance(item, ast.Name):
            yield item.id
        elif isinstance(item, ast.Attribute):
            yield item.attr


def _matches(wanted: ast.expr, found: ast.expr) -> bool:
    if isinstance(wanted, ast.Call) and isinstance(found, ast.Call) and _takes_anything(wanted):
        return ast.dump(wanted.func) == ast.dump(found.func)
    return ast.dump(wanted) == ast.dump(found)


def _takes_anything(call: ast.Call) -> bool:
    first = call.args[0] if call.args else None
    return isinstance(first, ast.Constant) and first.value is ...


def _is_generator(found: Function) -> bool:
    return any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(found))
