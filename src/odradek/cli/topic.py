"""`odradek topic`: create, list, describe, alter, delete and move topics, and delete records from them."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from odradek.admin.access import Access
from odradek.admin.failures import AdminError
from odradek.admin.places import is_internal
from odradek.cli.access import on_cluster
from odradek.cli.arguments import JsonOutput, key_value
from odradek.cli.completion import complete_topic_settings, complete_topics
from odradek.cli.danger import Force, Yes, check_internal, confirm
from odradek.cli.failures import CommandError
from odradek.cli.framework import Argument, BadParameter, Group, Option
from odradek.cli.output import print_columns, print_json, print_line
from odradek.cli.topic_elect import elect_leaders
from odradek.cli.topic_reassign import reassign
from odradek.cli.topic_records import delete_records
from odradek.cli.topic_view import kafka_lines, show_tables
from odradek.wording import readable_size

if TYPE_CHECKING:
    from odradek.admin.failures import Refused
    from odradek.errors import ErrorCode

app = Group(
    help="Create, list, describe, alter, delete and move topics. 'delete-records' deletes only their oldest records.",
)
app.command("delete-records")(on_cluster(delete_records))
app.command("reassign")(on_cluster(reassign))
app.command("elect-leaders")(on_cluster(elect_leaders))

MOST_PARTITIONS = 100_000
MOST_REPLICAS = 32_767

NewNames = Annotated[list[str] | None, Argument(metavar="NAME...")]
Names = Annotated[
    list[str] | None,
    Argument(metavar="NAME...", complete=complete_topics),
]
TopicOption = Annotated[list[str] | None, Option("--topic", hidden=True)]
ConfigOption = Annotated[
    list[str] | None,
    Option(
        "--config",
        metavar="KEY=VALUE",
        help="A topic setting; repeatable.",
        complete=complete_topic_settings,
    ),
]


def chosen_topics(arguments: Sequence[str] | None, options: Sequence[str] | None) -> list[str]:
    """Return the topics given as arguments or, as for Kafka's tools, with --topic; each once, at least one."""
    names = list(dict.fromkeys([*(arguments or ()), *(options or ())]))
    if not names:
        raise BadParameter("name a topic", param_hint="NAME")
    return names


def tell(
    as_json: bool, verb: str, done: Mapping[str, bool], failures: Mapping[str, str], nothing: str
) -> None:
    """Reports what was done to each topic; the command fails if one of them failed."""
    if as_json:
        print_json(
            [{"topic": name, verb: is_done} for name, is_done in done.items()]
            + [{"topic": name, verb: False, "error": reason} for name, reason in failures.items()]
        )
    else:
        for name, is_done in done.items():
            print_line(f"{verb.capitalize()} topic {name}." if is_done else f"Topic {name} {nothing}.")
    if failures:
        raise CommandError("; ".join(f"{name}: {reason}" for name, reason in failures.items()))


def sorted_out(
    outcomes: "Mapping[str, Refused | None]", tolerated: "ErrorCode | None"
) -> tuple[dict[str, bool], dict[str, str]]:
    """Says what was done to each topic, and what failed; a tolerated error code means that there was nothing to do."""
    done, failures = {}, {}
    for name, refusal in outcomes.items():
        if refusal is None or refusal.code is tolerated:
            done[name] = refusal is None
        else:
            failures[name] = refusal.reason
    return done, failures


@app.command()
@on_cluster
def create(
    cluster: Access,
    names: NewNames = None,
    partitions: Annotated[
        int | None,
        Option(
            "--partitions", min=1, max=MOST_PARTITIONS, help="How many; the broker's default if not given."
        ),
    ] = None,
    replication_factor: Annotated[
        int | None,
        Option("--replication-factor", min=1, max=MOST_REPLICAS, help="Copies of each partition."),
    ] = None,
    config: ConfigOption = None,
    if_not_exists: Annotated[
        bool, Option("--if-not-exists", help="Succeed if the topic already exists.")
    ] = False,
    as_json: JsonOutput = False,
    topic: TopicOption = None,
) -> None:
    """Create topics."""
    names = chosen_topics(names, topic)
    from odradek.admin.topics import BROKER_DEFAULT, NewTopic, create_topics
    from odradek.errors import ErrorCode

    configs = dict(map(key_value, config or ()))
    new_topics = [
        NewTopic(name, partitions or BROKER_DEFAULT, replication_factor or BROKER_DEFAULT, configs)
        for name in names
    ]
    outcomes = create_topics(cluster, new_topics)
    done, failures = sorted_out(outcomes, ErrorCode.TOPIC_ALREADY_EXISTS if if_not_exists else None)
    failures = {name: with_guess(reason, configs) for name, reason in failures.items()}
    tell(as_json, "created", done, failures, "exists already")


