"""DescribeConfigs (32): every setting of a topic, broker or group with its value, source and synonyms.

- The default of `default.replication.factor` is what it is in a cluster of this size (`controller.placement`).

Left out: broker loggers and client metrics as resources (INVALID_REQUEST).
"""

from odradek.config.describe import (
    ConfigEntry,
    describe_broker,
    describe_broker_defaults,
    describe_group,
    describe_topic,
)
from odradek.controller.placement import DEFAULT_FACTOR, factor_of_cluster
from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.image import ResourceType
from odradek.model import check_topic_name
from odradek.serving.request import Request
from odradek.serving.services import Services
from odradek.wire.codec import Steps
from odradek.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


def handle(
    services: Services, request: Request, message: DescribeConfigsRequest
) -> Steps[DescribeConfigsResponse]:
    response = DescribeConfigsResponse()
    for wanted in message.resources:
        response.results.append(_describe(services, message, wanted))
        yield
    return response


def _describe(
    services: Services, message: DescribeConfigsRequest, wanted: DescribeConfigsResource
) -> DescribeConfigsResult:
    response = DescribeConfigsResult(resource_type=wanted.resource_type, resource_name=wanted.resource_name)
    try:
        entries = _entries(services, wanted)
    except KafkaError as error:
        response.error_code, response.error_message = error.code, error.message
        return response
    response.error_message = None
    response.configs = [
        _result(entry, message.include_synonyms, message.include_documentation) for entry in entries
    ]
    return response


def _entries(services: Services, wanted: DescribeConfigsResource) -> list[ConfigEntry]:
    keys, name = wanted.configuration_keys, wanted.resource_name
    if wanted.resource_type == ResourceType.TOPIC:
        check_topic_name(name)
        if name not in services.cluster.image.topics:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} does not exist")
        return describe_topic(services.cluster.image.topic_overrides(name), services.node.config, keys)
    if wanted.resource_type == ResourceType.BROKER:
        if not name:
            return describe_broker_defaults(services.node.config, keys)
        if name != str(services.node.id):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"this is broker {services.node.id}, not {name}: ask that one"
            )
        factor = factor_of_cluster(services.cluster.image)
        return describe_broker(services.node.config, keys, {DEFAULT_FACTOR: factor})
    if wanted.resource_type == ResourceType.GROUP and name:
        return describe_group(services.cluster.image.group_overrides(name), services.node.config, keys)
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"resource type {wanted.resource_type} is not described here")


def _result(entry: ConfigEntry, synonyms: bool, documentation: bool) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        synonyms=[DescribeConfigsSynonym(*synonym) for synonym in entry.synonyms] if synonyms else [],
        config_type=entry.type,
        documentation=entry.documentation if documentation else None,
    )
