"""The output of `odradek topic describe`."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from odradek.cli.output import print_columns, print_line
from odradek.wording import counted, joined, readable_size

if TYPE_CHECKING:
    from odradek.admin.topics import TopicView


def kafka_lines(view: "TopicView") -> Iterable[str]:
    """The lines `kafka-topics.sh --describe` prints, so that scripts written for it keep working; followed by offsets
    and sizes."""
    configs = ",".join(f"{name}={value}" for name, value in view.configs.items())
    yield (
        f"Topic: {view.topic}\tTopicId: {view.topic_id}\tPartitionCount: {view.partition_count}"
        f"\tReplicationFactor: {view.replication_factor}\tConfigs: {configs}"
    )
    for partition in view.partitions:
        leader = "none" if partition.leader is None else partition.leader
        yield (
            f"\tTopic: {view.topic}\tPartition: {partition.partition}\tLeader: {leader}"
            f"\tReplicas: {joined(partition.replicas)}\tIsr: {joined(partition.isr)}"
            f"\tStartOffset: {_or_dash(partition.start_offset)}\tEndOffset: {_or_dash(partition.end_offset)}"
            f"\tSize: {_or_dash(partition.size_bytes)}"
        )


def _or_dash(value: int | None) -> str:
    return "-" if value is None else str(value)


def show_tables(views: "Iterable[TopicView]") -> None:
    for view in views:
        size = readable_size(view.size_bytes)
        print_line(
            f"{view.topic}: id {view.topic_id}, {counted(view.partition_count, 'partition')}, "
            f"replication factor {view.replication_factor}" + (f", {size}" if size else "")
        )
        for name, value in view.configs.items():
            print_line(f"  {name} = {value}")
        rows = [
            (
                *(one.partition, "none" if one.leader is None else one.leader),
                *(joined(one.replicas), joined(one.isr) + (" !" if len(one.isr) < len(one.replicas) else "")),
                *(one.start_offset, one.end_offset, readable_size(one.size_bytes)),
            )
            for one in view.partitions
        ]
        print_columns(("PARTITION", "LEADER", "REPLICAS", "ISR", "START-OFFSET", "END-OFFSET", "SIZE"), rows)
