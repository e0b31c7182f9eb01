"""Random ACLs and questions whose names, prefixes, hosts and principals often meet, and often nearly."""

from random import Random

from odradek.acls.acl import Acl
from odradek.acls.codes import Operation, Pattern, Permission, Resource

PRINCIPALS = ["User:a", "User:b", "User:*", "User:CN=a,O=b", "Group:a"]
ASKING = ["User:a", "User:b", "User:c", "User:CN=a,O=b", "Group:a", "User:*"]
HOSTS = ["*", "*", "*", "10.0.0.1", "10.0.0.2", "::1", "0:0:0:0:0:0:0:1", "10.0.0.0/24", "nonsense"]
ASKING_FROM = ["10.0.0.1", "10.0.0.2", "10.0.1.1", "::1", "", "::ffff:10.0.0.1"]
RESOURCES = [Resource.TOPIC, Resource.TOPIC, Resource.GROUP, Resource.CLUSTER, Resource.TRANSACTIONAL_ID]
OPERATIONS = [operation for operation in Operation if operation > Operation.ALL]
LETTERS = "ab*"


def a_name(rng: Random, resource: Resource) -> str:
    if resource is Resource.CLUSTER:
        return "kafka-cluster"
    return "*" if rng.random() < 0.1 else "".join(rng.choices(LETTERS, k=rng.randint(1, 4)))


def an_acl(rng: Random) -> Acl:
    resource = rng.choice(RESOURCES)
    return Acl(
        resource,
        a_name(rng, resource),
        rng.choice((Pattern.LITERAL, Pattern.PREFIXED)),
        rng.choice(PRINCIPALS),
        rng.choice(HOSTS),
        rng.choice((Operation.ALL, *OPERATIONS)),
        rng.choice((Permission.ALLOW, Permission.ALLOW, Permission.DENY)),
    )


def a_question(rng: Random) -> tuple[str, str, Operation, Resource, str]:
    resource = rng.choice(RESOURCES)
    name = "" if resource is Resource.CLUSTER else a_name(rng, resource)
    return rng.choice(ASKING), rng.choice(ASKING_FROM), rng.choice(OPERATIONS), resource, name
