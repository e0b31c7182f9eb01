"""Features of the whole cluster and their levels, which are in the metadata log.

With `eligible.leader.replicas.version` (KIP-966), `min.insync.replicas` decides who may lead a partition that lost its
ISR, so the controller and every leader must use the same value. It is therefore a setting of the whole cluster, which a
topic may override, but a single broker may not. A new cluster writes the value of its first controller. This release
always enables the feature: see docs/decisions/0005-eligible-leader-replicas-are-always-on.md.

With `metadata.version` 30, Kafka's 4.3-IV0, brokers can be cordoned (KIP-1066): the records have a place for it. A
cluster of an older release stays at 25 until somebody raises it; it cannot be lowered again.

With `transaction.version` 2 every transaction has an epoch of its own, and the first Produce adds a partition to it
(KIP-890). At 0 and 1 clients use the protocol before it; the difference between those two is in the records of the
coordinator.
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
TRANSACTION_VERSION = "transaction.version"
CORDONED = "cordoned.log.dirs"

CORDONING_SINCE = 30  # metadata.version 4.3-IV0

# The lowest and the highest level that this release supports; 25 is Kafka's 4.0-IV3.
SUPPORTED_FEATURES = {
    METADATA_VERSION: (25, CORDONING_SINCE),
    ELIGIBLE_LEADER_REPLICAS: (1, 1),
    TRANSACTION_VERSION: (0, 2),
}

Records = list[MetadataRecord]


def activation_records(image: MetadataImage, config: BrokerConfig) -> Records:
    """The first records of a new controller: the features of a new cluster, or those that this release cannot do
    without and an older one did not have. A feature that may be off (level 0) stays off until somebody asks for it."""
    is_new = METADATA_VERSION not in image.features
    missing = [
        name
        for name, (lowest, _) in SUPPORTED_FEATURES.items()
        if name not in image.features and (is_new or lowest > 0)
    ]
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
    """Refuse a change that sets `min.insync.replicas` for a single broker, or leaves the cluster without one.
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


def can_cordon(image: MetadataImage) -> bool:
    return image.features.get(METADATA_VERSION, 0) >= CORDONING_SINCE


def check_cordons(image: MetadataImage, resource: ConfigResource, touched: Collection[str]) -> None:
    """Refuse to change `cordoned.log.dirs` while the records have no place for it."""
    if resource.type == ResourceType.BROKER and CORDONED in touched and not can_cordon(image):
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"{CORDONED} needs {METADATA_VERSION} {CORDONING_SINCE} (4.3-IV0): raise it with UpdateFeatures first.",
        )


def _is_one_broker(resource: ConfigResource) -> bool:
    return resource.type == ResourceType.BROKER and bool(resource.name)
