"""DescribeLogDirs (35): the size of every log, and the room on its disk. Tagged fields of our own say whether the
broker refuses users' records because the disk is full, and how many logs are damaged.

Left out: replicas being moved between directories (there is one directory).
"""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress

from odradek.controller.features import can_cordon
from odradek.errors import KafkaError
from odradek.serving.request import Request
from odradek.serving.services import Services
from odradek.wire.codec import Steps
from odradek.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


def handle(
    services: Services, request: Request, message: DescribeLogDirsRequest
) -> Steps[DescribeLogDirsResponse]:
    chosen: dict[str, list[DescribeLogDirsPartition]] = defaultdict(list)
    for topic, index in (
        [replica.topic_partition for replica in services.partitions.replicas]
        if message.topics is None
        else _named(message.topics)
    ):
        with suppress(KafkaError):  # not on this broker
            size = services.partitions.replicas.get(topic, index).log.size_bytes
            chosen[topic].append(DescribeLogDirsPartition(index, size, offset_lag=0))
        yield
    damaged = 0
    for replica in list(services.partitions.replicas):
        damaged += replica.log.damage is not None
        yield
    space = services.node.host.disk_space(str(services.node.data_dir))
    return DescribeLogDirsResponse(
        results=[
            DescribeLogDirsResult(
                log_dir=str(services.node.data_dir),
                topics=[DescribeLogDirsTopic(topic, partitions) for topic, partitions in chosen.items()],
                total_bytes=space.total,
                usable_bytes=space.usable,
                is_cordoned=can_cordon(services.cluster.image)
                and bool(services.node.config.cordoned_log_dirs),
                is_full=services.partitions.disk.is_full,
                damaged_logs=damaged,
            )
        ]
    )


def _named(topics: list[DescribableLogDirTopic]) -> Iterator[tuple[str, int]]:
    """Each once, however often it is named."""
    for topic in topics:
        yield from ((topic.topic, index) for index in dict.fromkeys(topic.partitions))