@app.command("list")
@on_cluster
def list_(
    cluster: Access,
    internal: Annotated[bool, Option("--internal", help="Include internal topics.")] = False,
    long: Annotated[
        bool, Option("--long", "-l", help="Show partitions, replicas and size, as at a terminal.")
    ] = False,
    as_json: JsonOutput = False,
    exclude_internal: Annotated[bool, Option("--exclude-internal", hidden=True)] = False,
) -> None:
    """List topics. At a terminal, and with --long, it also shows partitions, replicas and size on disk."""
    from odradek.admin.metadata import metadata

    names = sorted(metadata(cluster).topics)
    if not internal or exclude_internal:
        names = [name for name in names if not is_internal(name)]
    if as_json or long or sys.stdout.isatty():
        from odradek.admin.topics import summarize  # which takes longer to import than to list names

        summaries = summarize(cluster, names)
    if as_json:
        print_json([asdict(summary) for summary in summaries])
    elif long or sys.stdout.isatty():
        rows = [
            (one.topic, one.partition_count, one.replication_factor, readable_size(one.size_bytes))
            for one in summaries
        ]
        print_columns(("TOPIC", "PARTITIONS", "REPLICAS", "SIZE"), rows)
    else:
        sys.stdout.writelines(f"{name}\n" for name in names)


@app.command()
@on_cluster
def describe(
    cluster: Access,
    names: Annotated[list[str] | None, Argument(metavar="[NAME]...", complete=complete_topics)] = None,
    internal: Annotated[
        bool, Option("--internal", help="Include internal topics if no topic is named.")
    ] = False,
    as_json: JsonOutput = False,
    topic: TopicOption = None,
) -> None:
    """Describe topics, or all of them. It shows leaders, replicas, offsets and sizes of partitions, and settings that
    are not defaults."""
    from odradek.admin.metadata import metadata
    from odradek.admin.topics import view_topics

    wanted = [*(names or ()), *(topic or ())]
    if not wanted:
        wanted = sorted(name for name in metadata(cluster).topics if internal or not is_internal(name))
    views = view_topics(cluster, wanted)
    if as_json:
        print_json([asdict(view) for view in views])
    elif sys.stdout.isatty():
        show_tables(views)
    else:
        sys.stdout.writelines(f"{line}\n" for view in views for line in kafka_lines(view))


@app.command()
@on_cluster
def alter(
    cluster: Access,
    names: Names = None,
    partitions: Annotated[
        int | None,
        Option(
            "--partitions", min=1, max=MOST_PARTITIONS, help="The new number of partitions; it can only grow."
        ),
    ] = None,
    config: ConfigOption = None,
    delete_config: Annotated[
        list[str] | None,
        Option(
            "--delete-config",
            metavar="KEY",
            help="A setting to reset to its default; repeatable.",
            complete=complete_topic_settings,
        ),
    ] = None,
    force: Force = False,
    as_json: JsonOutput = False,
    topic: TopicOption = None,
) -> None:
    """Change settings of topics. It can also give them more partitions."""
    names = chosen_topics(names, topic)
    if not config and not delete_config and partitions is None:
        raise BadParameter("nothing to change: give --partitions, --config or --delete-config")
    check_internal(names, force)
    from odradek.admin.metadata import metadata_of
    from odradek.admin.resources import Kind
    from odradek.admin.settings import alter_resource, check_known
    from odradek.admin.topics import add_partitions

    metadata_of(cluster, names)  # change nothing if one of them does not exist
    for name in names if delete_config else ():
        check_known(cluster, Kind.TOPIC, name, delete_config or ())
    changes = {**dict(map(key_value, config or ())), **dict.fromkeys(delete_config or ())}
    for name in names:
        with guessed(changes):
            if changes:
                alter_resource(cluster, Kind.TOPIC, name, changes)
            if partitions is not None:
                add_partitions(cluster, name, partitions)
    tell(as_json, "altered", dict.fromkeys(names, True), {}, "")


def with_guess(refusal: str, keys: Iterable[str]) -> str:
    """The refusal of a setting, with the one that the user may have meant."""
    from odradek.admin.setting_names import guess_topic_setting

    return refusal + guess_topic_setting(refusal, keys)


@contextmanager
def guessed(keys: Iterable[str]) -> Iterator[None]:
    """Add what the user may have meant to the refusal of a setting."""
    try:
        yield
    except AdminError as error:
        raise CommandError(with_guess(str(error), keys)) from None


@app.command()
@on_cluster
def delete(
    cluster: Access,
    names: Names = None,
    if_exists: Annotated[bool, Option("--if-exists", help="Succeed if the topic does not exist.")] = False,
    yes: Yes = False,
    force: Force = False,
    as_json: JsonOutput = False,
    topic: TopicOption = None,
) -> None:
    """Delete topics with all their records. Asks first, unless --yes is given."""
    names = chosen_topics(names, topic)
    check_internal(names, force)
    confirm(f"Delete {', '.join(names)} and all records in them?", yes)
    from odradek.admin.topics import delete_topics
    from odradek.errors import ErrorCode

    tolerated = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if if_exists else None
    tell(as_json, "deleted", *sorted_out(delete_topics(cluster, names), tolerated), "does not exist")
