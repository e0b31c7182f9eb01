"""`odradek cluster info`: what a cluster consists of. `odradek cluster status`: whether it is healthy. `grow` and
`remove-broker` change it.
"""

from dataclasses import asdict
from typing import TYPE_CHECKING

from odradek.admin.access import Access
from odradek.cli.access import on_cluster
from odradek.cli.arguments import JsonOutput
from odradek.cli.cluster_grow import grow
from odradek.cli.cluster_remove import remove_broker
from odradek.cli.framework import Exit, Group
from odradek.cli.output import (
    GREEN,
    RED,
    Coloured,
    coloured,
    lag_cell,
    offset_cell,
    print_columns,
    print_json,
    print_line,
    state_cell,
)
from odradek.wording import counted, duration, joined, readable_size

if TYPE_CHECKING:
    from odradek.admin.status import ClusterStatus, PartitionStatus, QuorumStatus, ReplicaStatus

app = Group(help="Look at a cluster as a whole, and change which brokers it has.")
app.command("grow")(on_cluster(grow))
app.command("remove-broker")(on_cluster(remove_broker))

PARTITIONS_SHOWN = 20  # of each kind


@app.command()
@on_cluster
def info(cluster: Access, as_json: JsonOutput = False) -> None:
    """Show brokers, numbers of topics and partitions, and partitions without replicas or leaders."""
    from odradek.admin.overview import view_cluster

    view = view_cluster(cluster)
    if as_json:
        print_json(asdict(view))
        return
    print_line(f"cluster {view.cluster_id}, controller {view.controller}")
    print_line(
        f"{counted(view.topic_count, 'topic')}, {counted(view.partition_count, 'partition')}, "
        f"{view.under_replicated_partitions} under-replicated, {view.offline_partitions} without a leader"
    )
    rows = [
        (one.broker, f"{one.host}:{one.port}", one.rack, one.leaders, "yes" if one.is_controller else "no")
        for one in view.brokers
    ]
    print_columns(("BROKER", "ADDRESS", "RACK", "LEADERS", "CONTROLLER"), rows)


@app.command()
@on_cluster
def status(cluster: Access, as_json: JsonOutput = False) -> None:
    """Show nodes, the metadata quorum and partitions that lack replicas or leaders. Exit status 1 if any do, or if a
    disk is full."""
    from odradek.admin.status import find_status  # which brings our own client

    found = find_status(cluster)
    problems = found.problems()
    if as_json:
        print_json({"is_healthy": not problems, "problems": problems, **status_fields(found)})
    else:
        print_status(found, problems)
    if problems:
        raise Exit(1)


def status_fields(found: "ClusterStatus") -> dict[str, object]:
    fields = asdict(found)
    del fields["quorum_problem"]
    if found.tolerance is not None:
        fields["tolerance"] = found.tolerance._asdict()
    for name in ("under_replicated", "under_min_isr", "offline"):
        fields[f"{name}_partitions"] = fields.pop(name)
    return fields


def print_status(found: "ClusterStatus", problems: list[str]) -> None:
    health = coloured("not healthy", RED) if problems else coloured("healthy", GREEN)
    print_line(f"cluster {found.cluster_id}: {health}")
    for problem in problems:
        print_line(f"  {problem}")
    if found.tolerance is not None:
        print_line(str(found.tolerance))
    print_line("")
    rows = [
        (
            one.broker,
            f"{one.host}:{one.port}",
            one.rack,
            state_cell(one.state),
            one.leaders,
            readable_size(one.free_bytes),
        )
        for one in found.brokers
    ]
    print_columns(("BROKER", "ADDRESS", "RACK", "STATE", "LEADERS", "FREE"), rows)
    if found.quorum is not None:
        print_line("")
        print_quorum(found.quorum)
    for title, partitions in (
        ("without a leader", found.offline),
        ("under min.insync.replicas", found.under_min_isr),
        ("under-replicated", found.under_replicated),
    ):
        print_partitions(title, partitions)


def print_quorum(quorum: "QuorumStatus") -> None:
    print_line(
        f"metadata quorum: leader {quorum.leader}, epoch {quorum.epoch}, high watermark {quorum.high_watermark}"
    )
    rows = [
        (
            *(one.node, role, offset_cell(one.log_end_offset), lag_cell(one.lag)),
            caught_up(one, role, quorum.is_behind(one)),
        )
        for kind, replicas in (("follower", quorum.voters), ("observer", quorum.observers))
        for one in replicas
        for role in [role_in(quorum, one.node, kind)]
    ]
    print_columns(("NODE", "ROLE", "LOG-END-OFFSET", "LAG", "CAUGHT-UP"), rows)


def role_in(quorum: "QuorumStatus", node: int, kind: str) -> str:
    return "leader" if node == quorum.leader and kind == "follower" else kind


def caught_up(replica: "ReplicaStatus", role: str, is_behind: bool) -> Coloured:
    """Say how far a voter is behind, in the words of `quorum describe`."""
    if role == "leader":
        return Coloured("now", None)
    ago = None if replica.behind_ms is None else f"{duration(replica.behind_ms / 1000)} ago"
    return Coloured(ago, RED if role == "follower" and is_behind else None)


def print_partitions(title: str, partitions: "list[PartitionStatus]") -> None:
    if not partitions:
        return
    print_line("")
    print_line(f"{counted(len(partitions), 'partition')} {title}:")
    rows = [
        (one.topic, one.partition, one.leader, joined(one.replicas), joined(one.isr))
        for one in partitions[:PARTITIONS_SHOWN]
    ]
    print_columns(("TOPIC", "PARTITION", "LEADER", "REPLICAS", "ISR"), rows)
    if len(partitions) > PARTITIONS_SHOWN:
        print_line(f"and {len(partitions) - PARTITIONS_SHOWN} more (--json shows all)")
