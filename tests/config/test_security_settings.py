"""TLS and SASL by Kafka's names; what would be weaker than it looks is refused."""

import sys

import pytest

from odradek.config.broker import BrokerConfig, load_broker_config
from odradek.config.definition import ConfigError
from odradek.config.listeners import SecurityProtocol
from odradek.config.security import link_security, listener_security
from odradek.security.jaas import OAUTHBEARER, PLAIN, SCRAM

PEM = "-----BEGIN CERTIFICATE-----"
TLS = {"ssl.keystore.certificate.chain": PEM, "ssl.keystore.key": "key", "ssl.truststore.certificates": PEM}
USERS = f'{PLAIN} required username="node" password="hunter2" user_node="hunter2" user_ada="hunter3";'
TOKENS = {
    "sasl.oauthbearer.jwks.endpoint.url": "file:///keys.json",
    "sasl.oauthbearer.expected.issuer": "https://issuer",
    "sasl.oauthbearer.expected.audience": "kafka,other",
}


def config(**settings):
    return BrokerConfig(
        {
            "listeners": "CLIENTS://:9092,CONTROLLER://:9093",
            "process.roles": "broker,controller",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CLIENTS:SASL_SSL,CONTROLLER:SASL_PLAINTEXT",
            **settings,
        }
    )


def of_clients(protocol=SecurityProtocol.SASL_SSL, **settings):
    return listener_security(config(**settings), "CLIENTS", protocol)


def refusal(function, *arguments, **settings):
    with pytest.raises(ConfigError) as refused:
        function(*arguments, **settings)
    assert "hunter" not in str(refused.value)
    return str(refused.value)


def test_a_listener_has_its_own_settings_and_those_of_all():
    found = of_clients(
        **TLS,
        **{
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "listener.name.clients.plain.sasl.jaas.config": USERS,
            "ssl.client.auth": "none",
            "listener.name.clients.ssl.client.auth": "required",
            "connections.max.reauth.ms": "5000",
            "listener.name.clients.scram-sha-512.connections.max.reauth.ms": "7000",
            "ssl.enabled.protocols": "TLSv1.3",
        },
    )
    assert [(item.name, item.max_reauth_ms) for item in found.mechanisms] == [
        ("PLAIN", 5000),
        ("SCRAM-SHA-512", 7000),
    ]
    assert found.mechanisms[0].passwords == {"node": "hunter2", "ada": "hunter3"}
    assert found.tls.client_authentication == "required"
    assert (found.tls.oldest_version, found.tls.newest_version) == ("TLSv1.3", "TLSv1.3")
    assert "hunter" not in repr(found)


def test_a_plaintext_listener_needs_nothing():
    found = of_clients(SecurityProtocol.PLAINTEXT)
    assert (found.tls, found.mechanisms) == (None, ())


def test_bearer_tokens_need_keys_an_issuer_and_an_audience():
    enabled = {"sasl.enabled.mechanisms": "OAUTHBEARER"}
    (found,) = of_clients(**TLS, **enabled, **TOKENS).mechanisms
    assert found.tokens.policy.audiences == ("kafka", "other")
    for missing in TOKENS:
        rest = {key: value for key, value in TOKENS.items() if key != missing}
        assert missing in refusal(of_clients, **TLS, **enabled, **rest)
    address = {"sasl.oauthbearer.jwks.endpoint.url": "https://issuer/keys"}
    assert "allowed.urls" in refusal(of_clients, **TLS, **enabled, **{**TOKENS, **address})
    allowed = {"org.apache.kafka.sasl.oauthbearer.allowed.urls": "https://issuer/keys"}
    assert of_clients(**TLS, **enabled, **{**TOKENS, **address, **allowed}).mechanisms


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "needs a certificate"),
        ({**TLS, "sasl.enabled.mechanisms": ""}, "needs a mechanism"),
        ({**TLS, "sasl.enabled.mechanisms": "GSSAPI"}, "Kerberos is not supported"),
        ({**TLS}, "PLAIN needs a login module"),
        ({**TLS, "sasl.jaas.config": f"{SCRAM} required user_ada=hunter2;"}, "the login module of PLAIN is"),
        ({**TLS, "sasl.jaas.config": f"{PLAIN} required password=hunter2;"}, "nobody could log in"),
        ({**TLS, "sasl.jaas.config": f'{PLAIN} required user_ada="";'}, "nobody could log in"),
        ({**TLS, "sasl.jaas.config": f"{PLAIN} required user_ada=hunter2"}, "semicolon"),
        ({**TLS, "ssl.enabled.protocols": "TLSv1.1,TLSv1.2"}, "must be TLSv1.2, TLSv1.3"),
        ({**TLS, "ssl.cipher.suites": "TLS_RSA_WITH_RC4_128_MD5"}, "is not one of"),
        ({**TLS, "ssl.endpoint.identification.algorithm": "ldap"}, "must be https"),
        ({"ssl.keystore.location": "broker.jks"}, "keytool -importkeystore"),
        (
            {**TLS, "ssl.truststore.certificates": "", "listener.name.clients.ssl.client.auth": "required"},
            "whose certificates",
        ),
        ({**TLS, "sasl.jaas.config": USERS, "ssl.principal.mapping.rules": "RULE:("}, "RULE"),
    ],
)
def test_what_would_be_weaker_than_it_looks_is_refused(settings, said):
    assert said in refusal(of_clients, **settings)


