"""DescribeUserScramCredentials (50): which users may log in with SCRAM, with which mechanisms and iterations.

Each broker responds from its own copy of the metadata. Salts and keys are never shown.
"""

from collections import Counter
from collections.abc import Iterable

from odradek.errors import ErrorCode
from odradek.metadata.image import DECOYS, MetadataImage, ScramUser
from odradek.security.credentials import BY_CODE
from odradek.serving.cluster import Cluster
from odradek.serving.request import Request
from odradek.wire.codec import Steps
from odradek.wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

USERS_IN_STEP = 100
TWICE = "Cannot describe SCRAM credentials for the same user twice in a single request: "
UNKNOWN = "Attempt to describe a user credential that does not exist: "


def handle(
    cluster: Cluster, request: Request, message: DescribeUserScramCredentialsRequest
) -> Steps[DescribeUserScramCredentialsResponse]:
    image = cluster.image
    counts = Counter(user.name for user in message.users or ())
    results = []
    for place, name in enumerate(counts or _all_users(image)):
        results.append(_describe(image, name, counts[name] > 1))
        if place % USERS_IN_STEP == 0:
            yield
    return DescribeUserScramCredentialsResponse(error_message=None, results=results)


def _all_users(image: MetadataImage) -> Iterable[str]:
    return dict.fromkeys(user.name for user in image.credentials if user != DECOYS)


def _describe(image: MetadataImage, name: str, is_repeated: bool) -> DescribeUserScramCredentialsResult:
    if is_repeated:
        return DescribeUserScramCredentialsResult(name, ErrorCode.DUPLICATE_RESOURCE, TWICE + name)
    found = [
        CredentialInfo(code, credential.iterations)
        for code in BY_CODE
        if (user := ScramUser(code, name)) != DECOYS
        and (credential := image.credentials.get(user)) is not None
    ]
    if not found:
        return DescribeUserScramCredentialsResult(name, ErrorCode.RESOURCE_NOT_FOUND, UNKNOWN + name)
    return DescribeUserScramCredentialsResult(name, ErrorCode.NONE, None, found)
