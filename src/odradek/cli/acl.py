"""`odradek acl`: who may do what. It uses Kafka's protocol, so it works with any Kafka; its options are called as those
of `kafka-acls.sh`.
"""

from dataclasses import asdict
from enum import Enum
from typing import TYPE_CHECKING, Annotated

from odradek.acls.acl import THE_CLUSTER, Acl
from odradek.acls.codes import OPERATIONS, Operation, Pattern, Permission, Resource
from odradek.acls.filters import AclFilter
from odradek.admin.access import Access
from odradek.cli.access import on_cluster
from odradek.cli.arguments import JsonOutput
from odradek.cli.completion import complete_topics
from odradek.cli.danger import Yes, confirm
from odradek.cli.framework import Argument, BadParameter, Exit, Group, Option
from odradek.cli.output import print_columns, print_json, print_line
from odradek.wording import count_of

if TYPE_CHECKING:
    from odradek.admin.acls import Grant, Named

app = Group(help="Say who may do what: add, list, remove and explain ACLs.")

NOT_ALLOWED = 1


class NewPattern(Enum):
    LITERAL = "literal"
    PREFIXED = "prefixed"


class AnyPattern(Enum):
    ANY = "any"
    MATCH = "match"
    LITERAL = "literal"
    PREFIXED = "prefixed"


AllowPrincipal = Annotated[
    list[str] | None, Option("--allow-principal", metavar="User:NAME", help="Who may; repeatable.")
]
DenyPrincipal = Annotated[
    list[str] | None, Option("--deny-principal", metavar="User:NAME", help="Who may not; repeatable.")
]
AllowHost = Annotated[
    list[str] | None,
    Option(
        "--allow-host",
        metavar="ADDRESS",
        help="From where the principals may; repeatable; else from anywhere.",
    ),
]
DenyHost = Annotated[
    list[str] | None,
    Option("--deny-host", metavar="ADDRESS", help="From where the principals may not; else from anywhere."),
]
Principals = Annotated[
    list[str] | None, Option("--principal", metavar="User:NAME", help="Only ACLs about these; repeatable.")
]
Operations = Annotated[
    list[str] | None,
    Option("--operation", metavar="NAME", help="Read, Write, Describe …; repeatable; else All."),
]
Topics = Annotated[
    list[str] | None,
    Option("--topic", metavar="NAME", help="A topic, or * for all; repeatable.", complete=complete_topics),
]
Groups = Annotated[
    list[str] | None, Option("--group", metavar="NAME", help="A consumer group, or * for all; repeatable.")
]
TransactionalIds = Annotated[
    list[str] | None,
    Option("--transactional-id", metavar="ID", help="A transactional id, or * for all; repeatable."),
]
OfCluster = Annotated[bool, Option("--cluster", help="The cluster itself.")]
NewPatternType = Annotated[
    NewPattern, Option("--resource-pattern-type", help="Whether names are whole, or the beginnings of names.")
]
PatternType = Annotated[
    AnyPattern | None,
    Option(
        "--resource-pattern-type", help="Only such patterns; match: all that concern a resource of that name."
    ),
]
Producer = Annotated[bool, Option("--producer", help="All that a producer to the --topic needs.")]
Consumer = Annotated[
    bool, Option("--consumer", help="All that a consumer of the --topic in the --group needs.")
]
Idempotent = Annotated[
    bool, Option("--idempotent", help="With --producer: for brokers older than Kafka 3.0, too.")
]