def test_certificates_of_clients_that_log_in_are_asked_for_by_the_listeners_own_setting_alone():
    jaas, wanted = {"sasl.jaas.config": USERS}, {"ssl.client.auth": "required"}
    assert of_clients(**TLS, **jaas, **wanted).tls.client_authentication == "none"
    own = {"listener.name.clients.ssl.client.auth": "required"}
    assert of_clients(**TLS, **jaas, **own).tls.client_authentication == "required"
    of_ssl = config(**TLS, **wanted, **{"listener.security.protocol.map": "CLIENTS:SSL,CONTROLLER:PLAINTEXT"})
    found = listener_security(of_ssl, "CLIENTS", SecurityProtocol.SSL)
    assert found.tls.client_authentication == "required"


def test_the_largest_frame_before_authentication_may_be_a_listeners_own():
    own = {"listener.name.clients.sasl.server.max.receive.size": "2048", "sasl.jaas.config": USERS}
    assert of_clients(**TLS, **own).max_receive_size == 2048
    assert of_clients(**TLS, **{"sasl.jaas.config": USERS}).max_receive_size == 65536


@pytest.mark.parametrize("prefix", ["listener.name.client", "listener.name.CLIENTS"])
@pytest.mark.parametrize("key", ["ssl.client.auth", "plain.sasl.jaas.config"])
def test_protection_of_a_listener_that_does_not_exist_is_refused(prefix, key):
    settings = {
        "listeners": "CLIENTS://:9092",
        "listener.security.protocol.map": "CLIENTS:SASL_SSL",
        "inter.broker.listener.name": "CLIENTS",
        f"{prefix}.{key}": "required",
    }
    with pytest.raises(ConfigError, match="there is no such listener"):
        load_broker_config(overrides=settings)


# --- controllers ---


def of_controllers(protocol=SecurityProtocol.SASL_PLAINTEXT, **settings):
    return listener_security(config(**settings), "CONTROLLER", protocol)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_controllers_authenticate_with_plain_or_certificates(mechanism):
    jaas = {"sasl.jaas.config": USERS}
    assert of_controllers(**jaas).mechanisms[0].name == "PLAIN"
    said = refusal(of_controllers, **jaas, **{"sasl.enabled.mechanisms": mechanism})
    assert "controllers authenticate with PLAIN" in said
    assert ("after an election" in said) == mechanism.startswith("SCRAM")
    link = refusal(
        link_security,
        config(**jaas, **{"sasl.mechanism.controller.protocol": mechanism}),
        "CONTROLLER",
        SecurityProtocol.SASL_PLAINTEXT,
    )
    assert "controllers authenticate with PLAIN" in link


def test_a_controllers_listener_with_tls_asks_for_certificates():
    assert "anybody could vote" in refusal(of_controllers, SecurityProtocol.SSL, **TLS)
    found = of_controllers(
        SecurityProtocol.SSL, **TLS, **{"listener.name.controller.ssl.client.auth": "required"}
    )
    assert found.tls.client_authentication == "required"


# --- links ---


def test_a_node_logs_in_to_others_with_the_name_and_password_of_its_module():
    settings = {"listener.name.clients.scram-sha-512.sasl.jaas.config": USERS.replace(PLAIN, SCRAM)}
    settings["sasl.mechanism.inter.broker.protocol"] = "SCRAM-SHA-512"
    settings["sasl.enabled.mechanisms"] = "SCRAM-SHA-512"
    found = link_security(config(**TLS, **settings), "CLIENTS", SecurityProtocol.SASL_SSL)
    assert (found.mechanism, found.username, found.password) == ("SCRAM-SHA-512", "node", "hunter2")
    assert found.tls.check_hostname and "hunter2" not in repr(found)


def test_a_link_without_what_it_needs_is_refused():
    link = (config(**TLS, **{"sasl.jaas.config": f"{PLAIN} required user_a=b;"}), "CLIENTS")
    assert "no username" in refusal(link_security, *link, SecurityProtocol.SASL_SSL)
    bearer = {
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.jaas.config": f"{OAUTHBEARER} required;",
    }
    assert "nodes log in" in refusal(
        link_security, config(**TLS, **bearer), "CLIENTS", SecurityProtocol.SASL_SSL
    )
    assert "whose certificates" in refusal(link_security, config(), "CLIENTS", SecurityProtocol.SSL)


def test_a_node_logs_in_with_a_mechanism_that_its_own_listener_has():
    settings = {"sasl.enabled.mechanisms": "SCRAM-SHA-512", "sasl.jaas.config": USERS, **TLS}
    said = refusal(link_security, config(**settings), "CLIENTS", SecurityProtocol.SASL_SSL)
    assert "sasl.enabled.mechanisms of listener CLIENTS does not have it" in said


def test_a_secret_in_the_options_of_a_command_is_warned_about():
    key = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
    given = {
        "listeners": "SASL_PLAINTEXT://:9092",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        key: USERS,
    }
    (warning,) = load_broker_config(overrides=given).warnings
    assert warning.startswith(f"{key}: every user of this machine can read") and "hunter" not in warning


def test_tokens_need_a_package_which_is_named_at_start(monkeypatch):
    settings = {"sasl.enabled.mechanisms": "OAUTHBEARER", **TOKENS, **TLS}
    assert of_clients(**settings).mechanisms[0].tokens is not None
    monkeypatch.setitem(sys.modules, "jwt", None)
    assert "it needs PyJWT: install with pip install '.[security]'" in refusal(of_clients, **settings)
