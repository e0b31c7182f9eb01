"""`odradek topic`: create, list, describe, alter and delete topics."""

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from rich.console import Console
from rich.table import Table

from odradek.cli.clients import (
    DEFAULT_BOOTSTRAP_SERVER,
    REQUEST_TIMEOUT_S,
    BootstrapServer,
    CommandConfig,
    CommandError,
    JsonOutput,
    TopicOption,
    chosen_topic,
    cluster_metadata,
    connect,
    failures_told,
    key_value,
)
from odradek.model import INTERNAL_TOPICS

app = typer.Typer(help="Create, list, describe, alter and delete topics.", no_args_is_help=True)

BROKER_DEFAULT = -1
NO_LEADER = -1
URL_SAFE = str.maketrans("+/", "-_")  # librdkafka writes ids in the other base64 than Kafka does

NameArgument = Annotated[str | None, typer.Argument(metavar="NAME", show_default=False)]
ConfigOption = Annotated[
    list[str], typer.Option("--config", metavar="KEY=VALUE", help="A topic setting; may be repeated.")
]


@dataclass(frozen=True)
class PartitionView:
    partition: int
    leader: int | None
    replicas: list[int]
    isr: list[int]


@dataclass(frozen=True)
class TopicView:
    """What `describe` tells of a topic; its fields are those of the JSON output."""

    topic: str
    topic_id: str
    internal: bool
    partition_count: int
    replication_factor: int
    configs: dict[str, str]
    partitions: list[PartitionView]


def settle(futures: Any) -> None:
    """Wait for what an admin request returned; the first failure is raised."""
    for future in futures.values():
        future.result(REQUEST_TIMEOUT_S)


def tell(as_json: bool, sentence: str, **facts: object) -> None:
    typer.echo(json.dumps(facts) if as_json else sentence)


@app.command()
def create(
    name: NameArgument = None,
    partitions: Annotated[
        int | None, typer.Option("--partitions", min=1, help="How many; the broker's default if not given.")
    ] = None,
    replication_factor: Annotated[
        int | None, typer.Option("--replication-factor", min=1, help="Copies of each partition.")
    ] = None,
    config: ConfigOption = [],  # noqa: B006 - Typer reads the default, nothing changes it
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Succeed where the topic is there already.")
    ] = False,
    as_json: JsonOutput = False,
    topic: TopicOption = None,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
) -> None:
    """Create a topic."""
    name = chosen_topic(name, topic)
    new_topic = NewTopic(
        name,
        num_partitions=partitions or BROKER_DEFAULT,
        replication_factor=replication_factor or BROKER_DEFAULT,
        config=dict(map(key_value, config)),
    )
    with failures_told(bootstrap_server, name):
        admin = connect(bootstrap_server, command_config)
        try:
            settle(admin.create_topics([new_topic], request_timeout=REQUEST_TIMEOUT_S))
        except KafkaException as error:
            if not if_not_exists or error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
            return tell(as_json, f"Topic {name} exists already.", topic=name, created=False)
    return tell(as_json, f"Created topic {name}.", topic=name, created=True)


@app.command("list")
def list_(
    exclude_internal: Annotated[
        bool, typer.Option("--exclude-internal", help="Leave out the topics brokers keep for themselves.")
    ] = False,
    as_json: JsonOutput = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
) -> None:
    """List topics by name."""
    with failures_told(bootstrap_server):
        admin = connect(bootstrap_server, command_config)
        names = sorted(cluster_metadata(admin).topics)
    if exclude_internal:
        names = [name for name in names if name not in INTERNAL_TOPICS]
    if as_json:
        typer.echo(json.dumps(names))
    else:
        sys.stdout.writelines(f"{name}\n" for name in names)


@app.command()
def describe(
    name: NameArgument = None,
    as_json: JsonOutput = False,
    topic: TopicOption = None,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
) -> None:
    """Describe a topic, or all of them: partitions, leaders, replicas, settings that are not defaults."""
    wanted = name or topic
    with failures_told(bootstrap_server, wanted):
        admin = connect(bootstrap_server, command_config)
        names = [wanted] if wanted else sorted(cluster_metadata(admin).topics)
        views = view_topics(admin, names) if names else []
    if as_json:
        typer.echo(json.dumps([asdict(view) for view in views], indent=2))
    elif sys.stdout.isatty():
        show_tables(views)
    else:
        sys.stdout.writelines(f"{line}\n" for view in views for line in kafka_lines(view))


def view_topics(admin: AdminClient, names: Sequence[str]) -> list[TopicView]:
    descriptions = admin.describe_topics(TopicCollection(list(names)), request_timeout=REQUEST_TIMEOUT_S)
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    configs = admin.describe_configs(resources, request_timeout=REQUEST_TIMEOUT_S)
    configs_by_name = {
        resource.name: future.result(REQUEST_TIMEOUT_S).values() for resource, future in configs.items()
    }
    return [view_topic(descriptions[name].result(REQUEST_TIMEOUT_S), configs_by_name[name]) for name in names]


