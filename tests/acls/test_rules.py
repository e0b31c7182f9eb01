"""The index decides as the reference does, and as Kafka's documentation says."""

from random import Random

import pytest

from odradek.acls.acl import Acl
from odradek.acls.codes import Operation, Pattern, Permission, Resource
from odradek.acls.rules import Rules
from tests.acls import reference
from tests.acls.random_acls import a_question, an_acl

CASES = pytest.mark.parametrize("cases", [20_000, pytest.param(1_000_000, marks=pytest.mark.long)])
QUESTIONS = 50  # about each set of ACLs
TOPIC, CLUSTER = Resource.TOPIC, Resource.CLUSTER
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
LITERAL, PREFIXED = Pattern.LITERAL, Pattern.PREFIXED
ALLOW, DENY = Permission.ALLOW, Permission.DENY
HOST = "10.0.0.1"


def one_in(address: str) -> str:
    """The host of a caller, as the reference knows it: IPv4 in IPv6 is IPv4."""
    return address.removeprefix("::ffff:")


@CASES
def test_the_index_decides_as_the_reference_does(cases: int) -> None:
    """Also after ACLs were added and removed, in any order."""
    rng, differing = Random(cases), []
    for _ in range(cases // QUESTIONS):
        acls = list({an_acl(rng) for _ in range(rng.choice((0, 1, 3, 10, 40)))})
        allows_unlisted = rng.random() < 0.5
        rules = Rules(acls, allows_unlisted)
        for acl in rng.sample(acls, len(acls) // 3):
            rules.remove(acl)
            acls.remove(acl)
        for _ in range(QUESTIONS):
            principal, host, *rest = question = a_question(rng)
            expected = reference.may(acls, principal, one_in(host), *rest, allows_unlisted)  # type: ignore[arg-type]
            if rules.decide(*question).is_allowed is not expected:
                differing.append((acls, question))
    assert differing == []


@CASES
def test_any_resource_is_decided_as_the_reference_does(cases: int) -> None:
    rng, differing = Random(8), []
    for _ in range(cases // 20):
        acls = list({an_acl(rng) for _ in range(rng.choice((0, 1, 3, 10)))})
        principal, host, operation, resource, _ = a_question(rng)
        if resource is CLUSTER:
            continue
        host = one_in(host)
        expected = reference.may_any(acls, principal, host, operation, resource) or reference.may(
            acls, principal, host, operation, resource, "hardcode"
        )
        if Rules(acls).decide_any(principal, host, operation, resource) is not expected:
            differing.append((acls, principal, host, operation, resource))
    assert differing == []


def acl(
    name: str = "orders",
    pattern: Pattern = LITERAL,
    operation: Operation = READ,
    permission: Permission = ALLOW,
    principal: str = "User:a",
    host: str = "*",
    resource: Resource = TOPIC,
) -> Acl:
    return Acl(resource, name, pattern, principal, host, operation, permission)


def may(
    *acls: Acl, operation: Operation = READ, name: str = "orders", host: str = HOST, **more: object
) -> bool:
    return (
        Rules(acls, bool(more.get("allows_unlisted")))
        .decide("User:a", host, operation, TOPIC, name)
        .is_allowed
    )


def test_a_denial_wins() -> None:
    assert may(acl())
    for denial in (
        acl(permission=DENY),
        acl("*", permission=DENY),
        acl("ord", PREFIXED, permission=DENY),
        acl(principal="User:*", permission=DENY),
        acl(operation=Operation.ALL, permission=DENY),
        acl(host=HOST, permission=DENY),
    ):
        assert not may(acl(), denial) and not may(denial, acl()), denial


@pytest.mark.parametrize(
    ("name", "is_allowed"),
    [
        ("orders", True),
        ("orders-1", True),
        ("order", False),
        ("Orders", False),
        ("orderz", False),
        ("", False),
    ],
)
def test_a_prefix_is_the_beginning_of_a_name(name: str, is_allowed: bool) -> None:
    assert may(acl(pattern=PREFIXED), name=name) is is_allowed


def test_names_are_whole_unless_the_pattern_says_otherwise() -> None:
    assert not may(acl(), name="orders-1")
    assert may(acl("*"), name="anything")
    assert not may(acl("*", PREFIXED), name="anything"), "a name that begins with a star"
    assert may(acl("*", PREFIXED), name="*s")


def test_describe_is_implied_by_what_is_allowed_alone() -> None:
    for operation in (READ, WRITE, Operation.DELETE, Operation.ALTER):
        assert may(acl(operation=operation), operation=DESCRIBE)
        assert may(acl(operation=operation, permission=DENY), acl(operation=DESCRIBE), operation=DESCRIBE)
    assert not may(acl(operation=Operation.CREATE), operation=DESCRIBE)
    assert may(acl(operation=Operation.ALTER_CONFIGS), operation=Operation.DESCRIBE_CONFIGS)
    assert not may(acl(operation=Operation.ALTER_CONFIGS), operation=DESCRIBE)


@pytest.mark.parametrize(
    ("written", "host", "is_allowed"),
    [
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.10", False),
        ("0:0:0:0:0:0:0:1", "::1", True),
        ("10.0.0.1", "::ffff:10.0.0.1", True),
        ("10.0.0.0/8", "10.255.0.1", True),
        ("10.0.0.0/8", "11.0.0.1", False),
        ("10.0.0.0/8", "", False),
        ("2001:db8::/32", "2001:db8::7", True),
        ("10.0.0.0/99", "10.0.0.1", False),
        ("localhost", "127.0.0.1", False),
    ],
)
def test_hosts(written: str, host: str, is_allowed: bool) -> None:
    assert may(acl(host=written), host=host) is is_allowed


def test_a_resource_without_acls() -> None:
    assert not may() and may(allows_unlisted=True)
    others = acl(principal="User:b")
    assert not may(others, allows_unlisted=True), "it has one, of somebody else"
    assert may(others, allows_unlisted=True, name="other")


def test_odd_names() -> None:
    for name in ("a" * 249, "ä\u0000☃", " ", "a b", "..", "\U0001f600"):
        assert may(acl(name), name=name) and may(acl(name[:1], PREFIXED), name=name)
        assert not may(acl(name), name=name + "x")


def test_one_among_a_hundred_thousand() -> None:
    rules = Rules(acl(f"t{number}", PREFIXED if number % 2 else LITERAL) for number in range(100_000))
    rules.add(acl("needle"))
    assert rules.decide("User:a", HOST, READ, TOPIC, "needle").acl == acl("needle")
    assert not rules.decide("User:a", HOST, READ, TOPIC, "hay").is_allowed
    rules.remove(acl("needle"))
    assert not rules.decide("User:a", HOST, READ, TOPIC, "needle").is_allowed


def test_removing_everything_leaves_nothing() -> None:
    rng = Random(3)
    acls = list({an_acl(rng) for _ in range(300)})
    rules = Rules(acls, allows_unlisted=True)
    for each in acls:
        rules.remove(each)
    assert not rules._books
    assert rules.decide("User:a", HOST, READ, TOPIC, "a").is_allowed, "there is no ACL any more"
