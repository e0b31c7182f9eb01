"""The common part of all kinds of groups, and the settings they share.

A shard owns its groups in one registry, by id, whatever their type: a group has one type at a time, and the
requests for which the type does not matter (offsets, listing, deletion) use it through `Group`. The types themselves
are in `classic/` and `consumer/`; `groups.py` routes to them.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from odradek.coordinators.records import OffsetCommitValue
from odradek.coordinators.runtime import StateRecord
from odradek.wording import shown

CONSUMER_PROTOCOL = "consumer"  # the protocol type of groups of consumers, in both protocols


class GroupType(enum.Enum):
    """The values are how ListGroups spells them."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


# Raises KafkaError if this member may not commit to this partition (topic name, topic id, partition).
PartitionCheck = Callable[[str, UUID, int], None]


class Group(Protocol):
    """A group as offsets and administration see it. The checks raise KafkaError."""

    group_id: str

    @property
    def type(self) -> GroupType: ...

    @property
    def state_name(self) -> str:
        """The state as ListGroups and DescribeGroups spell it, for example PreparingRebalance."""

    @property
    def protocol_type(self) -> str:
        """Empty for a group that only ever stored offsets."""

    @property
    def is_empty(self) -> bool:
        """No members."""

    def check_offset_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        api_version: int,
        *,
        is_transactional: bool = False,
    ) -> PartitionCheck | None:
        """Checks that this member may commit now. If only for some partitions, returns a function that decides.

        A producer need not say who it is: before TxnOffsetCommit 3 it could not. Then no member is checked."""

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None: ...

    def check_offset_delete(self) -> None: ...

    def check_delete(self) -> None: ...

    def keep_session(self, member_id: str, now_ms: int) -> None:
        """An offset commit was accepted; in the classic protocol that counts as a heartbeat."""

    def is_subscribed_to(self, topic: str) -> bool: ...

    def offsets_expire_from_ms(self, offset: OffsetCommitValue) -> int | None:
        """The time from which this offset's retention counts; None while the group's state forbids expiry."""

    def tombstones(self) -> list[StateRecord]:
        """Records that remove the group, its offsets not among them."""


def member_name(member_id: str, instance_id: str | None) -> str:
    """Returns how log lines name a member."""
    return f"member {shown(member_id)}" + (
        f" (instance {shown(instance_id)})" if instance_id is not None else ""
    )


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Kafka's settings of the group coordinator, by Kafka's names and with Kafka's defaults."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2_147_483_647
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_minutes: int = 10_080
    offsets_retention_check_interval_ms: int = 600_000
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_max_size: int = 2_147_483_647
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    group_consumer_migration_policy: str = "bidirectional"
    group_consumer_regex_refresh_interval_ms: int = 600_000

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * 60_000