def view_topic(description: Any, configs: Iterable[ConfigEntry]) -> TopicView:
    changed = [entry for entry in configs if entry.source != ConfigSource.DEFAULT_CONFIG.value]
    partitions = [
        PartitionView(
            partition=partition.id,
            leader=_leader_id(partition.leader),
            replicas=[node.id for node in partition.replicas],
            isr=[node.id for node in partition.isr],
        )
        for partition in sorted(description.partitions, key=lambda partition: int(partition.id))
    ]
    return TopicView(
        topic=description.name,
        topic_id=str(description.topic_id).translate(URL_SAFE),
        internal=description.is_internal,
        partition_count=len(partitions),
        replication_factor=len(partitions[0].replicas),
        configs={entry.name: entry.value or "" for entry in sorted(changed, key=lambda entry: entry.name)},
        partitions=partitions,
    )


def _leader_id(leader: Any) -> int | None:
    return None if leader is None or leader.id == NO_LEADER else leader.id


def kafka_lines(view: TopicView) -> Iterable[str]:
    """The lines `kafka-topics.sh --describe` prints, so that scripts written for it go on working."""
    configs = ",".join(f"{name}={value}" for name, value in view.configs.items())
    yield (
        f"Topic: {view.topic}\tTopicId: {view.topic_id}\tPartitionCount: {view.partition_count}"
        f"\tReplicationFactor: {view.replication_factor}\tConfigs: {configs}"
    )
    for partition in view.partitions:
        leader = "none" if partition.leader is None else partition.leader
        yield (
            f"\tTopic: {view.topic}\tPartition: {partition.partition}\tLeader: {leader}"
            f"\tReplicas: {_joined(partition.replicas)}\tIsr: {_joined(partition.isr)}"
        )


def _joined(ids: Iterable[int]) -> str:
    return ",".join(map(str, ids))


def show_tables(views: Iterable[TopicView]) -> None:
    console = Console()
    for view in views:
        console.print(
            f"[bold]{view.topic}[/bold]  id {view.topic_id}, {view.partition_count} partitions, "
            f"replication factor {view.replication_factor}",
            highlight=False,
        )
        for name, value in view.configs.items():
            console.print(f"  {name} = {value}", highlight=False)
        table = Table("Partition", "Leader", "Replicas", "Isr")
        for partition in view.partitions:
            short_of_replicas = len(partition.isr) < len(partition.replicas)
            leader = "none" if partition.leader is None else str(partition.leader)
            row = (str(partition.partition), leader, _joined(partition.replicas), _joined(partition.isr))
            table.add_row(*row, style="yellow" if short_of_replicas else None)
        console.print(table)


@app.command()
def alter(
    name: NameArgument = None,
    partitions: Annotated[
        int | None, typer.Option("--partitions", min=1, help="The new count; it can only grow.")
    ] = None,
    config: ConfigOption = [],  # noqa: B006 - as in create
    delete_config: Annotated[
        list[str],
        typer.Option("--delete-config", metavar="KEY", help="A setting to put back to its default."),
    ] = [],  # noqa: B006 - as in create
    as_json: JsonOutput = False,
    topic: TopicOption = None,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
) -> None:
    """Change a topic's settings, or give it more partitions."""
    name = chosen_topic(name, topic)
    changes = [ConfigEntry(*key_value(text), incremental_operation=AlterConfigOpType.SET) for text in config]
    changes += [
        ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE) for key in delete_config
    ]
    if not changes and partitions is None:
        raise typer.BadParameter("nothing to change: give --partitions, --config or --delete-config")
    with failures_told(bootstrap_server, name):
        admin = connect(bootstrap_server, command_config)
        if changes:
            resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=changes)
            settle(admin.incremental_alter_configs([resource], request_timeout=REQUEST_TIMEOUT_S))
        if partitions is not None:
            growth = [NewPartitions(name, partitions)]
            settle(admin.create_partitions(growth, request_timeout=REQUEST_TIMEOUT_S))
    tell(as_json, f"Altered topic {name}.", topic=name, altered=True)


@app.command()
def delete(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME...", show_default=False)] = None,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="Succeed where there is no such topic.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: JsonOutput = False,
    topic: TopicOption = None,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
) -> None:
    """Delete topics with all they hold. Asks first if run from a terminal."""
    names = names or [chosen_topic(None, topic)]
    if sys.stdin.isatty() and not yes:
        typer.confirm(f"Delete {', '.join(names)} and all records in them?", abort=True)
    with failures_told(bootstrap_server):
        admin = connect(bootstrap_server, command_config)
        futures = admin.delete_topics(names, request_timeout=REQUEST_TIMEOUT_S)
    deleted, failures = [], []
    for name in names:
        try:
            with failures_told(bootstrap_server, name):
                if _was_deleted(futures[name], if_exists):
                    deleted.append(name)
        except CommandError as failure:
            failures.append(str(failure))
    tell(as_json, f"Deleted {', '.join(deleted) or 'nothing'}.", deleted=deleted)
    if failures:
        raise CommandError("; ".join(failures))


def _was_deleted(future: Any, if_exists: bool) -> bool:
    try:
        future.result(REQUEST_TIMEOUT_S)
    except KafkaException as error:
        if if_exists and error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return False
        raise
    return True
