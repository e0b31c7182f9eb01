"""One change of a consumer group while it is being decided: the resulting group, and the records that
make it so.

A handler must not touch the group, yet each of its steps builds on the one before (a new member changes the
subscribed topics, those the epoch, that the assignment, that the member's own partitions). A draft overlays the
few members that a request changes on the existing group, so its cost is proportional to the change.
The order of the records is the order of the steps; replaying them on the group gives the draft's state.
"""

from collections.abc import Iterator, Mapping, Sequence
from uuid import UUID

from odradek.coordinators import records
from odradek.coordinators.consumer.assignment import NO_PARTITIONS, Partitions, TopicPartitionsLike
from odradek.coordinators.consumer.assignors import ASSIGNORS, MemberSpec
from odradek.coordinators.consumer.group import (
    ConsumerGroup,
    add_to_count,
    assignment_epoch_record,
    epoch_record,
    most_wanted,
    partition_metadata_tombstone,
    subscribed_topics,
)
from odradek.coordinators.consumer.member import (
    Member,
    current_record,
    metadata_record,
    reconcile,
    removal_records,
    target_record,
)
from odradek.coordinators.consumer.topics import (
    NO_TOPICS,
    MayDescribe,
    ResolvedRegex,
    Subscription,
    TopicsNow,
    metadata_hash,
    resolve,
    resolve_again,
)
from odradek.coordinators.runtime import StateRecord


