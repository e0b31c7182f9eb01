"""Changes the configuration of topics, brokers and groups: AlterConfigs replaces all keys of a resource,
IncrementalAlterConfigs sets, deletes, appends to or subtracts from single keys.

A resource changes as a whole or not at all; one that is refused does not affect the others. As in Kafka, an invalid
value is INVALID_CONFIG for topics and groups, and INVALID_REQUEST for brokers. An unknown name is INVALID_CONFIG for
topics and groups; brokers keep it, and ignore it: it may be that of a plugin, or of a later version. The caller checks
authorization. Log levels (BROKER_LOGGER) and client metrics are not supported.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Protocol, TypeVar

from odradek.config.broker import BrokerConfig, definition_of
from odradek.config.definition import ConfigError, ConfigType, Definition, Scope, to_text
from odradek.config.group import GROUP_DEFINITIONS, check_group_overrides
from odradek.config.topic import check_topic_overrides
from odradek.config.topic_definitions import TOPIC_DEFINITIONS
from odradek.controller.features import check_cordons, check_min_isr
from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.image import ConfigResource, MetadataImage, ResourceType
from odradek.metadata.records import ConfigRecord, MetadataRecord
from odradek.model import check_topic_name
from odradek.wire.messages import alter_configs as legacy
from odradek.wire.messages import incremental_alter_configs as incremental

Records = list[MetadataRecord]
Settings = Mapping[str, str]
# The places of a listener's certificates; which of its secrets open them stays in the settings of the node.
STORES = tuple(f"ssl.{store}.{what}" for store in ("keystore", "truststore") for what in ("location", "type"))


class Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class _Key(Protocol):
    name: str
    value: str | None


class _Resource(Protocol):
    resource_type: int
    resource_name: str

    @property
    def configs(self) -> Sequence[_Key]: ...


R = TypeVar("R", bound=_Resource)
ConfigResult = tuple[int, str | None, int, str]  # error code, message, resource type and name


def alter_configs(
    image: MetadataImage, request: legacy.AlterConfigsRequest, config: BrokerConfig
) -> tuple[Records, legacy.AlterConfigsResponse]:
    """Every resource ends up with exactly the given keys. `config` is the controller's own."""

    def replace(resource: legacy.AlterConfigsResource, current: Settings) -> dict[str, str]:
        _check_keys(resource.configs, [key for key in resource.configs if key.value is None])
        return {key.name: key.value for key in resource.configs if key.value is not None}

    records, outcomes = _alter(image, request.resources, config, replace)
    responses = [legacy.AlterConfigsResourceResponse(*outcome) for outcome in outcomes]
    return ([] if request.validate_only else records), legacy.AlterConfigsResponse(responses=responses)


def incremental_alter_configs(
    image: MetadataImage, request: incremental.IncrementalAlterConfigsRequest, config: BrokerConfig
) -> tuple[Records, incremental.IncrementalAlterConfigsResponse]:
    """Every resource keeps the keys that are not named. `config` is the controller's own."""

    def change(resource: incremental.AlterConfigsResource, current: Settings) -> dict[str, str]:
        without_value = [
            key for key in resource.configs if key.value is None and key.config_operation != Operation.DELETE
        ]
        _check_keys(resource.configs, without_value)
        settings = dict(current)
        for key in resource.configs:
            _apply(settings, resource.resource_type, key)
        return settings

    records, outcomes = _alter(image, request.resources, config, change)
    responses = [incremental.AlterConfigsResourceResponse(*outcome) for outcome in outcomes]
    response = incremental.IncrementalAlterConfigsResponse(responses=responses)
    return ([] if request.validate_only else records), response


def _alter(
    image: MetadataImage,
    resources: Sequence[R],
    config: BrokerConfig,
    change: Callable[[R, Settings], dict[str, str]],
) -> tuple[Records, list[ConfigResult]]:
    records: Records = []
    outcomes: list[ConfigResult] = []
    counts = Counter((item.resource_type, item.resource_name) for item in resources)
    for item in resources:
        resource = ConfigResource(item.resource_type, item.resource_name)
        code, message = ErrorCode.NONE, None
        try:
            if counts[resource] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "This resource is in the request more than once.")
            _check_resource(image, resource)
            current = image.configs.get(resource, {})
            settings = change(item, current)
            touched = _touched(item, current, settings)
            check_min_isr(image, resource, touched, settings)
            check_cordons(image, resource, touched)
            _check_settings(resource, settings, config)
            records += _differences(resource, current, settings)
        except KafkaError as error:
            code, message = error.code, error.message or None
        outcomes.append((code, message, *resource))
    return records, outcomes


