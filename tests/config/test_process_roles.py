"""Brokers, controllers and both: their listeners, and where they find their quorum."""

import pytest

from odradek.broker.settings import check_listeners
from odradek.config.broker import BrokerConfig
from odradek.config.definition import ConfigError
from odradek.config.listeners import Listener, SecurityProtocol, Server
from odradek.metadata.quorum_settings import quorum_settings, registration_settings
from odradek.raft.outgoing import Settings

PLAINTEXT, SSL = SecurityProtocol.PLAINTEXT, SecurityProtocol.SSL
SERVERS = "controller.quorum.bootstrap.servers"
NAMES = "controller.listener.names"
OWN = Listener("CONTROLLER", "localhost", 0, PLAINTEXT)


def config_of(roles="broker,controller", **settings):
    named = {key.replace("_", "."): text for key, text in settings.items()}
    return BrokerConfig({"process.roles": roles, **named})


def test_a_single_node_has_a_controller_listener_by_itself():
    for config in (BrokerConfig(), config_of(listeners="PLAINTEXT://:1234")):
        assert config.controller_listeners == (OWN,)
        assert [item.name for item in config.broker_listeners] == ["PLAINTEXT"]
        assert not config.names_a_quorum("me")


def test_that_listener_needs_no_entry_in_a_protocol_map():
    config = config_of(listeners="INSIDE://:1234", listener_security_protocol_map="INSIDE:PLAINTEXT")
    assert config.controller_listeners == (OWN,)


def test_a_controller_alone():
    config = config_of("controller", listeners="CTL://:9093", controller_listener_names="CTL")
    assert config.controller_listeners == (Listener("CTL", "", 9093, PLAINTEXT),)
    assert config.broker_listeners == ()
    assert config_of("controller").listeners == (OWN,)


def test_a_listener_named_controller_is_the_controllers():
    config = config_of(listeners="PLAINTEXT://:1,CONTROLLER://:2")
    assert [item.port for item in config.controller_listeners] == [2]
    assert [item.port for item in config.broker_listeners] == [1]


def test_a_broker_alone():
    config = config_of("broker", controller_quorum_bootstrap_servers="a:1, [::1]:2")
    assert config.quorum_bootstrap_servers == (Server("a", 1), Server("::1", 2))
    assert [str(server) for server in config.quorum_bootstrap_servers] == ["a:1", "[::1]:2"]
    assert config.controller_listeners == ()
    assert config.names_a_quorum("a"), "only a controller may be a quorum of its own"


@pytest.mark.parametrize(
    ("roles", "settings", "key", "words"),
    [
        ("broker", {}, SERVERS, "only a broker"),
        (
            "broker",
            {"listeners": "PLAINTEXT://:1,CONTROLLER://:2", SERVERS: "a:1"},
            "listeners",
            "this node is not a controller",
        ),
        (
            "broker",
            {"advertised.listeners": "PLAINTEXT://a:1,CONTROLLER://a:2", SERVERS: "a:1"},
            "advertised.listeners",
            "this node is not a controller",
        ),
        ("controller", {"listeners": "PLAINTEXT://:1"}, "listeners", "only a controller"),
        (
            "controller",
            {"advertised.listeners": "PLAINTEXT://a:1"},
            "advertised.listeners",
            "only a controller",
        ),
        ("broker,controller", {NAMES: "CTL"}, NAMES, "needs one of them in listeners"),
        ("broker,controller", {SERVERS: "a"}, SERVERS, "host:port"),
        ("broker,controller", {SERVERS: "a:1,:2"}, SERVERS, "host:port"),
        ("broker,controller", {SERVERS: "a:0"}, SERVERS, "from 1 to 65535"),
        ("broker,controller", {SERVERS: "a:65536"}, SERVERS, "from 1 to 65535"),
    ],
)
def test_what_does_not_go_together(roles, settings, key, words):
    with pytest.raises(ConfigError, match=words) as refusal:
        BrokerConfig({"process.roles": roles, **settings})
    assert refusal.value.name == key


def test_static_voters_are_refused_with_what_to_use_instead():
    with pytest.raises(ConfigError) as refusal:
        config_of(controller_quorum_voters="1@a:9093,2@b:9093")
    for words in (f"{SERVERS}=a:9093,b:9093 instead", "odradek format --initial-controllers"):
        assert words in str(refusal.value)


@pytest.mark.parametrize(
    ("listener", "advertised", "server", "is_own"),
    [
        ("://:9093", None, "localhost:9093", True),
        ("://:9093", None, "127.0.0.1:9093", True),
        ("://0.0.0.0:9093", None, "[::1]:9093", True),
        ("://[::]:9093", None, "Me:9093", True),
        ("://:9093", None, "other:9093", False),
        ("://:9093", None, "localhost:9094", False),
        ("://localhost:9093", None, "127.0.0.1:9093", True),
        ("://localhost:9093", None, "me:9093", False),
        ("://10.0.0.1:9093", None, "10.0.0.1:9093", True),
        ("://10.0.0.1:9093", None, "localhost:9093", False),
        ("://:9093", "://front:80", "front:80", True),
        ("://:9093", "://front:80", "FRONT:9093", True),
        ("://:0", None, "localhost:9093", False),
    ],
)
def test_whether_a_bootstrap_server_is_this_node(listener, advertised, server, is_own):
    def config_with(servers):
        told = {"advertised.listeners": f"PLAINTEXT://x:1,CONTROLLER{advertised}"} if advertised else {}
        return BrokerConfig({"listeners": f"PLAINTEXT://:1,CONTROLLER{listener}", SERVERS: servers, **told})

    assert config_with(server).names_a_quorum("me") is not is_own
    assert config_with(f"{server},elsewhere:9093").names_a_quorum("me")


def test_a_controller_listener_that_should_be_safe_is_not_opened_instead():
    protocols = {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT"}
    controller = BrokerConfig({"listeners": "PLAINTEXT://:1,CONTROLLER://:2", **protocols})
    broker = config_of("broker", controller_quorum_bootstrap_servers="a:1", **protocols)
    for config in (controller, broker):
        with pytest.raises(ConfigError, match="needs a login module"):
            check_listeners(config)
    check_listeners(BrokerConfig())


def test_settings_of_the_quorum_have_kafkas_defaults_and_are_obeyed():
    assert quorum_settings(BrokerConfig()) == Settings()
    names = ("election.timeout.ms", "election.backoff.max.ms", "fetch.timeout.ms", "request.timeout.ms")
    names += ("retry.backoff.ms",)
    config = BrokerConfig({f"controller.quorum.{name}": str(5 + place) for place, name in enumerate(names)})
    assert quorum_settings(config)[:5] == (5, 6, 7, 8, 9)
    at_once = BrokerConfig({"controller.quorum.election.backoff.max.ms": "0"})
    assert quorum_settings(at_once).election_backoff_max_ms == 1, "which chance can draw from"
    assert registration_settings(BrokerConfig()) == (2000, 60000, 30000)
