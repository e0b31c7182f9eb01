"""Real clients log in with each mechanism, and what they are told if they cannot."""

import asyncio
import json
import socket
import subprocess
import uuid
from concurrent.futures import ThreadPoolExecutor

import aiokafka
import jwt
import kafka
import kafka.errors
import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives.asymmetric import rsa

from odradek.client.cluster import Cluster
from odradek.client.properties import parse_properties
from odradek.errors import ErrorCode, KafkaError
from odradek.security.jaas import PLAIN, SCRAM
from odradek.security.plain import client_message
from odradek.wire.codec import read_message
from odradek.wire.frame import encode_request, skip_response_header
from odradek.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.security_cluster import PASSWORDS, configured_broker, users

KEY = rsa.generate_private_key(65537, 2048)
CONFLUENT_SCRAM = {
    "SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256,
    "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512,
}
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]


def token(user="ada", **claims):
    import time

    now = int(time.time())
    given = {"sub": user, "iss": "https://issuer", "aud": "kafka", "iat": now, "exp": now + 600, **claims}
    return jwt.encode(given, KEY, "RS256", {"kid": "k"})


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    directory = tmp_path_factory.mktemp("sasl")
    jwk = {**json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(KEY.public_key())), "kid": "k"}
    (directory / "keys.json").write_text(json.dumps({"keys": [jwk]}))
    settings = {
        "listeners": "SASL_PLAINTEXT://localhost:0",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": users(),
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{directory}/keys.json",
        "sasl.oauthbearer.expected.issuer": "https://issuer",
        "sasl.oauthbearer.expected.audience": "kafka",
        "num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
    with configured_broker(directory, settings) as running:
        admin = AdminClient(librdkafka(running, "PLAIN", "admin"))
        upsertions = [
            UserScramCredentialUpsertion(
                "ada", ScramCredentialInfo(mechanism, 4096), PASSWORDS["ada"].encode()
            )
            for mechanism in CONFLUENT_SCRAM.values()
        ]
        for upsertion in upsertions:
            for done in admin.alter_user_scram_credentials([upsertion]).values():
                done.result(30)
        yield running


def librdkafka(broker, mechanism, user="ada", password=None):
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
    }
    if mechanism == "OAUTHBEARER":
        import time

        return {**settings, "oauth_cb": lambda _: (token(user), time.time() + 500)}
    return {**settings, "sasl.username": user, "sasl.password": password or PASSWORDS[user]}


def new_topic():
    return f"t-{uuid.uuid4().hex[:8]}"


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_confluent_kafka_produces_and_consumes(broker, mechanism):
    topic, settings = new_topic(), librdkafka(broker, mechanism)
    producer = Producer(settings)
    producer.produce(topic, b"hello")
    assert producer.flush(30) == 0
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    message = consumer.poll(30)
    assert message is not None and message.value() == b"hello"
    consumer.close()


class Provider(aiokafka.abc.AbstractTokenProvider):
    async def token(self):
        return token()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka_produces(broker, mechanism):
    async def scenario():
        login = (
            {"sasl_oauth_token_provider": Provider()}
            if mechanism == "OAUTHBEARER"
            else {"sasl_plain_username": "ada", "sasl_plain_password": PASSWORDS["ada"]}
        )
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            **login,
        )
        await producer.start()
        try:
            return await producer.send_and_wait(new_topic(), b"hello")
        finally:
            await producer.stop()

    assert asyncio.run(scenario()).offset == 0


@pytest.mark.parametrize("mechanism", MECHANISMS[:3])
def test_kafka_python_produces(broker, mechanism):
    producer = kafka.KafkaProducer(
        bootstrap_servers=broker.bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_plain_username="ada",
        sasl_plain_password=PASSWORDS["ada"],
    )
    assert producer.send(new_topic(), b"hello").get(30).offset == 0
    producer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS[:3])
def test_kcat_lists_topics(broker, mechanism):
    settings = {
        name: value for name, value in librdkafka(broker, mechanism).items() if name != "bootstrap.servers"
    }
    options = [part for name, value in settings.items() for part in ("-X", f"{name}={value}")]
    done = subprocess.run(
        ["kcat", "-L", "-b", broker.bootstrap, *options], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0 and "1 brokers" in done.stdout, done.stderr


@pytest.mark.parametrize("mechanism", MECHANISMS[:3])
def test_our_own_client_lists_topics(broker, mechanism):
    module = PLAIN if mechanism == "PLAIN" else SCRAM
    Cluster(java(broker, mechanism, module, PASSWORDS["ada"])).topic_names()


def java(broker, mechanism, module, password):
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{module} required username="ada" password="{password}";',
    }
    return parse_properties(settings).client


