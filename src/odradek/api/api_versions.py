"""ApiVersions (18): what is served on the listener that is asked, derived from the table of APIs.

- The client's name and version are checked from version 3 on, as Kafka checks them (INVALID_REQUEST).
- A version that we do not know is answered in version 0 (see `dispatch`).
- Features: those of this release, and the levels that the metadata log has finalized (from version 3 on).
"""

import re

from odradek.apis.row import ListenerKind
from odradek.apis.table import BROKER, CONTROLLER, SERVED
from odradek.controller.features import SUPPORTED_FEATURES
from odradek.errors import ErrorCode
from odradek.serving.cluster import Cluster
from odradek.serving.request import Request
from odradek.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

LEGAL_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")


def handle(cluster: Cluster, request: Request, message: ApiVersionsRequest) -> ApiVersionsResponse:
    if request.version >= 3 and not (
        LEGAL_SOFTWARE_NAME.fullmatch(message.client_software_name)
        and LEGAL_SOFTWARE_NAME.fullmatch(message.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    kind = CONTROLLER if cluster.is_for_controller(request) else BROKER
    image = cluster.image
    return ApiVersionsResponse(
        api_keys=_served(kind),
        supported_features=[
            SupportedFeatureKey(name, *levels) for name, levels in SUPPORTED_FEATURES.items()
        ],
        finalized_features_epoch=image.offset,
        finalized_features=[
            FinalizedFeatureKey(name, level, level) for name, level in image.features.items()
        ],
    )


def unsupported_version() -> ApiVersionsResponse:
    """Names only this API: the client has to use it correctly first."""
    own = [version for version in _served(BROKER) if version.api_key == ApiVersionsRequest.API_KEY]
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=own)


def _served(kind: ListenerKind) -> list[ApiVersion]:
    return [
        ApiVersion(key, api.advertised_min_version, api.max_version)
        for key, api in sorted(SERVED[kind].items())
    ]
