"""DescribeLogDirs (35): the size of every log, and the room on its disk.

Left out: replicas being moved between directories (there is one directory).
"""

import shutil
from collections import defaultdict

from odradek.api.request import Request
from odradek.api.services import Services
from odradek.replication.partition import Partition
from odradek.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


def handle(services: Services, request: Request, message: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    chosen: dict[str, list[DescribeLogDirsPartition]] = defaultdict(list)
    for partition in _chosen(services, message):
        topic, index = partition.topic_partition
        chosen[topic].append(DescribeLogDirsPartition(index, partition.log.size_bytes, offset_lag=0))
    usage = shutil.disk_usage(services.data_dir)
    return DescribeLogDirsResponse(
        results=[
            DescribeLogDirsResult(
                log_dir=str(services.data_dir),
                topics=[DescribeLogDirsTopic(topic, partitions) for topic, partitions in chosen.items()],
                total_bytes=usage.total,
                usable_bytes=usage.free,
            )
        ]
    )


def _chosen(services: Services, message: DescribeLogDirsRequest) -> list[Partition]:
    """All of them where none is named."""
    if message.topics is None:
        return list(services.replicas)
    named = ((topic.topic, index) for topic in message.topics for index in topic.partitions)
    return [found for topic, index in named if (found := services.replicas.find(topic, index))]
