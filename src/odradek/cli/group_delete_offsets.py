"""`odradek group delete-offsets`: delete committed offsets of topics that a group no longer reads."""

from typing import Annotated

from odradek.cli.access import REQUEST_TIMEOUT_S, Access
from odradek.cli.arguments import JsonOutput
from odradek.cli.completion import complete_groups
from odradek.cli.danger import Yes, confirm
from odradek.cli.failures import CommandError
from odradek.cli.framework import Argument, BadParameter, Option
from odradek.cli.group_offsets import TopicsAndPartitions, committed_offsets, named_places
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
    from odradek.cli.own_client import Address
    from odradek.cli.own_client import delete_offsets as delete

    name = name or group
    if not name or not topic:
        raise BadParameter("name a group, and its topics with --topic")
    future = cluster.admin.describe_consumer_groups([name], request_timeout=REQUEST_TIMEOUT_S)[name]
    with cluster.failures_told(name):
        coordinator = future.result(REQUEST_TIMEOUT_S).coordinator
        committed = committed_offsets(cluster.admin, name)
    places = [place for place in named_places(cluster, topic) if place in committed]
    if not places:
        raise CommandError(f"{name} has committed no offsets for {', '.join(topic)}")
    confirm(f"Delete the offsets that {name} has committed for {', '.join(topic)}?", yes)
    outcome = delete(cluster, Address(coordinator.host, coordinator.port), name, places)
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
