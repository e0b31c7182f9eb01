"""What the whole cluster agrees to do: features and their levels, which the metadata log carries.

With `eligible.leader.replicas.version` (KIP-966), `min.insync.replicas` decides who may lead a partition that lost its
ISR, so the controller and every leader must see the same value. It is therefore a setting of the whole cluster, which a
topic may override and a single broker may not. A new cluster writes the value of its first controller. This release
cannot do without the feature: see docs/decisions/0005-eligible-leader-replicas-are-always-on.md.
"""

from collections.abc import Collection, Mapping

from odradek.config.broker import BrokerConfig
from odradek.config.topic_definitions import TOPIC_DEFINITIONS
from odradek.controller.elections import MIN_ISR
from odradek.controller.eligible import forget_eligible
from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.image import DEFAULT_BROKER, ConfigResource, MetadataImage, ResourceType
from odradek.metadata.records import ConfigRecord, FeatureLevelRecord, MetadataRecord

METADATA_VERSION = "metadata.version"
ELIGIBLE_LEADER_REPLICAS = "eligible.leader.replicas.version"

# What this release can do: the lowest and the highest level of each; 25 is Kafka's 4.0-IV3.
SUPPORTED_FEATURES = {METADATA_VERSION: (25, 25), ELIGIBLE_LEADER_REPLICAS: (1, 1)}

Records = list[MetadataRecord]


def activation_records(image: MetadataImage, config: BrokerConfig) -> Records:
    """What a new controller writes first: features of a new cluster, or what an older release did not have."""
    missing = [name for name in SUPPORTED_FEATURES if name not in image.features]
    records: Records = []
    if ELIGIBLE_LEADER_REPLICAS in missing:
        records += one_min_isr(image, config)
    return [*records, *(FeatureLevelRecord(name, SUPPORTED_FEATURES[name][1]) for name in missing)]


def one_min_isr(image: MetadataImage, config: BrokerConfig) -> Records:
    """Make `min.insync.replicas` a setting of the whole cluster."""
    records: Records = []
    if MIN_ISR not in image.default_broker_overrides:
        definition = TOPIC_DEFINITIONS[MIN_ISR]
        value = config.static.get(MIN_ISR, str(definition.default))
        records.append(ConfigRecord(*DEFAULT_BROKER, MIN_ISR, value))
    records += [
        ConfigRecord(*resource, MIN_ISR, None)
        for resource, settings in image.configs.items()
        if _is_one_broker(resource) and MIN_ISR in settings
    ]
    return [*records, *forget_eligible(image, records)]


def check_min_isr(
    image: MetadataImage, resource: ConfigResource, touched: Collection[str], after: Mapping[str, str]
) -> None:
    """Refuse a change that gives a broker a `min.insync.replicas` of its own, or leaves the cluster without one.
    `touched`: the keys that the request names, or that it removes by not naming them."""
    if not image.features.get(ELIGIBLE_LEADER_REPLICAS) or MIN_ISR not in touched:
        return
    if _is_one_broker(resource):
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Broker-level {MIN_ISR} cannot be altered while ELR is enabled.",
        )
    if resource == DEFAULT_BROKER and MIN_ISR not in after:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Cluster-level {MIN_ISR} cannot be removed while ELR is enabled.",
        )


def _is_one_broker(resource: ConfigResource) -> bool:
    return resource.type == ResourceType.BROKER and bool(resource.name)
