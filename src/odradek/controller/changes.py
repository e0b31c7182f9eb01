"""Describes a decision of the controller for the log. Pure: from the image before it, and its records.

It names topics that are created, deleted or get more partitions, partitions that are moved to other brokers, settings
with their old and new values, and users, quotas and ACLs that are set or removed. Secrets are not shown. Broker
registrations and blocks of producer ids are left out: no client asked for them.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from odradek.acls.acl import Acl
from odradek.config.broker import definition_of
from odradek.metadata.delta import acl_of
from odradek.metadata.image import DECOYS, ConfigResource, MetadataImage, ResourceType
from odradek.metadata.records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from odradek.model import id_to_text
from odradek.security.credentials import BY_CODE
from odradek.wording import count_of, one_line, shown, some

MAX_VALUE = 200  # characters of a setting
MOVES_SHOWN = 3  # one by one

RESOURCES = {ResourceType.TOPIC: "topic", ResourceType.BROKER: "broker", ResourceType.GROUP: "group"}


class Change(NamedTuple):
    text: str  # "created topic foo …"; the log line begins with who asked for it
    fields: dict[str, Any]
    is_audited: bool = False  # its line is in the audit log (`serving.audit`)


class _NewTopic:
    def __init__(self, record: TopicRecord) -> None:
        self.name = record.name
        self.id = record.topic_id
        self.partitions: list[PartitionRecord] = []
        self.settings: list[str] = []

    def change(self) -> Change:
        replicas = len(self.partitions[0].replicas) if self.partitions else 0
        settings = f", {', '.join(self.settings)}" if self.settings else ""
        text = (
            f"created topic {self.name} (id {id_to_text(self.id)}) with "
            f"{count_of(len(self.partitions), 'partition')}, replication factor {replicas}{settings}"
        )
        return Change(text, {"topic": self.name, "partitions": len(self.partitions)})


def changes(before: MetadataImage, records: Sequence[MetadataRecord]) -> Iterator[Change]:
    created: dict[UUID, _NewTopic] = {}
    grown: dict[UUID, int] = {}
    settings: list[ConfigRecord] = []
    removed: list[UUID] = []
    moved: list[PartitionChangeRecord] = []
    users: list[UserScramCredentialRecord | RemoveUserScramCredentialRecord] = []
    for record in records:
        if isinstance(record, TopicRecord):
            created[record.topic_id] = _NewTopic(record)
        elif isinstance(record, PartitionRecord):
            if record.topic_id in created:
                created[record.topic_id].partitions.append(record)
            else:
                grown[record.topic_id] = grown.get(record.topic_id, 0) + 1
        elif isinstance(record, PartitionChangeRecord):
            moved.append(record)
        elif isinstance(record, ConfigRecord):
            settings.append(record)
        elif isinstance(record, RemoveTopicRecord):
            removed.append(record.topic_id)
        elif isinstance(record, UserScramCredentialRecord | RemoveUserScramCredentialRecord):
            users.append(record)
    new_by_name = {topic.name: topic for topic in created.values()}
    for record in settings:
        if record.resource_type == ResourceType.TOPIC and record.resource_name in new_by_name:
            new_by_name[record.resource_name].settings.append(f"{record.name}={_value(record, record.value)}")
    yield from (topic.change() for topic in created.values())
    yield from (_grown(before, topic_id, count) for topic_id, count in grown.items())
    yield from _moves(
        before,
        [
            record
            for record in moved
            if record.replicas is not None
            or record.adding_replicas is not None
            or record.removing_replicas is not None
        ],
    )
    yield from (
        _altered(before, record)
        for record in settings
        if record.resource_type != ResourceType.TOPIC or record.resource_name not in new_by_name
    )
    yield from (_removed(before, topic_id) for topic_id in removed)
    yield from (_login(record) for record in users if record.name != DECOYS.name)
    yield from (_quota(before, record) for record in records if isinstance(record, ClientQuotaRecord))
    yield from _acls(before, records)


def _grown(before: MetadataImage, topic_id: UUID, count: int) -> Change:
    topic = before.topics_by_id[topic_id]
    total = len(topic.partitions) + count
    text = f"added {count_of(count, 'partition')} to topic {topic.name}, which has {total} now"
    return Change(text, {"topic": topic.name, "partitions": total})


def _moves(before: MetadataImage, records: list[PartitionChangeRecord]) -> Iterator[Change]:
    """A line for each partition, or one for all that begin or end their moves together."""
    if len(records) <= MOVES_SHOWN:
        yield from (_moved(before, record) for record in records)
        return
    for verb, is_begun in (("began to move", True), ("moved", False)):
        names = [
            f"{before.topics_by_id[record.topic_id].name}-{record.partition_id}"
            for record in records
            if _is_under_way(before, record) is is_begun
        ]
        if names:
            text = f"{verb} {count_of(len(names), 'partition')}: {some(names)}"
            yield Change(text, {"partitions": len(names)})


def _is_under_way(before: MetadataImage, record: PartitionChangeRecord) -> bool:
    old = before.topics_by_id[record.topic_id].partitions[record.partition_id]
    adding = old.adding_replicas if record.adding_replicas is None else record.adding_replicas
    removing = old.removing_replicas if record.removing_replicas is None else record.removing_replicas
    return bool(adding or removing)


def _moved(before: MetadataImage, record: PartitionChangeRecord) -> Change:
    topic = before.topics_by_id[record.topic_id]
    old = topic.partitions[record.partition_id]
    adding, removing, replicas = (
        list(kept) if new is None else new
        for kept, new in (
            (old.adding_replicas, record.adding_replicas),
            (old.removing_replicas, record.removing_replicas),
            (old.replicas, record.replicas),
        )
    )
    name = f"{topic.name}-{record.partition_id}"
    if adding or removing:
        target = [replica for replica in replicas if replica not in removing]
        text = f"began to move {name} from brokers {_ids(old.replicas)} to {_ids(target)}"
    else:
        text = f"moved {name} from brokers {_ids(old.replicas)} to {_ids(replicas)}"
    return Change(text, {"topic": topic.name, "partition": record.partition_id})


def _ids(replicas: Iterable[int]) -> str:
    return ",".join(map(str, replicas))


def _removed(before: MetadataImage, topic_id: UUID) -> Change:
    topic = before.topics_by_id[topic_id]
    text = f"deleted topic {topic.name} (id {id_to_text(topic_id)}) with {count_of(len(topic.partitions), 'partition')}"
    return Change(text, {"topic": topic.name})


def _altered(before: MetadataImage, record: ConfigRecord) -> Change:
    kind = RESOURCES.get(ResourceType(record.resource_type), "resource")
    old = before.configs.get(ConfigResource(record.resource_type, record.resource_name), {}).get(record.name)
    name = "all brokers" if not record.resource_name else f"{kind} {_name(kind, record.resource_name)}"
    was, is_now = (_value(record, value) for value in (old, record.value))
    text = f"set {record.name} of {name} from {was} to {is_now}"
    return Change(text, {kind: record.resource_name, "setting": record.name})


def _login(record: UserScramCredentialRecord | RemoveUserScramCredentialRecord) -> Change:
    verb = "set" if isinstance(record, UserScramCredentialRecord) else "removed"
    text = f"{verb} the {BY_CODE[record.mechanism].name} credential of user {shown(record.name)}"
    return Change(text, {"user": record.name}, is_audited=True)


def _quota(before: MetadataImage, record: ClientQuotaRecord) -> Change:
    entity = tuple(sorted((item.entity_type, item.entity_name) for item in record.entity))
    who = ", ".join(
        f"the default {kind}" if name is None else f"{kind} {shown(name)}" for kind, name in entity[::-1]
    )
    was = before.quotas.get(entity, {}).get(record.key)
    old = "no limit" if was is None else f"{was:g}"
    if record.remove:
        text = f"removed the quota {record.key} ({old}) of {who}"
    else:
        text = f"set the quota {record.key} of {who} from {old} to {record.value:g}"
    return Change(text, {"quota": record.key, "entity": who}, is_audited=True)


def _acls(before: MetadataImage, records: Sequence[MetadataRecord]) -> Iterator[Change]:
    for record in records:
        if isinstance(record, AccessControlEntryRecord):
            yield _acl("created", acl_of(record))
        elif isinstance(record, RemoveAccessControlEntryRecord):
            yield _acl("removed", before.acls[record.id])


def _acl(verb: str, acl: Acl) -> Change:
    return Change(f"{verb} ACL {one_line(str(acl), MAX_VALUE)}", {"user": acl.principal}, is_audited=True)


def _name(kind: str, name: str) -> str:
    """A group may have any name; the names of topics and brokers were checked."""
    return shown(name) if kind == "group" else name


def _value(record: ConfigRecord, value: str | None) -> str:
    if value is None:
        return "its default"
    if record.resource_type == ResourceType.BROKER:
        definition = definition_of(record.name)
        if definition is None or definition.is_sensitive:
            return "[hidden]"
    return one_line(value, MAX_VALUE) or '""'
