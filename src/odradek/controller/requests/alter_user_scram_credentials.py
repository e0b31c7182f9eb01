"""AlterUserScramCredentials (51): sets and removes the SCRAM credentials of users.

The client has salted the password (PBKDF2); the two keys that are kept need only two HMACs. With the first credential
the secret of the decoys is written (`security.decoys`), under a name that users cannot have.
"""

import hmac
from collections import Counter
from collections.abc import Iterable
from random import Random
from typing import Any

from odradek.controller.brokers import Records
from odradek.controller.controller import Terms
from odradek.controller.parts import Part
from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.image import DECOYS, MetadataImage, ScramUser
from odradek.metadata.records import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from odradek.security.credentials import BY_CODE, MAX_ITERATIONS, MIN_ITERATIONS, SHA_512
from odradek.security.scram import credential_of
from odradek.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

MIN_SALT_BYTES, MAX_SALT_BYTES = 1, 256
MAX_NAME_LENGTH = 1024


def decide(
    image: MetadataImage, part: Part, terms: Terms
) -> tuple[Records, AlterUserScramCredentialsResponse]:
    request: Any = part.request
    names = Counter(item.name for item in (*request.deletions, *request.upsertions))
    records: Records = []
    refused: dict[str, KafkaError] = {}
    for name, count in names.items():
        if count > 1:
            reason = "A user credential cannot be altered twice in the same request"
            refused[name] = KafkaError(ErrorCode.DUPLICATE_RESOURCE, reason)
    for item in (*request.deletions, *request.upsertions):
        if item.name not in refused:
            try:
                records.append(_record(image, item))
            except KafkaError as error:
                refused[item.name] = error
    if _begins(image, records):
        records.insert(0, decoys_record(terms.rng, (item.salted_password for item in request.upsertions)))
    results = [_result(name, refused.get(name)) for name in names]
    return records, AlterUserScramCredentialsResponse(results=results)


def _record(
    image: MetadataImage, item: ScramCredentialDeletion | ScramCredentialUpsertion
) -> RemoveUserScramCredentialRecord | UserScramCredentialRecord:
    if not item.name:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if item.name == DECOYS.name or len(item.name) > MAX_NAME_LENGTH:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "A user cannot have this name")
    if item.mechanism not in BY_CODE:
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(item, ScramCredentialUpsertion):
        return _credential_record(item)
    if ScramUser(item.mechanism, item.name) not in image.credentials:
        reason = "Attempt to delete a user credential that does not exist"
        raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, reason)
    return RemoveUserScramCredentialRecord(item.name, item.mechanism)


def _credential_record(item: ScramCredentialUpsertion) -> UserScramCredentialRecord:
    mechanism = BY_CODE[item.mechanism]
    if item.iterations < MIN_ITERATIONS:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if item.iterations > MAX_ITERATIONS:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if not MIN_SALT_BYTES <= len(item.salt) <= MAX_SALT_BYTES:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "The salt is empty or too long")
    if len(item.salted_password) != mechanism.key_size:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "The salted password has the wrong size")
    credential = credential_of(mechanism, item.salted_password, item.salt, item.iterations)
    return UserScramCredentialRecord(item.name, item.mechanism, *credential)


def _begins(image: MetadataImage, records: Records) -> bool:
    return DECOYS not in image.credentials and any(
        isinstance(record, UserScramCredentialRecord) for record in records
    )


def decoys_record(rng: Random, secrets: Iterable[bytes] = ()) -> UserScramCredentialRecord:
    """The secret of the decoys: chance, mixed with secrets that only the client knew."""
    secret = rng.randbytes(SHA_512.key_size)
    for more in secrets:
        secret = hmac.digest(secret, more, SHA_512.hash)
    salt, server_key = rng.randbytes(SHA_512.key_size), rng.randbytes(SHA_512.key_size)
    return UserScramCredentialRecord(DECOYS.name, DECOYS.mechanism, salt, secret, server_key, MIN_ITERATIONS)


def _result(name: str, error: KafkaError | None) -> AlterUserScramCredentialsResult:
    if error is None:
        return AlterUserScramCredentialsResult(name, ErrorCode.NONE, None)
    return AlterUserScramCredentialsResult(name, error.code, error.message)
