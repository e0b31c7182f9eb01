"""The client's side of SASL: a conversation is a generator that yields requests and is sent the responses.

The mechanisms are in `odradek.security`; here they get what they need of the world: chance, the time, a token. A bearer
token comes from a token endpoint (client credentials, RFC 6749 section 4.4) or, for trying things out, is an unsecured
one that we make ourselves.
"""

import base64
import json
import os
import time
from collections.abc import Callable, Generator

from odradek.client.settings import SaslSettings
from odradek.errors import ErrorCode, KafkaError
from odradek.security import bearer, plain, scram_client
from odradek.security.credentials import SCRAM_MECHANISMS
from odradek.security.exchange import Refused

Conversation = Generator[bytes, bytes, None]

UNSECURED_TOKEN_LIFE_S = 3600
TOKEN_REQUEST_TIMEOUT_S = 10
NONCE_BYTES = 24


def start_authentication(sasl: SaslSettings) -> Conversation:
    try:
        yield from MECHANISMS[sasl.mechanism](sasl)
    except Refused as error:
        raise _refused(str(error)) from None


def _refused(message: str) -> KafkaError:
    return KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, message)


def _plain(sasl: SaslSettings) -> Conversation:
    yield plain.client_message(sasl.username, sasl.password)


def _scram(sasl: SaslSettings) -> Conversation:
    nonce = base64.b64encode(os.urandom(NONCE_BYTES)).decode()
    return scram_client.converse(SCRAM_MECHANISMS[sasl.mechanism], sasl.username, sasl.password, nonce)


def _oauthbearer(sasl: SaslSettings) -> Conversation:
    token = _fetch_token(sasl) if sasl.token_url else _unsecured_token(sasl.unsecured_subject or "")
    return bearer.converse(token, sasl.extensions)


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
        with urllib.request.urlopen(request, timeout=TOKEN_REQUEST_TIMEOUT_S) as response:
            return str(json.load(response)["access_token"])
    except (urllib.error.URLError, ValueError, KeyError, TimeoutError) as error:
        raise _refused(f"no token from {sasl.token_url}: {error}") from error


def _unsecured_token(subject: str) -> str:
    now_s = int(time.time())
    claims = {"sub": subject, "iat": now_s, "exp": now_s + UNSECURED_TOKEN_LIFE_S}
    return f"{_base64_json({'alg': 'none'})}.{_base64_json(claims)}."


def _base64_json(value: dict[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


MECHANISMS: dict[str, Callable[[SaslSettings], Conversation]] = {
    plain.MECHANISM: _plain,
    **dict.fromkeys(SCRAM_MECHANISMS, _scram),
    bearer.MECHANISM: _oauthbearer,
}
