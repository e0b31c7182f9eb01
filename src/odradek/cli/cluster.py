"""`odradek cluster info`: what a cluster is, and whether it is well."""

from dataclasses import asdict, dataclass

from odradek.cli.access import REQUEST_TIMEOUT_S, Access, on_cluster
from odradek.cli.arguments import JsonOutput
from odradek.cli.danger import is_internal
from odradek.cli.framework import Group
from odradek.cli.output import counted, print_columns, print_json, print_line

app = Group(help="Look at a cluster as a whole.")

NO_LEADER = -1


@dataclass(frozen=True)
class BrokerView:
    broker: int
    host: str
    port: int
    rack: str | None
    is_controller: bool
    leaders: int  # partitions that it leads


@dataclass(frozen=True)
class ClusterView:
    """What `info` tells; its fields are those of the JSON output."""

    cluster_id: str | None
    controller: int | None
    topic_count: int  # without internal ones
    partition_count: int  # with those of internal topics
    under_replicated_partitions: int
    offline_partitions: int
    brokers: list[BrokerView]


@app.command()
@on_cluster
def info(cluster: Access, as_json: JsonOutput = False) -> None:
    """Show the brokers of a cluster, how much it holds, and whether partitions lack replicas or leaders."""
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


def view_cluster(cluster: Access) -> ClusterView:
    future = cluster.admin.describe_cluster(request_timeout=REQUEST_TIMEOUT_S)
    description = future.result(REQUEST_TIMEOUT_S)
    topics = cluster.metadata().topics
    partitions = [partition for topic in topics.values() for partition in topic.partitions.values()]
    controller = description.controller.id if description.controller else None
    return ClusterView(
        cluster_id=description.cluster_id,
        controller=controller,
        topic_count=sum(not is_internal(name) for name in topics),
        partition_count=len(partitions),
        under_replicated_partitions=sum(len(one.isrs) < len(one.replicas) for one in partitions),
        offline_partitions=sum(one.leader == NO_LEADER for one in partitions),
        brokers=[
            BrokerView(
                broker=node.id,
                host=node.host,
                port=node.port,
                rack=node.rack or None,
                is_controller=node.id == controller,
                leaders=sum(partition.leader == node.id for partition in partitions),
            )
            for node in sorted(description.nodes, key=lambda node: int(node.id))
        ],
    )