def _touched(item: _Resource, before: Settings, after: Settings) -> set[str]:
    """The keys that the request names, and those that it removes by not naming them."""
    return {key.name for key in item.configs} | (before.keys() - after.keys())


def _check_resource(image: MetadataImage, resource: ConfigResource) -> None:
    if resource.type == ResourceType.TOPIC:
        _check_topic(image, resource.name)
    elif resource.type == ResourceType.BROKER:
        _check_broker(image, resource.name)
    elif resource.type == ResourceType.GROUP:
        _check_group(resource.name)
    else:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Resources of type {resource.type} cannot be configured."
        )


def _check_topic(image: MetadataImage, name: str) -> None:
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Topics have no common configuration: name one.")
    check_topic_name(name)
    if name not in image.topics:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist.")


def _check_broker(image: MetadataImage, name: str) -> None:
    """The empty name is the default of all brokers."""
    if not name:
        return
    if not (name.isascii() and name.isdecimal()):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"A broker is named by its id, not by '{name}'.")
    if int(name) not in image.brokers:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"There is no broker {name}.")


def _check_group(name: str) -> None:
    """A group need not exist to be configured."""
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Groups have no common configuration: name one.")


def _check_keys(keys: Sequence[_Key], without_value: Sequence[_Key]) -> None:
    if len({key.name for key in keys}) < len(keys):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A key is in the request more than once.")
    if without_value:
        names = ", ".join(key.name for key in without_value)
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"No value is given for {names}.")


def _apply(settings: dict[str, str], resource_type: int, key: incremental.AlterableConfig) -> None:
    if key.config_operation not in Operation._value2member_map_:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"There is no operation {key.config_operation}.")
    operation = Operation(key.config_operation)
    if operation is Operation.DELETE:
        settings.pop(key.name, None)
    elif operation is Operation.SET:
        settings[key.name] = key.value or ""
    else:
        definition = _list_definition(resource_type, key.name, operation)
        text = settings.get(key.name, to_text(definition.default) or "")
        items = [item for item in text.split(",") if item]
        settings[key.name] = ",".join(_combined(items, (key.value or "").split(","), operation))


def _list_definition(resource_type: int, name: str, operation: Operation) -> Definition:
    tables = {ResourceType.TOPIC: TOPIC_DEFINITIONS.get, ResourceType.GROUP: GROUP_DEFINITIONS.get}
    definition = tables.get(ResourceType(resource_type), definition_of)(name)
    if definition is None or definition.type is not ConfigType.LIST:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{operation.name} is for lists, and {name} is not one.")
    return definition


def _combined(items: list[str], operands: Sequence[str], operation: Operation) -> list[str]:
    if operation is Operation.APPEND:
        return list(dict.fromkeys([*items, *operands]))
    return [item for item in items if item not in operands]


def _check_settings(resource: ConfigResource, settings: Settings, config: BrokerConfig) -> None:
    if resource.type == ResourceType.TOPIC:
        check_topic_overrides(settings, config)
    elif resource.type == ResourceType.GROUP:
        check_group_overrides(settings, config)
    else:
        _check_broker_settings(settings, config, is_default=not resource.name)


def _check_broker_settings(settings: Settings, config: BrokerConfig, is_default: bool) -> None:
    try:
        for name, text in settings.items():
            definition = definition_of(name)
            if definition is not None:
                _check_broker_key(name, definition, is_default)
                definition.parse(text)
        if is_default:
            config.check_dynamic(config.dynamic, settings)
        else:
            config.check_dynamic(settings, config.dynamic_default)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None


def _check_broker_key(name: str, definition: Definition, is_default: bool) -> None:
    if definition.name in STORES and name == definition.name:
        reason = "Only a single listener can change this configuration, by its listener.name prefix"
    elif definition.scope is Scope.READ_ONLY or not (name == definition.name or _is_of_listener(name)):
        reason = "Only a restart of the broker can change this configuration"
    elif definition.scope is Scope.PER_BROKER and is_default:
        reason = "Only a single broker can have this configuration"
    else:
        return
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"{reason}: {name}.")


def _is_of_listener(name: str) -> bool:
    """True for settings of a single listener that may change while it is open: its connection limits and the files
    of its certificates."""
    return name.endswith(
        (".max.connections", ".max.connection.creation.rate", *(f".{key}" for key in STORES))
    )


def _differences(resource: ConfigResource, before: Settings, after: Settings) -> Records:
    changed = [name for name, text in after.items() if before.get(name) != text]
    removed = [name for name in before if name not in after]
    return [ConfigRecord(*resource, name, after.get(name)) for name in (*changed, *removed)]