@app.command()
@on_cluster
def add(
    cluster: Access,
    allow_principal: AllowPrincipal = None,
    deny_principal: DenyPrincipal = None,
    allow_host: AllowHost = None,
    deny_host: DenyHost = None,
    operation: Operations = None,
    topic: Topics = None,
    group: Groups = None,
    transactional_id: TransactionalIds = None,
    of_cluster: OfCluster = False,
    resource_pattern_type: NewPatternType = NewPattern.LITERAL,
    producer: Producer = False,
    consumer: Consumer = False,
    idempotent: Idempotent = False,
) -> None:
    """Allow principals to do something, or deny it to them."""
    from odradek.admin.acls import Named, create_acls, new_acls

    named = Named(topic or (), group or (), transactional_id or (), of_cluster)
    if not allow_principal and not deny_principal:
        raise BadParameter("say who: --allow-principal or --deny-principal")
    if producer or consumer:
        grants = _conveniences(named, producer, consumer, idempotent)
        if deny_principal or operation:
            raise BadParameter("--producer and --consumer go with --allow-principal alone")
    else:
        grants = _grants(named, operation)
    pattern = Pattern[resource_pattern_type.name]
    acls = [
        *new_acls(grants, pattern, _principals(allow_principal), allow_host or (), Permission.ALLOW),
        *new_acls(grants, pattern, _principals(deny_principal), deny_host or (), Permission.DENY),
    ]
    create_acls(cluster, acls)
    for acl in acls:
        print_line(str(acl))


@app.command("list")
@on_cluster
def list_acls(
    cluster: Access,
    principal: Principals = None,
    topic: Topics = None,
    group: Groups = None,
    transactional_id: TransactionalIds = None,
    of_cluster: OfCluster = False,
    resource_pattern_type: PatternType = None,
    json: JsonOutput = False,
) -> None:
    """List ACLs: all of them, or those of some principals or resources."""
    from odradek.admin.acls import Named, view_of

    named = Named(topic or (), group or (), transactional_id or (), of_cluster)
    views = [view_of(acl) for acl in _found(cluster, named, principal, resource_pattern_type)]
    if json:
        print_json([asdict(view) for view in views])
        return
    header = ("RESOURCE", "NAME", "PATTERN", "PRINCIPAL", "HOST", "OPERATION", "PERMISSION")
    print_columns(header, [tuple(asdict(view).values()) for view in views])


@app.command()
@on_cluster
def remove(
    cluster: Access,
    allow_principal: AllowPrincipal = None,
    deny_principal: DenyPrincipal = None,
    allow_host: AllowHost = None,
    deny_host: DenyHost = None,
    operation: Operations = None,
    principal: Principals = None,
    topic: Topics = None,
    group: Groups = None,
    transactional_id: TransactionalIds = None,
    of_cluster: OfCluster = False,
    resource_pattern_type: PatternType = None,
    producer: Producer = False,
    consumer: Consumer = False,
    idempotent: Idempotent = False,
    yes: Yes = False,
) -> None:
    """Remove the ACLs that 'acl list' shows with the same options, or of these only what 'acl add' would have added."""
    from odradek.admin.acls import Named, delete_acls

    named = Named(topic or (), group or (), transactional_id or (), of_cluster)
    if not (named.patterns() or principal or allow_principal or deny_principal):
        raise BadParameter("say which: name resources, or principals")
    found = _found(cluster, named, principal, resource_pattern_type)
    wanted = None
    if producer or consumer:
        wanted = {grant[2] for grant in _conveniences(named, producer, consumer, idempotent)}
    elif operation:
        wanted = {_operation(each) for each in operation}
    sides = {
        Permission.ALLOW: (allow_principal, allow_host),
        Permission.DENY: (deny_principal, deny_host),
    }
    if any(people or hosts for people, hosts in sides.values()):
        found = [acl for acl in found if _is_meant(acl, *sides[Permission(acl.permission)])]
    found = [acl for acl in found if wanted is None or acl.operation in wanted]
    if not found:
        print_line("No ACL matches.")
        return
    for acl in found:
        print_line(str(acl))
    confirm(f"Remove {count_of(len(found), 'ACL')}?", yes)
    delete_acls(cluster, found)
    print_line(f"Removed {count_of(len(found), 'ACL')}.")


def _is_meant(acl: Acl, principals: list[str] | None, hosts: list[str] | None) -> bool:
    if principals is None and hosts is None:
        return False
    return (not principals or acl.principal in principals) and (not hosts or acl.host in hosts)