class Draft:
    """`records` is complete after every step. A member that maps to None is removed."""

    def __init__(
        self, group: ConsumerGroup, topics: TopicsNow, now_ms: int, may_describe: MayDescribe | None = None
    ) -> None:
        """`may_describe` is of the member that asks. Without one, no new topics are looked for."""
        self.group = group
        self.image = topics.image
        self._changed_topics = topics.changed_since(group.topics_version)
        self.now_ms = now_ms
        self._may_describe = may_describe
        self.records: list[StateRecord] = []
        self.epoch = group.epoch
        self.assignment_epoch = group.assignment_epoch
        self.replaced: Member | None = None  # the static member whose place another one took
        self.assigned_by = ""  # the assignor, if one has shared out the partitions
        self._members: dict[str, Member | None] = {}
        self._targets: dict[str, Partitions] = {}
        self._regexes: dict[str, ResolvedRegex] = dict(group.regexes)

    @property
    def has_looked(self) -> bool:
        """True if all regular expressions were resolved."""
        return self._may_describe is not None or not self._regexes

    # --- the group as it will be ---

    def members(self) -> Iterator[Member]:
        for member_id, member in self.group.members.items():
            if member_id not in self._members:
                yield member
        yield from filter(None, self._members.values())

    def is_empty(self) -> bool:
        return next(self.members(), None) is None

    def target_of(self, member_id: str) -> Partitions:
        found = self._targets.get(member_id)
        return self.group.targets.get(member_id, NO_PARTITIONS) if found is None else found

    def _changes(self) -> Iterator[tuple[Member, int]]:
        """Members added (+1) or removed (-1); a changed member counts as both."""
        for member_id, new in self._members.items():
            old = self.group.members.get(member_id)
            if old is not None:
                yield old, -1
            if new is not None:
                yield new, +1

    def subscriptions(self) -> dict[Subscription, int]:
        counts = dict(self.group.subscriptions)
        for member, by in self._changes():
            add_to_count(counts, member.subscription, by)
        return counts

    def assignor(self, default: str) -> str:
        counts = dict(self.group.assignors)
        for member, by in self._changes():
            if member.server_assignor is not None:
                add_to_count(counts, member.server_assignor, by)
        return most_wanted(counts, default)

    # --- steps ---

    def put(self, member: Member) -> None:
        """A new member, or a member with new metadata."""
        self._members[member.member_id] = member
        self.records.append(metadata_record(self.group.group_id, member))

    def remove(self, member_id: str) -> None:
        self._members[member_id] = None
        self.records += removal_records(self.group.group_id, member_id)

    def replace(self, old: Member, new: Member) -> None:
        """A static member comes back under another id: it inherits the current and target partitions of the old one."""
        self.replaced = old
        target = self.target_of(old.member_id)
        self.remove(old.member_id)
        self.put(new)
        self._targets[new.member_id] = target
        self.records.append(target_record(self.group.group_id, new.member_id, target))
        self.records.append(current_record(self.group.group_id, new))

    def refresh_topics(self, must_bump: bool) -> bool:
        """Look at the subscribed topics again; start a new epoch if the subscriptions or the topics changed.

        False if nothing changed.
        """
        subscriptions = self.subscriptions()
        self._resolve_regexes(subscriptions)
        topics_hash = metadata_hash(set(subscribed_topics(subscriptions, self._regexes)), self.image)
        are_same = topics_hash == self.group.metadata_hash and self._regexes == self.group.regexes
        if are_same and not must_bump:
            return False
        self.epoch = self.group.epoch + 1
        self.records += partition_metadata_tombstone(self.group)
        self.records.append(epoch_record(self.group.group_id, self.epoch, topics_hash))
        return True

    def _resolve_regexes(self, subscriptions: Mapping[Subscription, int]) -> None:
        wanted = {subscription.regex for subscription in subscriptions if subscription.regex is not None}
        for regex in sorted(self.group.regexes.keys() - wanted):
            del self._regexes[regex]
            self.records.append((records.ConsumerGroupRegularExpressionKey(self.group.group_id, regex), None))
        for regex in sorted(wanted):
            self._resolve(regex)

    def _resolve(self, regex: str) -> None:
        known = self.group.regexes.get(regex)
        if self._may_describe is None:
            return
        if known is None or self._changed_topics is None:
            found = resolve(regex, self.image, self._may_describe)
        else:
            found = resolve_again(regex, known.topics, self._changed_topics, self.image, self._may_describe)
        if known is not None and found == known.topics:
            return
        version = (known or NO_TOPICS).version + 1
        self._regexes[regex] = ResolvedRegex(found, version, self.now_ms)
        self.records.append(
            (
                records.ConsumerGroupRegularExpressionKey(self.group.group_id, regex),
                records.ConsumerGroupRegularExpressionValue(sorted(found), version, self.now_ms),
            )
        )

    def assign(self, default_assignor: str) -> None:
        """New promises for the group; a record for each that differs, and the epoch they are for."""
        specs = self._specs()
        partition_counts = {
            topic_id: len(self.image.topics_by_id[topic_id].partitions)
            for topic_id in sorted(frozenset[UUID]().union(*{spec.topics for spec in specs.values()}))
        }
        self.assigned_by = self.assignor(default_assignor)
        promises = ASSIGNORS[self.assigned_by](specs, partition_counts)
        for member_id, promise in promises.items():
            has_one = member_id in self._targets or member_id in self.group.targets
            if promise is not specs[member_id].promised or not has_one:
                self._targets[member_id] = promise
                self.records.append(target_record(self.group.group_id, member_id, promise))
        self.set_assignment_epoch()

    def _specs(self) -> dict[str, MemberSpec]:
        topic_ids = {subscription: self._topic_ids(subscription) for subscription in self.subscriptions()}
        return {
            member.member_id: MemberSpec(
                topic_ids[member.subscription], self.target_of(member.member_id), member.instance_id
            )
            for member in self.members()
        }

    def _topic_ids(self, subscription: Subscription) -> frozenset[UUID]:
        names = set(subscribed_topics([subscription], self._regexes))
        return frozenset(self.image.topics[name].id for name in names if name in self.image.topics)

    def set_assignment_epoch(self) -> None:
        self.assignment_epoch = self.epoch
        self.records.append(assignment_epoch_record(self.group.group_id, self.epoch, self.now_ms))

    def reconcile(self, member: Member, owned: Sequence[TopicPartitionsLike] | None) -> Member:
        """Take the member one step towards its promise."""
        stepped = reconcile(
            member, self.assignment_epoch, self.target_of(member.member_id), self._holder_of, owned
        )
        if stepped is not member:
            self.set_current(stepped)
        return stepped

    def set_current(self, member: Member) -> None:
        """The member's metadata stays; its epoch, state or partitions differ."""
        self._members[member.member_id] = member
        self.records.append(current_record(self.group.group_id, member))

    def _holder_of(self, topic_id: UUID, partition: int) -> str | None:
        """A removed member has no partitions any more."""
        holder = self.group.holder_of(topic_id, partition)
        return None if holder is not None and self._members.get(holder, holder) is None else holder
