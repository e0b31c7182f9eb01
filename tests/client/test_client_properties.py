"""Java's names for settings: obeyed, ignored with a reason, or refused with what to do."""

import re
from pathlib import Path

import pytest

from odradek.client.properties import IGNORED, MAPPED, REFUSED, InvalidProperty, parse_properties
from odradek.records.compression import Codec

HERE = {"bootstrap.servers": "one:9092, [::1]:9093"}
LOGIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="ada" password="{}";'


def sasl(mechanism: str, jaas: str, **more: str):
    given = {"security.protocol": "SASL_SSL", "sasl.mechanism": mechanism, "sasl.jaas.config": jaas}
    return parse_properties(HERE | given | {name.replace("_", "."): value for name, value in more.items()})


def test_what_java_calls_it_is_what_we_do():
    given = {
        "client.id": "me",
        "request.timeout.ms": "5000",
        "isolation.level": "read_committed",
        "max.partition.fetch.bytes": "2000",
        "fetch.max.bytes": "3000",
        "check.crcs": "false",
        "compression.type": "zstd",
        "compression.zstd.level": "7",
        "batch.size": "100",
    }
    parsed = parse_properties(HERE | given)
    assert parsed.client.bootstrap == (("one", 9092), ("::1", 9093))
    assert (parsed.client.client_id, parsed.client.request_timeout_s) == ("me", 5.0)
    assert (parsed.fetch.read_committed, parsed.fetch.max_bytes, parsed.fetch.check_crc) == (
        True,
        2000,
        False,
    )
    assert (parsed.produce.codec, parsed.produce.compression_level) == (Codec.ZSTD, 7)
    assert parsed.produce.batch_bytes == 100
    assert parsed.ignored == {}


def test_jaas_options_are_read_with_their_quotes():
    parsed = sasl("PLAIN", LOGIN.format(r"a \"b\" ; c=d"))
    assert parsed.client.sasl is not None and parsed.client.tls is not None
    assert (parsed.client.sasl.username, parsed.client.sasl.password) == ("ada", 'a "b" ; c=d')


def test_oauthbearer_takes_client_credentials():
    parsed = sasl(
        "OAUTHBEARER",
        'x.OAuthBearerLoginModule required clientId="me" clientSecret="pw" scope="s" extension_tenant="t";',
        sasl_oauthbearer_token_endpoint_url="https://idp/token",
        sasl_login_callback_handler_class=(
            "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler"
        ),
    )
    login = parsed.client.sasl
    assert login is not None
    assert (login.username, login.password, login.scope) == ("me", "pw", "s")
    assert (login.token_url, login.extensions) == ("https://idp/token", (("tenant", "t"),))


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_cannot_be_obeyed_is_refused(name):
    with pytest.raises(InvalidProperty, match=re.escape(name)):
        parse_properties(HERE | {name: "x"})


def test_what_means_nothing_here_is_warned_about():
    parsed = parse_properties(HERE | {"linger.ms": "5", "no.such.thing": "1", "compresion.type": "lz4"})
    assert parsed.ignored == {
        "compresion.type": "this connector does not know it; did you mean compression.type?",
        "linger.ms": IGNORED["linger.ms"],
        "no.such.thing": "this connector does not know it",
    }


def test_servers_under_a_name_that_is_nearly_theirs():
    with pytest.raises(InvalidProperty, match=r"must be given.*did you mean that by 'bootstrap.server'\?"):
        parse_properties({"bootstrap.server": "here:9092"})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"bootstrap.servers": ""}, "bootstrap.servers: must be given"),
        ({"bootstrap.servers": "here"}, "'here' is not host:port"),
        ({"fetch.max.bytes": "many"}, "fetch.max.bytes: 'many' is not a whole number"),
        ({"isolation.level": "none"}, "isolation.level: 'none' is not one of"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism: GSSAPI is not one of PLAIN"),
        (
            {"security.protocol": "SSL", "ssl.truststore.location": "a.jks"},
            "ssl.truststore.type: JKS stores cannot be read; convert it with 'keytool",
        ),
        (
            {"security.protocol": "SSL", "ssl.enabled.protocols": "TLSv1.1"},
            "ssl.enabled.protocols: must contain TLSv1.2 or TLSv1.3",
        ),
    ],
)
def test_a_wrong_value_is_named(given, message):
    with pytest.raises(InvalidProperty, match=re.escape(message)):
        parse_properties(HERE | given)


def test_no_error_shows_a_password():
    for jaas in ("hunter2", 'x.PlainLoginModule required pass="hunter2";', "a maybe password=hunter2;"):
        with pytest.raises(InvalidProperty) as error:
            sasl("PLAIN", jaas)
        assert "hunter2" not in str(error.value)


def test_the_tables_in_the_docs_are_these():
    text = (Path(__file__).parents[2] / "docs" / "SPARK.md").read_text()
    for name in (*MAPPED, *IGNORED, *REFUSED):
        assert f"`{name}`" in text, f"docs/SPARK.md does not tell of {name}"
