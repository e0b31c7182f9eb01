"""AlterUserScramCredentials: what is kept of a password, and what is refused."""

from random import Random

import pytest

from odradek.config.broker import BrokerConfig
from odradek.controller.changes import changes
from odradek.controller.controller import Controller
from odradek.controller.parts import Part
from odradek.errors import ErrorCode
from odradek.metadata.image import DECOYS, ScramUser
from odradek.model import Caller
from odradek.security.credentials import SHA_256, SHA_512
from odradek.security.scram import credential_of, salt_password
from odradek.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from tests.controller.controller_cluster import apply, cluster

SALTED = {mechanism: salt_password(mechanism, "secret", b"salt", 4096) for mechanism in (SHA_256, SHA_512)}


def upsertion(name="ada", mechanism=SHA_256, iterations=4096, salt=b"salt", salted=None):
    return ScramCredentialUpsertion(name, mechanism.code, iterations, salt, salted or SALTED[mechanism])


def decide(image, upsertions=(), deletions=(), seed=1):
    request = AlterUserScramCredentialsRequest(list(deletions), list(upsertions))
    records, response = Controller(1, BrokerConfig(), Random(seed)).decide(image, Part(request), 0, Caller())
    return apply(image, records), {item.user: item.error_code for item in response.results}, records


def test_keys_are_kept_and_the_salted_password_is_not():
    image, codes, records = decide(cluster(), [upsertion(), upsertion("bob", SHA_512)])
    assert codes == {"ada": 0, "bob": 0}
    assert image.credentials[ScramUser(1, "ada")] == credential_of(SHA_256, SALTED[SHA_256], b"salt", 4096)
    assert image.credentials[ScramUser(2, "bob")] == credential_of(SHA_512, SALTED[SHA_512], b"salt", 4096)
    assert SALTED[SHA_256] not in b"".join(record.stored_key + record.server_key for record in records)


def test_the_secret_of_the_decoys_is_written_once():
    image, _, _ = decide(cluster(), [upsertion()])
    secret = image.credentials[DECOYS].stored_key
    assert len(secret) == 64
    image, _, _ = decide(image, [upsertion("bob")], seed=2)
    image, codes, _ = decide(image, deletions=[ScramCredentialDeletion("ada", 1)])
    assert image.credentials[DECOYS].stored_key == secret and codes == {"ada": 0}
    assert set(image.credentials) == {DECOYS, ScramUser(1, "bob")}
    assert decide(cluster(), [upsertion()], seed=2)[0].credentials[DECOYS].stored_key != secret


@pytest.mark.parametrize(
    ("item", "code"),
    [
        (upsertion(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(DECOYS.name), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("x" * 2000), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(iterations=16385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(salt=b""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(salted=b"short"), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(mechanism=SHA_256._replace(code=3), salted=b"x"), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (ScramCredentialDeletion("ada", 1), ErrorCode.RESOURCE_NOT_FOUND),
        (ScramCredentialDeletion(DECOYS.name, DECOYS.mechanism), ErrorCode.UNACCEPTABLE_CREDENTIAL),
    ],
)
def test_a_change_that_is_refused_writes_nothing(item, code):
    is_deletion = isinstance(item, ScramCredentialDeletion)
    _, codes, records = decide(cluster(), [] if is_deletion else [item], [item] if is_deletion else [])
    assert codes == {item.name: code} and records == []


def test_one_user_is_altered_once_in_a_request_and_the_others_are():
    image, codes, _ = decide(cluster(), [upsertion(), upsertion(mechanism=SHA_512), upsertion("bob")])
    assert codes == {"ada": ErrorCode.DUPLICATE_RESOURCE, "bob": 0}
    assert set(image.credentials) == {DECOYS, ScramUser(1, "bob")}


def test_the_log_names_users_and_no_secrets():
    _, _, records = decide(cluster(), [upsertion("ada\n")])
    (change,) = changes(cluster(), records)
    assert change.text == r"set the SCRAM-SHA-256 credential of user 'ada\n'" or "ada" in change.text
    assert "\n" not in change.text
