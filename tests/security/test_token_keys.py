"""The keys of bearer tokens while a node runs: none, no start; new ones when a token names one; old ones if need be."""

import asyncio
import json
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from odradek.config.definition import ConfigError
from odradek.config.security import Tokens
from odradek.security.bearer import InvalidToken
from odradek.security.key_sets import parse_source
from odradek.security.tokens import TokenPolicy
from odradek.services.cluster.authentication import MIN_KEY_REFRESH_MS, TokenKeys
from tests.broker.in_process import InProcess

NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
KEYS = {name: ec.generate_private_key(ec.SECP256R1()) for name in ("old", "new")}


class Clock:
    """The part of a host that keys need."""

    def __init__(self) -> None:
        self.ms = 0

    def steady_ms(self) -> int:
        return self.ms

    def now_ms(self) -> int:
        return NOW_MS

    async def in_thread(self, work):
        return work()


def write(file: Path, *names: str) -> None:
    listed = [
        {**json.loads(jwt.algorithms.ECAlgorithm.to_jwk(KEYS[name].public_key())), "kid": name}
        for name in names
    ]
    file.write_text(json.dumps({"keys": listed}))


def token(name: str) -> str:
    now_s = NOW_MS // 1000
    claims = {"iss": "https://issuer", "aud": "kafka", "sub": "ada", "iat": now_s, "exp": now_s + 60}
    return jwt.encode(claims, KEYS[name], "ES256", {"kid": name})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def keys(file: Path, clock: Clock) -> TokenKeys:
    policy = TokenPolicy("https://issuer", ("kafka",))
    return TokenKeys(Tokens(policy, parse_source(f"file://{file}", ()), HOUR_MS), clock)  # type: ignore[arg-type]


def test_a_key_that_a_token_names_is_looked_for_soon_but_not_each_time(file, clock, keys):
    async def scenario() -> None:
        write(file, "old")
        await keys.read_first()
        assert keys.validate(token("old")).user == "ada"
        write(file, "old", "new")
        for _ in range(3):
            with pytest.raises(InvalidToken):
                keys.validate(token("new"))
            await keys.maybe_refresh()
        clock.ms += MIN_KEY_REFRESH_MS
        await keys.maybe_refresh()
        assert keys.validate(token("new")).user == "ada"

    asyncio.run(scenario())


def test_keys_that_cannot_be_read_again_stay(file, clock, keys, caplog):
    async def scenario() -> None:
        write(file, "old")
        await keys.read_first()
        for wrong in ("", "{}", '{"keys": [{"kty": "oct", "k": "AAAA"}]}'):
            file.write_text(wrong)
            clock.ms += HOUR_MS
            await keys.maybe_refresh()
            assert keys.validate(token("old")).user == "ada"
        file.unlink()
        clock.ms += HOUR_MS
        await keys.maybe_refresh()
        assert keys.validate(token("old")).user == "ada"

    asyncio.run(scenario())
    assert caplog.text.count("stay as they are") == 4


def test_a_key_that_was_withdrawn_opens_nothing(file, clock, keys):
    async def scenario() -> None:
        write(file, "old", "new")
        await keys.read_first()
        write(file, "new")
        clock.ms += HOUR_MS
        await keys.maybe_refresh()
        with pytest.raises(InvalidToken):
            keys.validate(token("old"))

    asyncio.run(scenario())


def test_without_keys_there_is_no_start(tmp_path: Path) -> None:
    settings = {
        "listeners": "SASL_PLAINTEXT://localhost:0",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            'username="node" password="secret" user_node="secret";'
        ),
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{tmp_path}/not-there.json",
        "sasl.oauthbearer.expected.issuer": "https://issuer",
        "sasl.oauthbearer.expected.audience": "kafka",
    }

    async def scenario() -> None:
        node = InProcess(str(tmp_path / "data"), settings=settings)
        try:
            with pytest.raises(ConfigError, match=r"not-there\.json cannot be read"):
                await node.broker.start()
        finally:
            await node.broker.stop()

    asyncio.run(scenario())
