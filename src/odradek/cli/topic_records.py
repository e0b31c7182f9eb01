"""`odradek topic delete-records`: delete the oldest records of a topic, up to an offset or a time."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

from odradek.admin.access import Access
from odradek.admin.failures import AdminError
from odradek.admin.places import Place
from odradek.cli.arguments import MOST_PARTITION, JsonOutput, offset_of, time_ms_of
from odradek.cli.completion import complete_topics
from odradek.cli.danger import Force, Yes, check_internal, confirm
from odradek.cli.failures import CommandError
from odradek.cli.framework import Argument, BadParameter, Option
from odradek.cli.output import print_columns, print_json
from odradek.wording import counted

if TYPE_CHECKING:
    from odradek.admin.failures import Refused


@dataclass(frozen=True)
class Deletion:
    """The remains of a partition; the fields are those of the JSON output."""

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
    from odradek.admin.failures import Refused
    from odradek.admin.metadata import existing_partitions
    from odradek.admin.topics import delete_records as delete

    there = existing_partitions(cluster, name)
    if missing := set(partition or ()).difference(there):
        raise CommandError(f"{name} has no partition {min(missing)}: it has {len(there)}, counted from 0")
    ends = delete_ends(cluster, before, [Place(name, number) for number in sorted(partition or there)])
    where = f"in {counted(len(ends), 'partition')}"
    confirm(f"Delete the records of {name} before {before}, {where}?", yes)
    done = []
    for place, outcome in sorted(delete(cluster, ends).items()):
        if isinstance(outcome, Refused):
            raise explained(name, outcome)
        done.append(Deletion(*place, outcome))
    if as_json:
        print_json([asdict(deletion) for deletion in done])
    else:
        rows = [tuple(asdict(deletion).values()) for deletion in done]
        print_columns(("TOPIC", "PARTITION", "START-OFFSET"), rows)


def explained(name: str, refusal: "Refused") -> AdminError:
    """Explain a refusal: brokers call it a policy violation; the policy is that of the topic."""
    from odradek.errors import ErrorCode

    if refusal.code is not ErrorCode.POLICY_VIOLATION:
        return refusal
    return CommandError(
        f"{name} is compacted: only topics whose cleanup.policy contains 'delete' lose records by offset. To allow "
        f"it: odradek topic alter {name} --config cleanup.policy=compact,delete"
    )


def delete_ends(cluster: Access, before: str, places: Sequence[Place]) -> dict[Place, int]:
    """The offset before which each partition loses its records."""
    from odradek.admin.offsets import NO_RECORD_SO_LATE, end_offsets, find_offsets
    from odradek.admin.topics import UP_TO_HIGH_WATERMARK

    if before in ("latest", "end"):
        return dict.fromkeys(places, UP_TO_HIGH_WATERMARK)
    if before.startswith("@"):
        found = find_offsets(cluster, dict.fromkeys(places, time_ms_of(before[1:])))
        late = [place for place, offset in found.items() if offset == NO_RECORD_SO_LATE]
        return found | end_offsets(cluster, late)
    offset = offset_of(before)
    if offset < 0:
        raise BadParameter(f"{before} is not an offset, @TIME or latest", param_hint="--before")
    return dict.fromkeys(places, offset)
