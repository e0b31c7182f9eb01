"""The client's side of SASL: a conversation is a generator that yields requests and is sent the responses.

PLAIN (RFC 4616), SCRAM-SHA-256 and -512 (RFC 5802, 7677) and OAUTHBEARER (RFC 7628). A SCRAM server also proves
that it knows the password; one that cannot is refused.

A bearer token comes from a token endpoint (client credentials, RFC 6749 section 4.4) or, for trying things
out, is an unsecured one that we make ourselves.
"""

import base64
import hashlib
import hmac
import json
import os
import time
from collections.abc import Callable, Generator

from odradek.client.settings import SaslSettings
from odradek.errors import ErrorCode, KafkaError

Conversation = Generator[bytes, bytes, None]

UNSECURED_TOKEN_LIFE_S = 3600
TOKEN_REQUEST_TIMEOUT_S = 10
SCRAM_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MIN_ITERATIONS, MAX_ITERATIONS = 4096, 1_000_000
SEPARATOR = "\x01"


def start_authentication(sasl: SaslSettings) -> Conversation:
    return MECHANISMS[sasl.mechanism](sasl)


def _refused(message: str) -> KafkaError:
    return KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, message)


def plain(sasl: SaslSettings) -> Conversation:
    yield f"\0{sasl.username}\0{sasl.password}".encode()


def scram(sasl: SaslSettings) -> Conversation:
    hash_name = SCRAM_HASHES[sasl.mechanism]
    nonce = base64.b64encode(os.urandom(24)).decode()
    username = sasl.username.replace("=", "=3D").replace(",", "=2C")
    client_first = f"n={username},r={nonce}"
    server_first = (yield f"n,,{client_first}".encode()).decode()
    challenge = _attributes(server_first)
    if not challenge.get("r", "").startswith(nonce):
        raise _refused("the broker's SCRAM nonce does not continue ours")
    salted_password = _salted_password(hash_name, sasl.password, challenge)
    without_proof = f"c=biws,r={challenge['r']}"
    everything = f"{client_first},{server_first},{without_proof}".encode()
    client_key = hmac.digest(salted_password, b"Client Key", hash_name)
    stored_key = hashlib.new(hash_name, client_key).digest()
    signature = hmac.digest(stored_key, everything, hash_name)
    proof = base64.b64encode(bytes(one ^ other for one, other in zip(client_key, signature, strict=True)))
    server_final = _attributes((yield f"{without_proof},p={proof.decode()}".encode()).decode())
    if "e" in server_final:
        raise _refused(f"the broker responded {server_final['e']}")
    server_key = hmac.digest(salted_password, b"Server Key", hash_name)
    expected = base64.b64encode(hmac.digest(server_key, everything, hash_name)).decode()
    if not hmac.compare_digest(server_final.get("v", ""), expected):
        raise _refused(
            "the broker does not know the password, so it may be an impostor: check kafka.bootstrap.servers"
        )


def _salted_password(hash_name: str, password: str, challenge: dict[str, str]) -> bytes:
    iterations = int(challenge["i"])
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise _refused(f"the broker asks for {iterations} SCRAM iterations")
    return hashlib.pbkdf2_hmac(hash_name, password.encode(), base64.b64decode(challenge["s"]), iterations)


def _attributes(message: str) -> dict[str, str]:
    return {part[0]: part[2:] for part in message.split(",") if part[1:2] == "="}


def oauthbearer(sasl: SaslSettings) -> Conversation:
    token = _fetch_token(sasl) if sasl.token_url else _unsecured_token(sasl.unsecured_subject or "")
    extensions = "".join(f"{SEPARATOR}{name}={value}" for name, value in sasl.extensions)
    answer = yield f"n,,{SEPARATOR}auth=Bearer {token}{extensions}{SEPARATOR}{SEPARATOR}".encode()
    if answer:  # a reason in JSON; the protocol has us acknowledge it before the broker fails the login
        yield SEPARATOR.encode()
        raise _refused(f"the broker refused the token: {answer.decode(errors='replace')}")


def _fetch_token(sasl: SaslSettings) -> str:
    import urllib.error  # here, because HTTP takes long to import, and every process of Spark's imports this module
    import urllib.parse
    import urllib.request

    assert sasl.token_url is not None
    form = {"grant_type": "client_credentials"} | ({"scope": sasl.scope} if sasl.scope else {})
    credentials = base64.b64encode(f"{sasl.username}:{sasl.password}".encode()).decode()
    request = urllib.request.Request(
        sasl.token_url,
        data=urllib.parse.urlencode(form).encode(),
        headers={"Authorization": f"Basic {credentials}", "Accept": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=TOKEN_REQUEST_TIMEOUT_S) as answer:
            return str(json.load(answer)["access_token"])
    except (urllib.error.URLError, ValueError, KeyError, TimeoutError) as error:
        raise _refused(f"no token from {sasl.token_url}: {error}") from error


def _unsecured_token(subject: str) -> str:
    now_s = int(time.time())
    claims = {"sub": subject, "iat": now_s, "exp": now_s + UNSECURED_TOKEN_LIFE_S}
    return f"{_base64_json({'alg': 'none'})}.{_base64_json(claims)}."


def _base64_json(value: dict[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


MECHANISMS: dict[str, Callable[[SaslSettings], Conversation]] = {
    "PLAIN": plain,
    "SCRAM-SHA-256": scram,
    "SCRAM-SHA-512": scram,
    "OAUTHBEARER": oauthbearer,
}
