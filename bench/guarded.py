"""The cost of access control for a request: one message in each Produce request, with 10,000 ACLs and without an
authorizer.

Two nodes run side by side, and clients log in to both (SCRAM-SHA-256, without TLS, so that nothing else makes noise).
One has Kafka's StandardAuthorizer and 10,000 ACLs, of 2,000 users and of the client itself; the other has none. They
are measured in turn; the figure is the difference of their CPU for each request.
"""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from bench.authorizing import of_many_users
from bench.measure import cpu_of
from bench.secure_systems import SMALL_QUEUE, TOPIC, USER, SecureOdradek
from odradek.acls.acl import Acl
from odradek.acls.codes import Operation, Pattern, Permission, Resource
from odradek.config.authorizer import STANDARD_AUTHORIZER

ACLS = 10_000
AT_ONCE = 1_000  # in one request
OWN = Acl(Resource.TOPIC, TOPIC, Pattern.LITERAL, f"User:{USER}", "*", Operation.WRITE, Permission.ALLOW)


class Unguarded(SecureOdradek):
    name = "odradek-unguarded"
    title = "without an authorizer"
    protocol = "SASL_PLAINTEXT"


class Guarded(Unguarded):
    name = "odradek-guarded"
    title = f"with {ACLS} ACLs"
    settings = SecureOdradek.settings | {
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:ANONYMOUS",  # the harness and the node itself, on the other listener
    }


def measure(scratch: Path, rounds: int, seconds: float) -> dict[str, list[float]]:
    """CPU for a request in microseconds, by round."""
    systems: Sequence[SecureOdradek] = (Unguarded(scratch), Guarded(scratch))
    found: dict[str, list[float]] = {system.title: [] for system in systems}
    try:
        for system in systems:
            system.start()
            system.create_topic(TOPIC, 1)
        add_acls(systems[1], [OWN, *of_many_users(ACLS - 1)])
        for number in range(-1, rounds):  # the first one warms up
            for system in systems if number % 2 == 0 else reversed(systems):
                cost = cpu_of_a_request(system, seconds)
                if number >= 0:
                    found[system.title].append(cost)
                    print(
                        f"{number + 1}  one message a request, CPU µs {system.title}: {cost:.2f}", flush=True
                    )
    finally:
        for system in systems:
            system.discard()
    return found


def cpu_of_a_request(system: SecureOdradek, seconds: float) -> float:
    pids = system.pids()
    before = cpu_of(pids)
    done = system.secure_load(
        "produce", topic=TOPIC, count=100_000_000, size=100, one=1, seconds=seconds, **SMALL_QUEUE
    )
    after = cpu_of(pids)
    spent = after.user_s + after.kernel_s - before.user_s - before.kernel_s
    return 1e6 * spent / float(done["messages"])


def add_acls(system: SecureOdradek, acls: Sequence[Acl]) -> None:
    admin = system.admin()
    for start in range(0, len(acls), AT_ONCE):
        for done in admin.create_acls([_binding(acl) for acl in acls[start : start + AT_ONCE]]).values():
            done.result(60)


def _binding(acl: Acl) -> Any:
    patterns = {Pattern.LITERAL: ResourcePatternType.LITERAL, Pattern.PREFIXED: ResourcePatternType.PREFIXED}
    return AclBinding(
        ResourceType.TOPIC,
        acl.resource_name,
        patterns[Pattern(acl.pattern_type)],
        acl.principal,
        acl.host,
        AclOperation(acl.operation),
        AclPermissionType.ALLOW,
    )


def difference(found: dict[str, list[float]]) -> tuple[float, float, float]:
    """More CPU for a request with ACLs: the median of the differences by round, the smallest and the largest."""
    pairs = zip(found[Guarded.title], found[Unguarded.title], strict=True)
    each = [guarded - unguarded for guarded, unguarded in pairs]
    return statistics.median(each), min(each), max(each)
