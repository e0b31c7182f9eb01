"""The topics of a pipeline, inspected and created: the only module besides Spark's that talks to a cluster.

A sink's topic is created only if the file declares its partitions. Otherwise it must exist: a misspelt name
must not become a topic.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from odradek.client.cluster import EARLIEST, LATEST, Cluster, MissingTopic, borrow_cluster
from odradek.client.connection import ConnectionLost
from odradek.client.deadline import TimedOut
from odradek.client.properties import InvalidProperty, parse_properties
from odradek.client.settings import ClientSettings
from odradek.errors import ErrorCode, KafkaError
from odradek.model import TopicPartition
from odradek.pipeline.file.definition import BOOTSTRAP, Pipeline, TopicDeclaration, TopicSource
from odradek.pipeline.file.document import Key
from odradek.pipeline.file.errors import PipelineError, Unreachable
from odradek.spark.pattern import compile_java
from odradek.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)

PATIENCE_S = 15.0
TOPIC_RESOURCE = 2
BROKER_DEFAULT = -1
MAX_MESSAGE_BYTES = "max.message.bytes"

DEFAULT_MESSAGE_BYTES = 1_048_588

Offsets = dict[str, dict[str, int]]


def kafka_options(settings: Mapping[str, str]) -> dict[str, str]:
    """Client settings as options of `format("odradek")`."""
    return {f"kafka.{name}": value for name, value in settings.items()}


def group_of(pipeline: Pipeline, query: str) -> str:
    """The group to which a query commits its offsets, so that any tool shows its lag."""
    return f"odradek-pipeline-{pipeline.name}-{query}"


@dataclass(frozen=True)
class TopicView:
    partitions: int
    max_message_bytes: int | None


class Topics:
    """One cluster, by a pipeline's client settings."""

    def __init__(self, cluster: Cluster, servers: str) -> None:
        self._cluster, self.servers = cluster, servers

    def find(self, name: str) -> TopicView | None:
        try:
            partitions = len(self._cluster.partitions_of([name]))
        except MissingTopic:
            return None
        return TopicView(partitions, self._max_message_bytes(name))

    def find_now(self, name: str) -> TopicView | None:
        """The same without patience: `find` waits some seconds for a topic that may just have been created."""
        return self.find(name) if name in self._cluster.topic_names() else None

    def _max_message_bytes(self, name: str) -> int | None:
        resource = DescribeConfigsResource(TOPIC_RESOURCE, name, [MAX_MESSAGE_BYTES])
        request = DescribeConfigsRequest(resources=[resource])
        response = self._cluster.ask("look at a topic's settings", request, DescribeConfigsResponse)
        for result in response.results:
            for config in result.configs:
                if config.name == MAX_MESSAGE_BYTES and config.value:
                    return int(config.value)
        return None  # not allowed to see it, or not known there

    def create(self, declaration: TopicDeclaration) -> None:
        topic = CreatableTopic(
            name=declaration.topic,
            num_partitions=declaration.partitions or BROKER_DEFAULT,
            replication_factor=declaration.replication_factor or BROKER_DEFAULT,
            configs=[CreatableTopicConfig(name, value) for name, value in declaration.config.items()],
        )
        response = self._cluster.ask(
            "create a topic", CreateTopicsRequest(topics=[topic]), CreateTopicsResponse
        )
        for result in response.topics:
            code = ErrorCode(result.error_code)
            if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                raise KafkaError(code, result.error_message or code.name)

    def subscribed(self, origin: TopicSource) -> list[str]:
        if not origin.pattern:
            return list(origin.topics)
        pattern = compile_java(origin.pattern)
        return [name for name in self._cluster.topic_names() if pattern.fullmatch(name)]

    def offsets(self, names: Iterable[str], which: int) -> Offsets:
        """`EARLIEST` or `LATEST` of every partition, as readers of committed data see it and checkpoints keep it."""
        partitions = self._cluster.partitions_of(names)
        found: Offsets = {}
        offsets = self._cluster.list_offsets(dict.fromkeys(partitions, which), read_committed=True)
        for partition, offset in offsets.items():
            found.setdefault(partition.topic, {})[str(partition.partition)] = offset
        return found

    def earliest(self, names: Iterable[str]) -> Offsets:
        return self.offsets(names, EARLIEST)

    def latest(self, names: Iterable[str]) -> Offsets:
        return self.offsets(names, LATEST)

    def committed(self, group: str) -> Offsets:
        found: Offsets = {}
        for partition, offset in self._cluster.committed_offsets(group).items():
            found.setdefault(partition.topic, {})[str(partition.partition)] = offset
        return found

    def commit(self, group: str, offsets: Offsets) -> None:
        flat = {TopicPartition(t, int(p)): o for t, found in offsets.items() for p, o in found.items()}
        self._cluster.commit_offsets(group, flat)


