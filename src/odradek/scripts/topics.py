"""kafka-topics.sh: create, delete, describe or change a topic."""

import re
from collections.abc import Sequence

from odradek.admin.access import Access
from odradek.admin.failures import AdminError
from odradek.admin.metadata import Metadata, Partition, metadata, metadata_of
from odradek.admin.places import Place, is_internal
from odradek.admin.reassignment_requests import Reassignment, list_all
from odradek.admin.status import fewest_in_sync_of
from odradek.admin.topics import (
    Eligible,
    NewTopic,
    add_partitions,
    create_topics,
    delete_topics,
    eligible_leaders,
    own_settings,
)
from odradek.errors import ErrorCode
from odradek.model import id_from_text, id_to_text
from odradek.scripts.options import Flag, Given, Parser
from odradek.scripts.running import BOOTSTRAP, COMMAND_CONFIG, print_line, run_action, said
from odradek.wording import joined

ACTIONS = ("list", "describe", "create", "alter", "delete")
REPORTS = (
    "under-replicated-partitions",
    "unavailable-partitions",
    "under-min-isr-partitions",
    "at-min-isr-partitions",
)
PARSER = Parser(
    "This tool helps to create, delete, describe, or change a topic.",
    [
        BOOTSTRAP,
        COMMAND_CONFIG,
        Flag("list", "List all available topics."),
        Flag("create", "Create a new topic."),
        Flag("delete", "Delete a topic."),
        Flag("alter", "Alter the number of partitions and replica assignment."),
        Flag("describe", "List details for the given topics."),
        Flag("topic", "The topic, or a regular expression, except for --create.", "topic"),
        Flag("topic-id", "The topic-id to describe.", "topic-id"),
        Flag("config", "A topic configuration override for the topic being created.", "name=value"),
        Flag("delete-config", "No longer supported, since Kafka 4.0.", "name"),
        Flag("partitions", "The number of partitions.", "# of partitions", int),
        Flag("replication-factor", "The replication factor of each partition.", "replication factor", int),
        Flag("replica-assignment", "Replicas of each partition, such as 1:2,2:3.", "broker ids"),
        Flag("under-replicated-partitions", "Only show under-replicated partitions."),
        Flag("unavailable-partitions", "Only show partitions whose leader is not available."),
        Flag("under-min-isr-partitions", "Only show partitions below min.insync.replicas."),
        Flag("at-min-isr-partitions", "Only show partitions that are at min.insync.replicas."),
        Flag("topics-with-overrides", "Only show topics that have overridden configs."),
        Flag("if-exists", "Do nothing if the topic does not exist."),
        Flag("if-not-exists", "Do nothing if the topic exists."),
        Flag("exclude-internal", "Exclude internal topics when listing or describing."),
        Flag("partition-size-limit-per-response", "Of no effect here.", "number of partitions", int),
    ],
)


def main(arguments: Sequence[str]) -> int:
    given = PARSER.parse(arguments)
    check(given)
    actions = {
        "list": list_topics,
        "describe": describe,
        "create": create,
        "alter": alter,
        "delete": delete,
    }
    try:
        run_action(given, actions)
    except AdminError as error:
        print_line(f"Error while executing topic command : {said(error)}")
        return 1
    return 0


def check(given: Given) -> None:
    if sum(map(given.has, ACTIONS)) != 1:
        PARSER.fail(
            "Command must include exactly one action: --list, --describe, --create, --alter or --delete"
        )
    PARSER.require(given, "bootstrap-server")
    if given.has("describe") and given.has("if-exists") and not (given.has("topic") or given.has("topic-id")):
        PARSER.require(given, "topic")
    if not given.has("list") and not given.has("describe"):
        PARSER.require(given, "topic")
    if given.has("alter"):
        if given.has("config") or given.has("delete-config"):
            PARSER.fail("Altering topic configs is not supported here: use kafka-configs.sh")
        PARSER.require(given, "partitions")
    if given.has("create"):
        PARSER.exclude(given, "replica-assignment", "partitions", "replication-factor")
    for name in (*REPORTS, "topics-with-overrides"):
        if given.has(name) and not given.has("describe"):
            PARSER.fail(f'Option "[{name}]" can only be used with "[describe]"')
    if sum(map(given.has, (*REPORTS, "topics-with-overrides"))) > 1:
        PARSER.fail("Only one of the options that report certain partitions can be used")


# Actions


def chosen(found: Metadata, given: Given, *, must_exist: bool) -> list[str]:
    """The topics that the options name: all, or those that a regular expression matches."""
    names = [
        name for name in sorted(found.topics) if not (given.has("exclude-internal") and is_internal(name))
    ]
    wanted = given.text("topic")
    if given.text("topic-id"):
        names = [name for name in names if id_to_text(found.topics[name].id) == given.text("topic-id")]
        if not names and must_exist:
            raise AdminError(f"TopicId '{given.text('topic-id')}' does not exist as expected")
        return names
    if wanted is None:
        return names
    patterns = [re.compile(one.strip()) for one in wanted.split(",") if one.strip()]
    names = [name for name in names if any(one.fullmatch(name) for one in patterns)]
    if not names and must_exist:
        raise AdminError(f"Topic '{wanted}' does not exist as expected")
    return names


def list_topics(cluster: Access, given: Given) -> None:
    print_line("\n".join(chosen(metadata(cluster), given, must_exist=False)))


