"""UpdateFeatures (57): sets the levels of features of the whole cluster.

This release and every registered node must support the level. Either all updates of a request are made, or none. A
downgrade must be allowed by the request, and `metadata.version` has none: records might be lost.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from odradek.controller.brokers import Records
from odradek.controller.controller import Terms
from odradek.controller.features import (
    ELIGIBLE_LEADER_REPLICAS,
    METADATA_VERSION,
    SUPPORTED_FEATURES,
    one_min_isr,
)
from odradek.controller.parts import Part
from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.image import MetadataImage
from odradek.metadata.records import FeatureLevelRecord, SupportedFeature
from odradek.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesResponse,
)

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
RESULTS_UNTIL = 1  # later versions have one error for all features


def decide(image: MetadataImage, part: Part, terms: Terms) -> tuple[Records, UpdateFeaturesResponse]:
    request: Any = part.request
    version = terms.version
    updates: list[FeatureUpdateKey] = request.feature_updates
    records: Records = []
    for update in updates:
        _check(image, update, version)
        if update.feature == ELIGIBLE_LEADER_REPLICAS:
            records += one_min_isr(image, terms.config)
        if image.features.get(update.feature, 0) != update.max_version_level:
            records.append(FeatureLevelRecord(update.feature, update.max_version_level))
    response = UpdateFeaturesResponse(error_message=None)
    if version <= RESULTS_UNTIL:
        response.results = [UpdatableFeatureResult(update.feature, 0, None) for update in updates]
    return ([] if request.validate_only else records), response


def _check(image: MetadataImage, update: FeatureUpdateKey, version: int) -> None:
    level, current = update.max_version_level, image.features.get(update.feature, 0)
    kind = update.upgrade_type if version > 0 else (SAFE_DOWNGRADE if update.allow_downgrade else UPGRADE)
    if kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        reason = "The controller does not support the given upgrade type."
    elif level < 0:
        reason = "A feature version cannot be less than 0."
    elif unable := next(_unable(image, update), ""):
        reason = unable
    elif level < current and kind == UPGRADE:
        reason = "A lower version needs the upgrade type of a safe or an unsafe downgrade."
    elif level < current and update.feature == METADATA_VERSION:
        reason = "Refusing to perform the requested downgrade because it might delete metadata information."
    elif level > current and kind != UPGRADE:
        reason = "A downgrade cannot lead to a newer version."
    else:
        return
    raise KafkaError(
        ErrorCode.INVALID_UPDATE_VERSION,
        f"Invalid update version {level} for feature {update.feature}. {reason}",
    )


def _unable(image: MetadataImage, update: FeatureUpdateKey) -> Iterator[str]:
    """The nodes that do not support it, and the levels that they support."""
    ours = [SupportedFeature(name, *levels) for name, levels in SUPPORTED_FEATURES.items()]
    nodes: list[tuple[str, Iterable[SupportedFeature]]] = [("This controller", ours)]
    nodes += [(f"Broker {broker.id}", broker.features) for broker in image.brokers.values()]
    nodes += [(f"Controller {node.id}", node.features) for node in image.controllers.values()]
    for name, features in nodes:
        supported = next((item for item in features if item.name == update.feature), None)
        low, high = (0, 0) if supported is None else _levels(supported)
        if not low <= update.max_version_level <= high:
            yield f"{name} only supports versions {low}-{high}."


def _levels(feature: SupportedFeature) -> tuple[int, int]:
    return feature.min_supported_version, feature.max_supported_version