def client_settings(kafka: Mapping[str, str]) -> ClientSettings:
    try:
        settings = parse_properties(kafka).client
    except InvalidProperty as error:
        raise PipelineError(f"kafka.{error}") from None
    return replace(settings, api_timeout_s=min(settings.api_timeout_s, PATIENCE_S))


@contextmanager
def topics_of(pipeline: Pipeline, kafka: Mapping[str, str], key: Key = ("kafka",)) -> Iterator[Topics]:
    """A cluster for the length of a block; errors name the key that configures it."""
    try:
        settings = client_settings(kafka)
    except PipelineError as error:
        raise pipeline.error(key, error.problem) from None
    servers = kafka[BOOTSTRAP]
    try:
        with borrow_cluster(settings) as cluster:
            yield Topics(cluster, servers)
    except (TimedOut, ConnectionLost) as error:
        problem = f"no broker responds at {servers}: {error}"
        raise BrokersAway(problem, pipeline.document.path, pipeline.document.line(key)) from None
    except KafkaError as error:
        raise pipeline.error(key, str(error)) from None


class BrokersAway(Unreachable):
    """No broker responds."""


def check_source(pipeline: Pipeline, key: Key, origin: TopicSource) -> None:
    where = "pattern" if origin.pattern else "topics" if len(origin.topics) > 1 else "topic"
    with topics_of(pipeline, origin.kafka, (*key, where)) as topics:
        if origin.pattern:
            if not topics.subscribed(origin):
                problem = f"no topic at {topics.servers} matches '{origin.pattern}'"
                raise pipeline.error((*key, where), problem)
            return
        for name in origin.topics:
            if topics.find(name) is None:
                problem = (
                    f"there is no topic '{name}' at {topics.servers}: create it "
                    f"('odradek topic create {name}'), or correct the name"
                )
                raise pipeline.error((*key, where), problem)
    if origin.archive:
        _check_archives(pipeline, key, origin)


def _check_archives(pipeline: Pipeline, key: Key, origin: TopicSource) -> None:
    from odradek.archive.failures import ArchiveError
    from odradek.archive.location import Location
    from odradek.archive.tables import Table

    for name in origin.topics:
        try:
            Table.open(Location.of(origin.archive, name, origin.archive_storage)).pinned()
        except ArchiveError as error:
            raise pipeline.error((*key, "archive"), str(error)) from None


def check_declaration(
    pipeline: Pipeline, key: Key, declaration: TopicDeclaration, *, create: bool = False
) -> TopicView | None:
    """The topic to write to: it exists or is declared. With `create` it exists afterwards."""
    name = declaration.topic
    with topics_of(pipeline, declaration.kafka, (*key, "topic")) as topics:
        found = topics.find(name) if declaration.partitions is None else topics.find_now(name)
        if found is None and declaration.partitions is None:
            problem = (
                f"there is no topic '{name}' at {topics.servers}: create it ('odradek topic create {name}'), or "
                "declare it with partitions = N, and a run creates it"
            )
            raise pipeline.error((*key, "topic"), problem)
        if found is None and create:
            topics.create(declaration)
            found = topics.find(name)
    wanted = declaration.partitions
    if found is not None and wanted is not None and found.partitions != wanted:
        problem = (
            f"topic '{name}' has {found.partitions} partitions, not {wanted}: change the number here, or the topic "
            f"('odradek topic alter {name} --partitions {wanted}')"
        )
        raise pipeline.error((*key, "partitions"), problem)
    return found
