"""Which ACLs a filter means, and which ACLs are refused."""

import pytest

from odradek.acls.acl import Acl, check_new
from odradek.acls.filters import AclFilter, check_filter
from odradek.errors import ErrorCode, KafkaError

ACL = Acl(2, "orders", 3, "User:a", "*", 3, 3)
ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4


@pytest.mark.parametrize(
    ("asked", "matches"),
    [
        (AclFilter(), True),
        (AclFilter(resource_type=2), True),
        (AclFilter(resource_type=3), False),
        (AclFilter(resource_name="orders"), True),
        (AclFilter(resource_name="order"), False),
        (AclFilter(pattern_type=LITERAL), True),
        (AclFilter(pattern_type=PREFIXED), False),
        (AclFilter(pattern_type=MATCH), True),
        (AclFilter(principal="User:a"), True),
        (AclFilter(principal="User:*"), False),
        (AclFilter(host="*"), True),
        (AclFilter(host="10.0.0.1"), False),
        (AclFilter(operation=3), True),
        (AclFilter(operation=2), False),
        (AclFilter(permission=2), False),
        (AclFilter(*ACL), True),
    ],
)
def test_each_field(asked: AclFilter, matches: bool) -> None:
    assert asked.matches(ACL) is matches


@pytest.mark.parametrize(
    ("name", "pattern", "asked", "kind", "matches"),
    [
        ("orders", LITERAL, "orders", MATCH, True),
        ("*", LITERAL, "orders", MATCH, True),
        ("ord", PREFIXED, "orders", MATCH, True),
        ("ord", LITERAL, "orders", MATCH, False),
        ("orders-1", PREFIXED, "orders", MATCH, False),
        ("*", LITERAL, "orders", ANY, False),
        ("ord", PREFIXED, "orders", ANY, False),
        ("ord", PREFIXED, "ord", ANY, True),
        ("*", LITERAL, "*", LITERAL, True),
    ],
)
def test_patterns(name: str, pattern: int, asked: str, kind: int, matches: bool) -> None:
    assert (
        AclFilter(2, asked, kind).matches(ACL._replace(resource_name=name, pattern_type=pattern)) is matches
    )


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"resource_type": 0}, "Invalid resourceType UNKNOWN"),
        ({"resource_type": 1}, "Invalid resourceType ANY"),
        ({"resource_type": 99}, "Invalid resourceType UNKNOWN"),
        ({"resource_type": 4}, "The only valid name for the CLUSTER resource is kafka-cluster"),
        ({"resource_name": ""}, "Invalid empty resource name"),
        ({"pattern_type": 1}, "Invalid patternType ANY"),
        ({"pattern_type": 2}, "Invalid patternType MATCH"),
        ({"operation": 1}, "Invalid operation ANY"),
        ({"operation": 77}, "Invalid operation UNKNOWN"),
        ({"permission": 1}, "Invalid permissionType ANY"),
        ({"permission": 0}, "Invalid permissionType UNKNOWN"),
        ({"principal": "alice"}, "Could not parse principal from `alice`"),
    ],
)
def test_an_acl_that_is_refused(wrong: dict[str, object], reason: str) -> None:
    check_new(ACL)
    with pytest.raises(KafkaError) as refusal:
        check_new(ACL._replace(**wrong))  # type: ignore[arg-type]
    assert refusal.value.code is ErrorCode.INVALID_REQUEST and str(refusal.value).startswith(reason)


def test_filters_that_are_refused() -> None:
    check_filter(AclFilter())
    for wrong in ({"resource_type": 0}, {"pattern_type": 9}, {"operation": 0}, {"permission": 77}):
        with pytest.raises(KafkaError):
            check_filter(AclFilter(**wrong))  # type: ignore[arg-type]


def test_an_acl_of_a_later_release_can_be_shown() -> None:
    assert str(ACL._replace(operation=99, resource_type=88)) == (
        "ALLOW User:a from * to UNKNOWN UNKNOWN orders (LITERAL)"
    )
