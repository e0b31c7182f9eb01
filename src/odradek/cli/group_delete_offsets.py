"""`odradek group delete-offsets`: delete committed offsets of topics that a group no longer reads."""

from typing import Annotated

from odradek.admin.access import Access
from odradek.cli.arguments import JsonOutput, TopicsAndPartitions
from odradek.cli.completion import complete_groups
from odradek.cli.danger import Yes, confirm
from odradek.cli.failures import CommandError
from odradek.cli.framework import Argument, BadParameter, Option
from odradek.cli.output import print_columns, print_json


def delete_offsets(
    cluster: Access,
    name: Annotated[str | None, Argument(metavar="GROUP", complete=complete_groups)] = None,
    topic: TopicsAndPartitions = None,
    yes: Yes = False,
    as_json: JsonOutput = False,
    group: Annotated[str | None, Option("--group", hidden=True)] = None,
) -> None:
    """Delete committed offsets of a group, for topics that no member reads. It asks first, unless --yes is given."""
    name = name or group
    if not name or not topic:
        raise BadParameter("name a group, and its topics with --topic")
    from odradek.admin.groups import describe_group
    from odradek.admin.offsets import committed_offsets, named_places
    from odradek.admin.offsets import delete_offsets as delete

    describe_group(cluster, name)  # to say so if there is none
    committed = committed_offsets(cluster, name)
    places = [place for place in named_places(cluster, topic) if place in committed]
    if not places:
        raise CommandError(f"{name} has committed no offsets for {', '.join(topic)}")
    confirm(f"Delete the offsets that {name} has committed for {', '.join(topic)}?", yes)
    outcome = delete(cluster, name, places)
    deleted = [place for place, failure in outcome.items() if failure is None]
    if as_json:
        partitions = [
            {
                "topic": place.topic,
                "partition": place.partition,
                "current_offset": committed[place],
                "deleted": failure is None,
            }
            | ({} if failure is None else {"error": failure})
            for place, failure in outcome.items()
        ]
        print_json({"group": name, "partitions": partitions})
    elif deleted:
        print_columns(
            ("GROUP", "TOPIC", "PARTITION", "DELETED-OFFSET"),
            [(name, *place, committed[place]) for place in deleted],
        )
    failures = [
        f"{place.topic}-{place.partition}: {failure}" for place, failure in outcome.items() if failure
    ]
    if failures:
        raise CommandError(f"{name}: {'; '.join(failures)}")
