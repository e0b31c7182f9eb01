"""`odradek topic delete-records`: delete the oldest records of a topic, up to an offset or a time."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

from odradek.cli.access import REQUEST_TIMEOUT_S, Access
from odradek.cli.arguments import MOST_PARTITION, JsonOutput, offset_of, time_ms_of
from odradek.cli.completion import complete_topics
from odradek.cli.danger import Force, Yes, check_internal, confirm
from odradek.cli.failures import CommandError
from odradek.cli.framework import Argument, BadParameter, Option
from odradek.cli.group_offsets import Place, end_offsets, find_offsets
from odradek.cli.librdkafka import kafka, kafka_admin
from odradek.cli.output import counted, print_columns, print_json
from odradek.cli.topic_view import describe

if TYPE_CHECKING:
    from confluent_kafka import TopicPartition


UP_TO_HIGH_WATERMARK = -1
NO_RECORD_SO_LATE = -1


@dataclass(frozen=True)
class Deletion:
    """What remains of a partition; its fields are those of the JSON output."""

    topic: str
    partition: int
    start_offset: int


def delete_records(
    cluster: Access,
    name: Annotated[str, Argument(metavar="NAME", complete=complete_topics)],
    before: Annotated[
        str,
        Option(
            "--before",
            metavar="OFFSET|@TIME|latest",
            help="Delete all records before this offset, before this time, or all of them.",
        ),
    ],
    partition: Annotated[
        list[int] | None,
        Option("--partition", "-p", min=0, max=MOST_PARTITION, help="Only this partition; repeatable."),
    ] = None,
    yes: Yes = False,
    force: Force = False,
    as_json: JsonOutput = False,
) -> None:
    """Delete the oldest records of a topic, up to an offset or a time. It asks first, unless --yes is given."""
    check_internal([name], force)
    there = [found.id for found in describe(cluster, [name])[name].partitions]
    if missing := set(partition or ()).difference(there):
        raise CommandError(f"{name} has no partition {min(missing)}: it has {len(there)}, counted from 0")
    ends = delete_ends(cluster, before, [Place(name, number) for number in sorted(partition or there)])
    where = f"in {counted(len(ends), 'partition')}"
    confirm(f"Delete the records of {name} before {before}, {where}?", yes)
    futures = cluster.admin.delete_records(ends, request_timeout=REQUEST_TIMEOUT_S)
    done = []
    for end, future in futures.items():
        with cluster.failures_told(f"{name}-{end.partition}"), compaction_told(name):
            done.append(Deletion(name, end.partition, future.result(REQUEST_TIMEOUT_S).low_watermark))
    done.sort(key=lambda deletion: deletion.partition)
    if as_json:
        print_json([asdict(deletion) for deletion in done])
    else:
        rows = [tuple(asdict(deletion).values()) for deletion in done]
        print_columns(("TOPIC", "PARTITION", "START-OFFSET"), rows)


@contextmanager
def compaction_told(name: str) -> Iterator[None]:
    """Brokers call it a policy violation; the policy is that of the topic."""
    try:
        yield
    except kafka.KafkaException as error:
        if error.args[0].code() != kafka.KafkaError.POLICY_VIOLATION:
            raise
        raise CommandError(
            f"{name} is compacted: only topics whose cleanup.policy contains 'delete' lose records by offset. To allow "
            f"it: odradek topic alter {name} --config cleanup.policy=compact,delete"
        ) from None


def delete_ends(cluster: Access, before: str, places: Sequence[Place]) -> "list[TopicPartition]":
    """The offset before which each partition loses its records."""
    if before in ("latest", "end"):
        return [kafka.TopicPartition(*place, UP_TO_HIGH_WATERMARK) for place in places]
    if before.startswith("@"):
        spec = kafka_admin.OffsetSpec.for_timestamp(time_ms_of(before[1:]))
        found = find_offsets(cluster.admin, dict.fromkeys(places, spec))
        late = [place for place, offset in found.items() if offset == NO_RECORD_SO_LATE]
        found |= end_offsets(cluster.admin, late)
        return [kafka.TopicPartition(*place, offset) for place, offset in found.items()]
    offset = offset_of(before)
    if offset < 0:
        raise BadParameter(f"{before} is not an offset, @TIME or latest", param_hint="--before")
    return [kafka.TopicPartition(*place, offset) for place in places]
