"""Tests of vulnerabilities that were published about Kafka, and could have an equivalent here.

More are beside what they are about: tests with `cve_` in their names.
"""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from odradek.acls.codes import Operation, Resource
from odradek.apis.table import named
from odradek.config.broker import BrokerConfig
from odradek.config.definition import ConfigError
from odradek.config.listeners import SecurityProtocol
from odradek.config.security import listener_security
from odradek.errors import ErrorCode
from odradek.model import ANONYMOUS, Caller
from odradek.security.credentials import SHA_256
from odradek.security.jaas import PLAIN
from odradek.security.key_sets import BadKeySource, KeySource, parse_source
from odradek.security.plain import client_message
from odradek.security.scram import credential_of
from odradek.serving.request import Request
from odradek.wire.frame import RequestHeader
from odradek.wire.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from odradek.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from odradek.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.broker.in_process import InProcess
from tests.security_cluster import users

SECRET = "s3cr3t-that-nobody-logs"
JNDI = "com.sun.security.auth.module.JndiLoginModule"
LDAP = "com.sun.security.auth.module.LdapLoginModule"
LISTENER = {
    "listeners": "SASL_PLAINTEXT://localhost:0",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": users({"node": SECRET}),
}


def alteration(name: str, value: str) -> AlterConfigsRequest:
    broker = 4
    return AlterConfigsRequest([AlterConfigsResource(broker, "1", [AlterableConfig(name, value)])])


def test_cve_2026_33558_no_request_with_a_secret_is_logged_at_any_level(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    salted = b"salted-that-nobody-logs".ljust(32, b".")

    async def scenario() -> None:
        async with InProcess(str(tmp_path), settings=LISTENER) as node:
            session = node.broker.services.new_session(
                Caller(ANONYMOUS, "127.0.0.1:1", "SASL_PLAINTEXT"), None
            )
            for message in (
                SaslHandshakeRequest("PLAIN"),
                SaslAuthenticateRequest(client_message("node", SECRET)),
            ):
                await asked(node, message, session)
            assert session.is_open
            upsertion = ScramCredentialUpsertion("ada", 1, 4096, b"the salt", salted)
            await node.ask(AlterUserScramCredentialsRequest([], [upsertion]), 0)
            module = f'{PLAIN} required user_ada="{SECRET}";'
            for name in ("sasl.jaas.config", "listener.name.sasl_plaintext.plain.sasl.jaas.config"):
                refused = await node.ask(alteration(name, module), 2)
                assert refused.responses[0].error_code and SECRET not in str(refused)
            await node.ask(alteration("ssl.keystore.password", SECRET), 2)

    with caplog.at_level(logging.DEBUG):
        asyncio.run(scenario())
    told = caplog.text + "".join(repr(record.__dict__) for record in caplog.records)
    kept = credential_of(SHA_256, salted, b"the salt", 4096)
    for secret in (SECRET, "salted-that-nobody-logs", salted.hex(), *map(written, kept[1:3])):
        assert secret not in told


def written(key: bytes) -> str:
    """Returns a key as it would be in the `repr` of its owner, without the quotes."""
    return repr(key)[2:-1]


async def asked(node: InProcess, message: Any, session: Any) -> None:
    header = RequestHeader(message.API_KEY, 1, 1, "test", 0)
    answered = asyncio.get_running_loop().create_future()
    turns = node.broker.services.node.turns
    request = Request(header, session.caller, lambda one: answered.set_result(one.parts), turns, session)
    road = node.broker.services.road(next(iter(named("Metadata").modules)))
    route = road.admit(message.API_KEY, 1)
    assert route is not None
    effect = road.take(route, request, message)
    if effect is not None:
        await effect
    await answered


@pytest.mark.parametrize("module", [JNDI, LDAP])
def test_cve_2025_27818_and_27819_no_other_login_module_is_loaded(module: str, tmp_path: Path) -> None:
    """There is nothing that could load one, and it is refused in a file and by AlterConfigs."""
    text = f'{module} required user.provider.url="ldap://attacker" useSSL=false;'
    config = BrokerConfig({**LISTENER, "listener.name.sasl_plaintext.plain.sasl.jaas.config": text})
    with pytest.raises(ConfigError, match="the login module of PLAIN is"):
        listener_security(config, "SASL_PLAINTEXT", SecurityProtocol.SASL_PLAINTEXT)

    async def scenario() -> None:
        async with InProcess(str(tmp_path)) as node:
            refused = await node.ask(alteration("sasl.jaas.config", text), 2)
            assert refused.responses[0].error_code == ErrorCode.INVALID_REQUEST

    asyncio.run(scenario())


def test_cve_2025_27817_no_file_is_told_and_no_address_asked_that_is_not_allowed(tmp_path: Path) -> None:
    file = tmp_path / "passwd"
    file.write_text(f"root:{SECRET}")
    with pytest.raises(BadKeySource) as refusal:
        KeySource(f"file://{file}").read()
    assert SECRET not in str(refusal.value)
    for url in ("http://169.254.169.254/keys", "https://169.254.169.254/keys"):
        with pytest.raises(BadKeySource):
            parse_source(url, ("https://issuer.example/keys",))


def test_cve_2026_41115_a_group_is_described_by_who_may_describe_it() -> None:
    """Its documentation said Read, in Kafka."""
    for name in ("ConsumerGroupDescribe", "DescribeGroups"):
        assert [need[:2] for need in named(name).access.needs] == [(Operation.DESCRIBE, Resource.GROUP)]
