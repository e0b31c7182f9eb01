"""An authorizer for tests: it denies what a test says, and remembers what it was asked."""

from odradek.apis.row import Operation, Resource
from odradek.model import Caller

Asked = tuple[Operation, Resource, str]


class Acl:
    allows_all = False

    def __init__(self, *denied: tuple[Resource, str]) -> None:
        self.denied = set(denied)
        self.generation = 1
        self.asked: list[Asked] = []
        self.callers: set[Caller] = set()

    def deny(self, *denied: tuple[Resource, str]) -> None:
        self.denied = set(denied)
        self.generation += 1

    def may(self, caller: Caller, operation: Operation, resource: Resource, name: str) -> bool:
        self.asked.append((operation, resource, name))
        self.callers.add(caller)
        return (resource, name) not in self.denied
