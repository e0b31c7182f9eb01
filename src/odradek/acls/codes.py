"""Operations, types of resources, patterns and permissions, with Kafka's codes.

UNKNOWN is whatever a later release may add; ANY and MATCH are for filters only.
"""

from enum import IntEnum


class Operation(IntEnum):
    """An operation that an ACL allows or denies."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15

    __hash__ = (
        int.__hash__
    )  # that of Enum is a function in Python, and every request looks answers up by these


class Resource(IntEnum):
    """A kind of resource that an ACL is about."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7

    __hash__ = int.__hash__


class Pattern(IntEnum):
    """A way for an ACL to name resources."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2  # for filters: every pattern that a resource of that name matches
    LITERAL = 3
    PREFIXED = 4

    __hash__ = int.__hash__


class Permission(IntEnum):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3

    __hash__ = int.__hash__


READ, WRITE, CREATE, DELETE, ALTER = (
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
)
DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS = (
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
# The operations that each type of resource has.
OPERATIONS: dict[Resource, tuple[Operation, ...]] = {
    Resource.TOPIC: (READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS),
    Resource.GROUP: (READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS),
    Resource.CLUSTER: (
        *(CREATE, ALTER, DESCRIBE, Operation.CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS),
        Operation.IDEMPOTENT_WRITE,
    ),
    Resource.TRANSACTIONAL_ID: (WRITE, DESCRIBE, Operation.TWO_PHASE_COMMIT),
    Resource.DELEGATION_TOKEN: (DESCRIBE,),
    Resource.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}
# An ACL that allows one of these allows the key, too.
IMPLIED_BY: dict[int, frozenset[int]] = {
    DESCRIBE: frozenset({READ, WRITE, DELETE, ALTER}),
    DESCRIBE_CONFIGS: frozenset({ALTER_CONFIGS}),
}
