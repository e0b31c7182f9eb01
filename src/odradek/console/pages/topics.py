"""Topics: found, described with partitions and settings, created, altered, deleted."""

from dataclasses import dataclass
from typing import Any

from odradek.admin.failures import BadRequest
from odradek.admin.places import is_internal
from odradek.admin.resources import Kind
from odradek.admin.settings import SettingView, alter_settings, view_settings
from odradek.admin.topics import (
    BROKER_DEFAULT,
    NewTopic,
    PartitionView,
    add_partitions,
    create_topics,
    delete_topics,
    view_topics,
)
from odradek.console.paging import cut
from odradek.console.registry import Action, Page
from odradek.console.requests import Ask, doc
from odradek.console.users import Role
from odradek.console.watch.seen import Seen, TopicSeen

PAGE_SIZE = 50
PARTITIONS_SHOWN = 200


@dataclass(frozen=True)
class TopicsQuery:
    search: str = doc("Only topics whose names contain this.", "")
    sort: str = doc(
        "topic, partitions, replicas, size or rate; with - before it, the largest first.", "topic"
    )
    internal: bool = doc("Include internal topics.", False)
    page: int = doc("From 1; a page has 50 topics.", 1)


@dataclass(frozen=True)
class TopicRow:
    topic: str
    is_internal: bool
    partition_count: int
    replication_factor: int
    size_bytes: int | None
    records_per_second: float | None
    not_in_sync: int
    offline: int


@dataclass(frozen=True)
class TopicList:
    topics: list[TopicRow]
    count: int  # that match
    total: int
    page: int
    pages: int
    query: TopicsQuery
    is_known: bool  # False until the first look


SORTS: dict[str, Any] = {
    "topic": lambda topic, seen: topic.name,
    "partitions": lambda topic, seen: len(topic.leaders),
    "replicas": lambda topic, seen: topic.replication_factor,
    "size": lambda topic, seen: seen.disks.sizes.get(topic.name, 0) if seen.disks else 0,
    "rate": lambda topic, seen: seen.offsets.rates.get(topic.name, 0.0) if seen.offsets else 0.0,
}


def list_view(ask: Ask) -> TopicList:
    return find_topics(ask.cluster.seen, ask.query)


def find_topics(seen: Seen, query: TopicsQuery) -> TopicList:
    """Search what was seen last: typing in the search asks nothing of the cluster."""
    name = query.sort.removeprefix("-")
    if name not in SORTS:
        raise BadRequest(f"sort by {', '.join(SORTS)}")
    topics = list(seen.topology.topics.values()) if seen.topology is not None else []
    there = [topic for topic in topics if query.internal or not hidden(topic)]
    wanted = query.search.strip().lower()
    found = [topic for topic in there if wanted in topic.name.lower()] if wanted else there
    if query.sort != "topic":  # they are in that order
        found.sort(key=lambda topic: SORTS[name](topic, seen), reverse=query.sort.startswith("-"))
    shown, page, pages = cut(found, query.page, PAGE_SIZE)
    return TopicList(
        [row(topic, seen) for topic in shown],
        len(found),
        len(there),
        page,
        pages,
        query,
        seen.topology is not None,
    )


def hidden(topic: TopicSeen) -> bool:
    return topic.is_internal or is_internal(topic.name)


def row(topic: TopicSeen, seen: Seen) -> TopicRow:
    return TopicRow(
        topic=topic.name,
        is_internal=hidden(topic),
        partition_count=len(topic.leaders),
        replication_factor=topic.replication_factor,
        size_bytes=seen.disks.sizes.get(topic.name) if seen.disks else None,
        records_per_second=seen.offsets.rates.get(topic.name, 0.0) if seen.offsets else None,
        not_in_sync=topic.not_in_sync,
        offline=topic.offline,
    )


# One topic


@dataclass(frozen=True)
class TopicQuery:
    first: int = doc("The first partition to show.", 0)


@dataclass(frozen=True)
class TopicPage:
    topic: str
    topic_id: str
    is_internal: bool
    partition_count: int
    replication_factor: int
    size_bytes: int | None
    record_count: int | None
    records_per_second: float | None
    configs: dict[str, str]
    partitions: list[PartitionView]
    first: int
    groups: list[str]


def topic_view(ask: Ask) -> TopicPage:
    name = ask.path["topic"]
    (found,) = ask.recent(f"topic {name}", lambda access: view_topics(access, [name]))
    seen = ask.cluster.seen
    first = min(max(ask.query.first, 0), max(found.partition_count - 1, 0))
    records = [
        one.end_offset - one.start_offset
        for one in found.partitions
        if one.end_offset is not None and one.start_offset is not None
    ]
    return TopicPage(
        topic=found.topic,
        topic_id=found.topic_id,
        is_internal=found.internal or is_internal(found.topic),
        partition_count=found.partition_count,
        replication_factor=found.replication_factor,
        size_bytes=found.size_bytes,
        record_count=sum(records) if records else None,
        records_per_second=seen.offsets.rates.get(found.topic, 0.0) if seen.offsets else None,
        configs=found.configs,
        partitions=found.partitions[first : first + PARTITIONS_SHOWN],
        first=first,
        groups=[name for name, group in (seen.groups or {}).items() if found.topic in group.topics],
    )


