"""Log lines about what happens to a consumer group.

A rebalance begins when the group's epoch increases, and ends when every member has its target assignment of that epoch.
The start time is in memory only: a coordinator that took over during a rebalance does not say how long it took.
"""

from collections.abc import Sequence

from odradek.coordinators.consumer.draft import Draft
from odradek.coordinators.consumer.member import Member
from odradek.coordinators.runtime import Note
from odradek.wording import count_of, duration, shown

# Why a member was removed, by the timer that ran out.
TIMEOUTS = {
    "session": "no heartbeat arrived within its session timeout",
    "revocation": "it did not give up its partitions within its rebalance timeout",
    "join": "it did not join again within its rebalance timeout",
    "sync": "it did not send SyncGroup within its rebalance timeout",
}


def step_notes(draft: Draft, member: Member, updated: Member, stepped: Member, timeout_ms: int) -> list[Note]:
    """About a member that joined, stayed or changed: its old state, its request, and its new state."""
    group, notes = draft.group, []
    reason = ""
    if draft.replaced is not None:
        notes.append(f"{stepped} replaced member {shown(draft.replaced.member_id)}, whose instance came back")
        reason = f"{stepped} came back"
    elif stepped.member_id not in group.members:
        protocol = "consumer" if updated.classic is None else "classic"
        notes.append(
            f"{stepped} joined from {stepped.client_host.lstrip('/')} (client {shown(stepped.client_id)}, "
            f"{protocol} protocol, session timeout {duration(timeout_ms / 1000)})"
        )
        reason = f"{stepped} joined"
    elif updated.subscription != member.subscription:
        reason = f"{stepped} changed its subscription"
    if draft.epoch > group.epoch:
        notes.append(_new_epoch(draft, reason or "its topics changed"))
    if stepped is not updated and all(
        each.is_reconciled_to(draft.assignment_epoch) for each in draft.members()
    ):
        notes.append(_stable(draft))
    return [Note(group.group_id, text) for text in notes]


def _new_epoch(draft: Draft, reason: str) -> str:
    group = draft.group
    if group.rebalancing_since_ms is None:
        group.rebalancing_since_ms = draft.now_ms
    assignor = f", assigned by {draft.assigned_by}" if draft.assigned_by else ""
    members = count_of(sum(1 for _ in draft.members()), "member")
    return f"rebalancing to epoch {draft.epoch} with {members}{assignor}, because {reason}"


def _stable(draft: Draft) -> str:
    since_ms, draft.group.rebalancing_since_ms = draft.group.rebalancing_since_ms, None
    took = (
        f"; the rebalance took {duration((draft.now_ms - since_ms) / 1000)}" if since_ms is not None else ""
    )
    return f"epoch {draft.assignment_epoch} is stable: every member has its partitions{took}"


def removal_notes(draft: Draft, members: Sequence[Member], what: str) -> list[Note]:
    """`what` happened to each of them: "left"."""
    notes = [f"{member} {what}" for member in members]
    if draft.is_empty():
        draft.group.rebalancing_since_ms = None
        notes.append(f"epoch {draft.epoch} has no members")
    else:
        names = "a member was removed" if len(members) == 1 else f"{len(members)} members were removed"
        notes.append(_new_epoch(draft, names))
    return [Note(draft.group.group_id, text) for text in notes]


def timed_out(timer: str, timeout_ms: int) -> str:
    return f"was removed: {TIMEOUTS[timer]} of {duration(timeout_ms / 1000)}"