@app.command()
@on_cluster
def explain(
    cluster: Access,
    principal: Annotated[str, Argument(metavar="PRINCIPAL", help="User:NAME")],
    operation: Annotated[str, Argument(metavar="OPERATION", help="Read, Write, Describe …")],
    resource: Annotated[
        str, Argument(metavar="RESOURCE", help="topic:NAME, group:NAME, transactional-id:ID, or cluster")
    ],
    host: Annotated[
        str, Option("--host", metavar="ADDRESS", help="From where; else from an unknown one.")
    ] = "",
    json: JsonOutput = False,
) -> None:
    """Say whether a principal may do something, and which ACL decides. Exits with 1 if it may not."""
    from odradek.admin.acls import as_json
    from odradek.admin.acls import explain as explain_question

    (who,) = _principals([principal])
    kind, name = _resource(resource)
    explanation = explain_question(cluster, who, host, _operation(operation), kind, name)
    if json:
        print_json(as_json(explanation))
    else:
        verdict = "may" if explanation.is_allowed else "may not"
        print_line(f"{who} {verdict} {_operation(operation).name} {resource}: {explanation.reason}.")
    if not explanation.is_allowed:
        raise Exit(NOT_ALLOWED)


# --- what options say ---


def _found(
    cluster: Access, named: "Named", principals: list[str] | None, pattern: AnyPattern | None
) -> list[Acl]:
    """kafka-acls.sh looks for literal patterns, if it is not told otherwise; here all are found."""
    from odradek.admin.acls import acls_of

    pattern_type = Pattern[pattern.name] if pattern is not None else Pattern.ANY
    filters = [AclFilter(kind, name, pattern_type) for kind, name in named.patterns()]
    found = [
        acl for each in filters or [AclFilter(pattern_type=pattern_type)] for acl in acls_of(cluster, each)
    ]
    wanted = None if principals is None else set(_principals(principals))
    return sorted({acl for acl in found if wanted is None or acl.principal in wanted})


def _conveniences(named: "Named", producer: bool, consumer: bool, idempotent: bool) -> "list[Grant]":
    from odradek.admin.acls import grants_of_consumer, grants_of_producer

    if not named.topics:
        raise BadParameter("--producer and --consumer need a --topic")
    if consumer and not named.groups:
        raise BadParameter("--consumer needs a --group")
    return [
        *(grants_of_producer(named, idempotent) if producer else []),
        *(grants_of_consumer(named) if consumer else []),
    ]


def _grants(named: "Named", operations: list[str] | None) -> "list[Grant]":
    if not named.patterns():
        raise BadParameter("say what: --topic, --group, --transactional-id or --cluster")
    wanted = [_operation(each) for each in operations or ["All"]]
    for kind, _ in named.patterns():
        for operation in wanted:
            if operation is not Operation.ALL and operation not in OPERATIONS[kind]:
                known = ", ".join(each.name for each in OPERATIONS[kind])
                raise BadParameter(f"{operation.name} means nothing for a {kind.name}, only {known} and ALL")
    return [(kind, name, operation) for kind, name in named.patterns() for operation in wanted]


def _principals(texts: list[str] | None) -> list[str]:
    for text in texts or ():
        kind, colon, name = text.partition(":")
        if not kind or not colon or not name:
            raise BadParameter(f"{text!r} is not a principal: write its type too, User:{text}")
    return texts or []


def _operation(text: str) -> Operation:
    """Read an operation: DescribeConfigs, describe-configs and DESCRIBE_CONFIGS are the same."""
    plain = text.replace("-", "").replace("_", "").lower()
    for operation in Operation:
        if operation > Operation.ANY and operation.name.replace("_", "").lower() == plain:
            return operation
    known = ", ".join(each.name for each in Operation if each > Operation.ANY)
    raise BadParameter(f"there is no operation {text!r}, only {known}")


def _resource(text: str) -> tuple[Resource, str]:
    kind, _, name = text.partition(":")
    kinds = {"topic": Resource.TOPIC, "group": Resource.GROUP, "transactional-id": Resource.TRANSACTIONAL_ID}
    if kind.lower() == "cluster":
        return Resource.CLUSTER, THE_CLUSTER
    if kind.lower() not in kinds or not name:
        raise BadParameter(
            f"{text!r} is not a resource: topic:NAME, group:NAME, transactional-id:ID or cluster"
        )
    return kinds[kind.lower()], name