def create(cluster: Access, given: Given) -> None:
    name = given.text("topic") or ""
    if "." in name or "_" in name:
        print_line(
            "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could "
            "collide. To avoid issues it is best to use either, but not both."
        )
    partitions, factor = given.number("partitions"), given.number("replication-factor")
    if factor is not None and not 1 <= factor <= 32767:
        raise AdminError("The replication factor must be between 1 and 32767 inclusive")
    if partitions is not None and partitions < 1:
        raise AdminError("The partitions must be greater than 0")
    topic = NewTopic(
        name,
        -1 if partitions is None else partitions,
        -1 if factor is None else factor,
        dict(_config(text) for text in given.values("config")),
        assignment(given.text("replica-assignment")),
    )
    refusal = create_topics(cluster, [topic])[name]
    if refusal is None:
        print_line(f"Created topic {name}.")
    elif refusal.code is not ErrorCode.TOPIC_ALREADY_EXISTS or not given.has("if-not-exists"):
        raise refusal


def _config(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        PARSER.fail('Invalid topic config: all configs to be added must be in the format "key=val".')
    return key.strip(), value.strip()


def assignment(text: str | None) -> dict[int, list[int]]:
    """Read `1:2,2:3`: the replicas of each partition."""
    if text is None:
        return {}
    try:
        found = [[int(one) for one in part.split(":")] for part in text.split(",")]
    except ValueError:
        raise AdminError(f"{text!r} is not a list of broker ids such as 1:2,2:3") from None
    for number, replicas in enumerate(found):
        if len(set(replicas)) < len(replicas):
            raise AdminError("Partition replica lists may not contain duplicate entries")
        if len(replicas) != len(found[0]):
            raise AdminError(f"Partition {number} has different replication factor: {replicas}")
    return dict(enumerate(found))


def alter(cluster: Access, given: Given) -> None:
    found = metadata(cluster)
    replicas = list(assignment(given.text("replica-assignment")).values())
    for name in chosen(found, given, must_exist=not given.has("if-exists")):
        new = replicas[len(found.topics[name].partitions) :] if replicas else None
        add_partitions(cluster, name, given.number("partitions") or 0, new)


def delete(cluster: Access, given: Given) -> None:
    names = chosen(metadata(cluster), given, must_exist=not given.has("if-exists"))
    for refusal in delete_topics(cluster, names).values() if names else ():
        if refusal is not None:
            raise refusal


# Describing


def describe(cluster: Access, given: Given) -> None:
    if given.text("topic-id"):
        try:
            id_from_text(given.text("topic-id") or "")
        except ValueError:
            raise AdminError(f"{given.text('topic-id')} is not a topic id") from None
    names = chosen(metadata(cluster), given, must_exist=not given.has("if-exists"))
    if not names:
        return
    found = metadata_of(cluster, names)
    anyone = next(iter(found.brokers.values())).address
    configs = own_settings(cluster, anyone, names)
    needs_fewest = given.has("under-min-isr-partitions") or given.has("at-min-isr-partitions")
    fewest = fewest_in_sync_of(cluster, anyone, names) if needs_fewest else {}
    moving, eligible = list_all(cluster), eligible_leaders(cluster, names)
    only_overrides = given.has("topics-with-overrides")
    reports = [name for name in REPORTS if given.has(name)]
    for name in names:
        topic = found.topics[name]
        if not reports and (configs.get(name) or not only_overrides):
            print_line(header_of(name, id_to_text(topic.id), list(topic.partitions.values()), configs[name]))
        for one in () if only_overrides else topic.partitions.values():
            move = moving.get(Place(name, one.id))
            if not reports or is_reported(reports[0], one, move, fewest.get(name, 1), found):
                print_line(line_of(name, one, move, eligible.get(Place(name, one.id))))


def header_of(name: str, topic_id: str, partitions: list[Partition], configs: dict[str, str]) -> str:
    shown = ",".join(f"{key}={value}" for key, value in configs.items())
    factor = len(partitions[0].replicas) if partitions else 0
    return (
        f"Topic: {name}\tTopicId: {topic_id}\tPartitionCount: {len(partitions)}"
        f"\tReplicationFactor: {factor}\tConfigs: {shown}"
    )


def line_of(name: str, one: Partition, move: Reassignment | None, eligible: Eligible | None) -> str:
    leader = "none" if one.leader is None else one.leader
    moved = (
        f"\tAdding Replicas: {joined(move.adding)}\tRemoving Replicas: {joined(move.removing)}"
        if move
        else ""
    )
    elr, last = ("N/A", "N/A") if eligible is None else map(joined, eligible)
    return (
        f"\tTopic: {name}\tPartition: {one.id}\tLeader: {leader}\tReplicas: {joined(one.replicas)}"
        f"\tIsr: {joined(one.isr)}{moved}\tElr: {elr}\tLastKnownElr: {last}"
    )


def is_reported(report: str, one: Partition, move: Reassignment | None, fewest: int, found: Metadata) -> bool:
    wanted = len(one.replicas) - (len(move.adding) if move else 0)
    return {
        "under-replicated-partitions": len(one.isr) < wanted,
        "unavailable-partitions": one.leader is None or one.leader not in found.brokers,
        "under-min-isr-partitions": one.leader is None or len(one.isr) < fewest,
        "at-min-isr-partitions": len(one.isr) == fewest,
    }[report]
