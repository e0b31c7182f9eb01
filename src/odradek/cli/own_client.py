"""Requests that librdkafka's Python does not offer, sent by our own client: sizes of logs, settings with their
documentation, settings of all brokers at once, and the deletion of committed offsets. Those about transactions are in
`transaction_requests`.

It takes settings by Java's names. Settings written for librdkafka are translated as far as they concern the connection
to a broker; if that is not possible, the request fails as if the broker could not be reached.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from odradek.cli.access import REQUEST_TIMEOUT_S, Access
from odradek.cli.failures import CommandError
from odradek.cli.group_offsets import Place
from odradek.client.connection import Connection, ConnectionLost
from odradek.client.properties import MAPPED, InvalidProperty, parse_properties
from odradek.client.settings import ClientSettings
from odradek.errors import ErrorCode, KafkaError, ProtocolError
from odradek.wire.codec import Message
from odradek.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from odradek.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from odradek.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)

Answer = TypeVar("Answer", bound=Message)

FROM_LIBRDKAFKA = {
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.pem": "ssl.keystore.key",
}
FILES_FROM_LIBRDKAFKA = {
    "ssl.ca.location": "ssl.truststore.certificates",
    "ssl.certificate.location": "ssl.keystore.certificate.chain",
    "ssl.key.location": "ssl.keystore.key",
}


SET_CONFIG, DELETE_CONFIG = 0, 1


class Address(NamedTuple):
    host: str
    port: int


def java_settings(given: Mapping[str, str], bootstrap: str) -> ClientSettings:
    settings = {FROM_LIBRDKAFKA.get(name, name): value for name, value in given.items()}
    for name, java_name in FILES_FROM_LIBRDKAFKA.items():
        if name in given:
            settings[java_name] = Path(given[name]).read_text()
    if "sasl.username" in given and "sasl.jaas.config" not in given:
        user, password = (_quoted(given.get(f"sasl.{name}", "")) for name in ("username", "password"))
        settings["sasl.jaas.config"] = f"Login required username={user} password={password};"
    if settings.get("ssl.endpoint.identification.algorithm") == "none":
        settings["ssl.endpoint.identification.algorithm"] = ""
    known = {name: value for name, value in settings.items() if name in MAPPED}
    timeout_ms = str(int(REQUEST_TIMEOUT_S * 1000))
    return parse_properties(
        {
            "request.timeout.ms": timeout_ms,
            **known,
            "bootstrap.servers": bootstrap,
            "client.id": "odradek-cli",
        }
    ).client


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def ask(
    cluster: Access, address: Address, request: Message, answer_type: type[Answer], least_version: int = 0
) -> Answer:
    """One request to one broker; CommandError says why there is no response. Below the least version, the request could
    not say what is wanted."""
    try:
        settings = java_settings(cluster.given, f"{address.host}:{address.port}")
        connection = Connection(address.host, address.port, settings)
        try:
            _check_version(connection, request, least_version)
            return connection.call(request, answer_type)
        finally:
            connection.close()
    except (ConnectionLost, KafkaError, ProtocolError, InvalidProperty, OSError) as error:
        raise CommandError(f"{address.host}:{address.port}: {error}") from None


def _check_version(connection: Connection, request: Message, least_version: int) -> None:
    version = connection.version_of(request.API_KEY)  # type: ignore[attr-defined]
    if version < least_version:
        name = type(request).__name__.removesuffix("Request")
        raise CommandError(
            f"{connection.host}:{connection.port} is too old: it serves {name} in version {version}, "
            f"and what you ask for is in version {least_version}"
        )


def broker_addresses(cluster: Access) -> dict[int, Address]:
    return {broker.id: Address(broker.host, broker.port) for broker in cluster.metadata().brokers.values()}


def log_sizes(cluster: Access, partitions: Mapping[str, Sequence[int]]) -> dict[Place, int]:
    """Bytes on disk of each partition, at the broker that has most of it; of none where brokers do not say."""
    topics = [DescribableLogDirTopic(topic, list(numbers)) for topic, numbers in partitions.items()]
    sizes: dict[Place, int] = {}
    for address in broker_addresses(cluster).values():
        try:
            answer = ask(cluster, address, DescribeLogDirsRequest(topics), DescribeLogDirsResponse)
        except CommandError:
            continue
        for directory in answer.results:
            for topic in directory.topics:
                for found in topic.partitions:
                    place = Place(topic.name, found.partition_index)
                    sizes[place] = max(found.partition_size, sizes.get(place, 0))
    return sizes


def describe_configs(
    cluster: Access, address: Address, kind: int, names: Iterable[str], keys: Sequence[str]
) -> list[DescribeConfigsResult]:
    """Settings of resources of one kind, with synonyms and documentation."""
    resources = [DescribeConfigsResource(kind, name, list(keys) or None) for name in names]
    request = DescribeConfigsRequest(resources, include_synonyms=True, include_documentation=True)
    results = ask(cluster, address, request, DescribeConfigsResponse).results
    for result in results:
        if result.error_code:
            raise CommandError(f"{result.resource_name}: {result.error_message or _words(result.error_code)}")
    return results


def alter_configs(
    cluster: Access, address: Address, kind: int, name: str, changes: Mapping[str, str | None]
) -> None:
    """Set settings of one resource, or reset those to their defaults whose value is None."""
    configs = [
        AlterableConfig(key, DELETE_CONFIG if value is None else SET_CONFIG, value)
        for key, value in changes.items()
    ]
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(kind, name, configs)])
    (result,) = ask(cluster, address, request, IncrementalAlterConfigsResponse).responses
    if result.error_code:
        raise CommandError(result.error_message or _words(result.error_code))


def delete_offsets(
    cluster: Access, coordinator: Address, group: str, places: Sequence[Place]
) -> dict[Place, str | None]:
    """Delete committed offsets of a group; for each partition None, or why it failed."""
    by_topic: dict[str, list[OffsetDeleteRequestPartition]] = {}
    for place in places:
        by_topic.setdefault(place.topic, []).append(OffsetDeleteRequestPartition(place.partition))
    topics = [OffsetDeleteRequestTopic(name, partitions) for name, partitions in by_topic.items()]
    answer = ask(cluster, coordinator, OffsetDeleteRequest(group, topics), OffsetDeleteResponse)
    if answer.error_code:
        raise CommandError(f"{group}: {_words(answer.error_code)}")
    return {
        Place(topic.name, found.partition_index): _words(found.error_code) if found.error_code else None
        for topic in answer.topics
        for found in topic.partitions
    }


def _words(code: int) -> str:
    return ErrorCode(code).name.lower().replace("_", " ")