@dataclass(frozen=True)
class TopicSettings:
    topic: str
    settings: list[SettingView]
    is_internal: bool


def settings_view(ask: Ask) -> TopicSettings:
    topic = ask.path["topic"]
    return TopicSettings(topic, view_settings(ask.access(), Kind.TOPIC, topic, []), is_internal(topic))


# Changes


@dataclass(frozen=True)
class NewTopicBody:
    topic: str = doc("Its name.")
    partitions: int | None = doc("How many; the broker's default if not given.", None)
    replication_factor: int | None = doc("Copies of each partition; the broker's default if not given.", None)
    configs: dict[str, str] = doc("Settings that differ from the defaults.", {})


def create(ask: Ask) -> dict[str, str]:
    body: NewTopicBody = ask.body
    topic = NewTopic(
        body.topic, body.partitions or BROKER_DEFAULT, body.replication_factor or BROKER_DEFAULT, body.configs
    )
    for refusal in create_topics(ask.access(), [topic]).values():
        if refusal is not None:
            raise refusal
    return {"topic": body.topic, "said": f"Created topic {body.topic}."}


@dataclass(frozen=True)
class AlterBody:
    set: dict[str, str] = doc("New values of settings.", {})
    delete: list[str] = doc("Settings to reset to their defaults.", [])
    partitions: int | None = doc("The new number of partitions; it can only grow.", None)


def alter(ask: Ask) -> dict[str, str]:
    topic, body = guarded(ask), ask.body
    if not body.set and not body.delete and body.partitions is None:
        raise BadRequest("nothing to change: give set, delete or partitions")
    access = ask.access()
    if body.set or body.delete:
        alter_settings(access, Kind.TOPIC, topic, body.set, body.delete)
    if body.partitions is not None:
        add_partitions(access, topic, body.partitions)
    return {"topic": topic, "said": f"Altered topic {topic}."}


@dataclass(frozen=True)
class DeleteBody:
    confirm: str = doc("The name of the topic once more.")


def delete(ask: Ask) -> dict[str, str]:
    topic = guarded(ask)
    if ask.body.confirm != topic:
        raise BadRequest(f"type the name of the topic, {topic}, to delete it with all its records")
    for refusal in delete_topics(ask.access(), [topic]).values():
        if refusal is not None:
            raise refusal
    return {"topic": topic, "said": f"Deleted topic {topic}."}


def guarded(ask: Ask) -> str:
    """The topic of the path; the console changes no internal one."""
    return check_ours(ask.path["topic"])


def check_ours(topic: str) -> str:
    if is_internal(topic):
        raise BadRequest(
            f"{topic}: the cluster keeps its own state in internal topics; use the command with --force"
        )
    return topic


PAGES = [
    Page(
        path="topics",
        title="Topics",
        view=list_view,
        template="topics.html",
        summary="List topics, a page of them, from what was seen last.",
        query=TopicsQuery,
        nav="Topics",
        live_template="topics_live.html",
        parts=("topology", "offsets", "disks"),
        script="list.js",
    ),
    Page(
        path="topics/{topic}",
        title="{topic}",
        view=topic_view,
        template="topic.html",
        summary="Describe a topic: partitions with leaders, replicas, offsets and sizes.",
        query=TopicQuery,
        live_template="topic_live.html",
        parts=("topology", "offsets"),
    ),
    Page(
        path="topics/{topic}/settings",
        title="{topic}: settings",
        view=settings_view,
        template="topic_settings.html",
        summary="List the settings of a topic with their sources.",
        script="settings.js",
    ),
]
ACTIONS = [
    Action(
        *("POST", "topics", "Create a topic.", create, Role.EDITOR),
        body=NewTopicBody,
        target=lambda ask: ask.body.topic,
        refreshes=("topology", "disks", "offsets"),
    ),
    Action(
        *("PATCH", "topics/{topic}", "Alter a topic.", alter, Role.EDITOR),
        body=AlterBody,
        target=lambda ask: " ".join([ask.path["topic"], *ask.body.set, *ask.body.delete]),
        refreshes=("topology",),
    ),
    Action(
        *("DELETE", "topics/{topic}", "Delete a topic.", delete, Role.ADMIN),
        body=DeleteBody,
        refreshes=("topology", "disks", "offsets"),
    ),
]