@pytest.mark.parametrize("mechanism", MECHANISMS[:3])
def test_a_wrong_password_is_refused_and_logged_without_it(broker, mechanism):
    module = PLAIN if mechanism == "PLAIN" else SCRAM
    with pytest.raises(KafkaError) as refused:
        Cluster(java(broker, mechanism, module, "wr0ng-password")).topic_names()
    assert refused.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    line = f"authentication failed: unknown user or wrong password ({mechanism})"
    while line not in broker.log:  # it is written right behind the response
        pass
    assert "wr0ng-password" not in broker.log and "ada-secret" not in broker.log


@pytest.mark.parametrize(
    "claims", [{"aud": "somebody"}, {"iss": "https://else"}, {"exp": 1_600_000_000}, {"sub": ""}], ids=str
)
def test_a_token_that_is_not_for_us_is_refused(broker, claims):
    async def scenario():
        class Wrong(aiokafka.abc.AbstractTokenProvider):
            async def token(self):
                return token(**claims)

        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=Wrong(),
        )
        with pytest.raises(aiokafka.errors.KafkaError):
            await producer.start()
        await producer.stop()

    asyncio.run(scenario())


def test_a_wrong_password_a_thousand_times_is_refused_each_time_and_hurts_nobody(broker):
    """Twenty at once: each waits for the delay of a failed login, and others are served meanwhile."""
    host, port = broker.bootstrap.rsplit(":", 1)
    address = (host, int(port))
    lines = broker.log.count("unknown user or wrong password")
    with ThreadPoolExecutor(20) as pool:
        refused = [pool.submit(log_in_wrongly, address) for _ in range(1000)]
        Cluster(java(broker, "SCRAM-SHA-512", SCRAM, PASSWORDS["ada"])).topic_names()
    assert {done.result() for done in refused} == {ErrorCode.SASL_AUTHENTICATION_FAILED}
    assert broker.log.count("unknown user or wrong password") - lines < 100  # counted, not repeated
    Cluster(java(broker, "PLAIN", PLAIN, PASSWORDS["ada"])).topic_names()


def log_in_wrongly(address):
    with socket.create_connection(address, 30) as connection:
        file = connection.makefile("rb")
        for request, version in (
            (SaslHandshakeRequest("PLAIN"), 1),
            (SaslAuthenticateRequest(client_message("ada", "guess")), 2),
        ):
            connection.sendall(encode_request(request, request.API_KEY, version, 1, "test"))
            frame = memoryview(file.read(int.from_bytes(file.read(4), "big")))
        position = skip_response_header(frame, request.API_KEY, 2)
        response = read_message(SaslAuthenticateResponse, 2, frame, position)[0]
        assert file.read(1) == b""  # and the connection is closed
        return ErrorCode(response.error_code)


def test_users_are_listed_and_removed(broker):
    admin = AdminClient(librdkafka(broker, "PLAIN", "admin"))
    upsertion = UserScramCredentialUpsertion(
        "bob", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192), b"pw"
    )
    admin.alter_user_scram_credentials([upsertion])["bob"].result(30)
    described = admin.describe_user_scram_credentials(["bob"])["bob"].result(30)
    (info,) = described.scram_credential_infos
    assert (info.mechanism, info.iterations) == (ScramMechanism.SCRAM_SHA_256, 8192)
    everybody = admin.describe_user_scram_credentials().result(30)
    assert set(everybody) == {"ada", "bob"}
    deletion = UserScramCredentialDeletion("bob", ScramMechanism.SCRAM_SHA_256)
    admin.alter_user_scram_credentials([deletion])["bob"].result(30)
    with pytest.raises(KafkaException, match="does not exist"):
        admin.describe_user_scram_credentials(["bob"])["bob"].result(30)


def test_users_and_their_secrets_outlive_a_restart(broker):
    """And so does the challenge of somebody who does not exist."""
    before = challenge(broker, "nobody")
    broker.restart()
    assert challenge(broker, "nobody") == before
    Cluster(java(broker, "SCRAM-SHA-512", SCRAM, PASSWORDS["ada"])).topic_names()


def test_cve_2022_34917_nobody_announces_a_large_frame_before_authentication(broker):
    host, port = broker.bootstrap.rsplit(":", 1)
    with socket.create_connection((host, int(port)), 30) as connection:
        connection.sendall((100 << 20).to_bytes(4, "big") + b"\0\x12\0\0")
        assert connection.recv(1) == b""
    assert "bytes before it has authenticated, when 65536 are allowed" in broker.log


def challenge(broker, user):
    """The salt and the iterations of a user."""
    host, port = broker.bootstrap.rsplit(":", 1)
    with socket.create_connection((host, int(port)), 30) as connection:
        file = connection.makefile("rb")
        request = SaslHandshakeRequest("SCRAM-SHA-256")
        connection.sendall(encode_request(request, request.API_KEY, 0, 1, "test"))
        file.read(int.from_bytes(file.read(4), "big"))
        first = f"n,,n={user},r=abc".encode()
        connection.sendall(len(first).to_bytes(4, "big") + first)
        response = file.read(int.from_bytes(file.read(4), "big")).decode()
    return response.split(",")[1:]
