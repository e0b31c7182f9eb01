"""Measure what it costs to ask whether a caller may do something: python -m bench.authorizing

A hit is what a connection remembers from before; a miss is a decision by the index, as for the first request of a
connection, or after the ACLs have changed. Both are measured with few ACLs and with many, and for the patterns that
cost most: prefixes of all lengths, and principals that have thousands of ACLs.
"""

import argparse
import timeit
from collections.abc import Iterator
from typing import Any

from odradek.acls.acl import Acl
from odradek.acls.codes import Operation, Pattern, Permission, Resource
from odradek.model import Caller, Principal
from odradek.serving.authorizer import may_of
from odradek.serving.request import Request
from odradek.serving.session import Session
from odradek.serving.standard_authorizer import StandardAuthorizer
from odradek.wire.frame import RequestHeader

ROUNDS = 7
SECONDS = 0.2
STATEMENTS = {
    "hit": 'may(read, topic, "orders")',
    "hit of a request": 'may_of(authorizer, request)(read, topic, "orders")',
    "miss, allowed": 'authorizer.may(alice, read, topic, "orders")',
    "miss, denied": "authorizer.may(alice, read, topic, long)",
}
ALICE = Caller(Principal("User", "alice"), "10.0.0.7:40000", "PLAINTEXT", "bench")


def of_many_users(count: int) -> Iterator[Acl]:
    """Make up the ACLs of a large company: literal and prefixed names, a few ACLs for each user."""
    for number in range(count):
        pattern = Pattern.PREFIXED if number % 5 == 0 else Pattern.LITERAL
        name = f"team-{number % 997}.topic-{number}"
        yield Acl(Resource.TOPIC, name, pattern, f"User:u{number % 2_000}", "*", 3, Permission.ALLOW)


def of_one_user(count: int) -> Iterator[Acl]:
    """All of them are alice's, and their prefixes have 200 lengths."""
    for number in range(count):
        name = f"{number:05d}".ljust(5 + number % 200, "x")
        yield Acl(Resource.TOPIC, name, Pattern.PREFIXED, str(ALICE.principal), "*", 3, Permission.ALLOW)


def measure(statement: str, names: dict[str, Any]) -> float:
    """Microseconds: the best of several rounds, because others may use the machine too."""
    timer = timeit.Timer(statement, globals=names)
    count = max(int(SECONDS / (timer.timeit(1_000) / 1_000)), 1)
    return min(timer.repeat(ROUNDS, count)) / count * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--acls", type=int, default=10_000)
    count = parser.parse_args().acls
    mine = Acl(Resource.TOPIC, "orders", Pattern.LITERAL, str(ALICE.principal), "*", 3, Permission.ALLOW)
    question = Operation.READ, Resource.TOPIC, "orders"
    for title, acls in (
        ("1 ACL", []),
        (f"{count} ACLs of 2,000 users", list(of_many_users(count))),
        (f"{count} prefixes of one user", list(of_one_user(count))),
    ):
        authorizer, session = StandardAuthorizer([], allows_unlisted=False), Session(ALICE)
        authorizer.load([*acls, mine])
        turns: Any = None
        request = Request(RequestHeader(1, 12, 0, None, 0), ALICE, lambda _: None, turns, session)
        may = may_of(authorizer, request)
        assert may(*question)
        names = {
            "authorizer": authorizer,
            "request": request,
            "may": may,
            "may_of": may_of,
            "alice": ALICE,
            "read": Operation.READ,
            "topic": Resource.TOPIC,
            "long": "y" * 249,
        }
        print(f"{title:32}", end="")
        for what, statement in STATEMENTS.items():
            print(f"   {what} {measure(statement, names):6.2f} µs", end="")
        print()


if __name__ == "__main__":
    main()
