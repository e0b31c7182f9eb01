"""Loading: files, environment and overrides in their order, warnings, refusals, listeners, dynamic layers."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.config.broker import BrokerConfig, load_broker_config
from odradek.config.definition import ConfigError
from odradek.config.listeners import Listener, SecurityProtocol
from odradek.config.sources import flatten_toml, format_properties, parse_properties

PLAINTEXT, SSL = SecurityProtocol.PLAINTEXT, SecurityProtocol.SSL

PROPERTIES = r"""
# a comment
! another
node.id=7
listeners = PLAINTEXT://:9092, \
    CONTROLLER://:9093
controller.listener.names : CONTROLLER
log.dirs /var/a,/var/b
broker.rack=a\u00e4\tb\=c
num.partitions=3
empty=
"""


def test_properties_syntax():
    assert parse_properties(PROPERTIES) == {
        "node.id": "7",
        "listeners": "PLAINTEXT://:9092, CONTROLLER://:9093",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": "/var/a,/var/b",
        "broker.rack": "aä\tb=c",
        "num.partitions": "3",
        "empty": "",
    }


@given(st.dictionaries(st.text("abc.", min_size=1), st.text("abc =:#!1", max_size=8)))
def test_properties_survive_a_round_trip(settings):
    settings = {key: value.strip() for key, value in settings.items()}
    text = "\n".join(f"{key}={value}" for key, value in settings.items())
    assert parse_properties(text) == settings


@given(
    st.dictionaries(st.text(st.characters(codec="utf-8"), min_size=1), st.text(st.characters(codec="utf-8")))
)
def test_settings_are_read_as_they_were_written(settings: dict[str, str]) -> None:
    assert parse_properties(format_properties(settings)) == settings


def test_toml_tables_become_dotted_keys():
    table = {"log": {"retention": {"ms": 5}, "dirs": ["/a", "/b"]}, "auto.create.topics.enable": False}
    assert flatten_toml(table) == {
        "log.retention.ms": "5",
        "log.dirs": "/a,/b",
        "auto.create.topics.enable": "false",
    }


def test_overrides_win_over_environment_over_file(tmp_path):
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=2\nlog.retention.ms=1\nlog.roll.ms=1\n")
    environ = {"ODRADEK_LOG_RETENTION_MS": "2", "ODRADEK_LOG_ROLL_MS": "2", "PATH": "/bin"}
    config = load_broker_config(file, {"log.roll.ms": "3"}, environ)
    assert (config["num.partitions"], config["log.retention.ms"], config["log.roll.ms"]) == (2, 2, 3)
    assert config.warnings == []


def test_a_toml_file(tmp_path):
    file = tmp_path / "node.toml"
    file.write_text('node.id = 4\n[log]\nretention.ms = 60000\n[offsets.topic]\n"num.partitions" = 5\n')
    config = load_broker_config(file)
    assert (config.node_id, config["log.retention.ms"], config["offsets.topic.num.partitions"]) == (
        4,
        60000,
        5,
    )


def test_an_unreadable_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"missing\.properties"):
        load_broker_config(tmp_path / "missing.properties")
    escaped = tmp_path / "escaped.properties"
    escaped.write_text("broker.rack=\\u00zz\n")
    with pytest.raises(ConfigError, match=r"escaped\.properties.*is not a character"):
        load_broker_config(escaped)
    broken = tmp_path / "broken.toml"
    broken.write_text("= 3")
    with pytest.raises(ConfigError, match=r"broken\.toml"):
        load_broker_config(broken)


def test_unknown_keys_are_warned_of_with_their_source_and_a_guess(tmp_path):
    file = tmp_path / "server.properties"
    file.write_text("log.retention.mss=5\nzookeeper.connect=x\n")
    config = load_broker_config(file, {}, {"ODRADEK_NODE_IDD": "3"})
    assert config.warnings == [
        f"{file}: unknown setting log.retention.mss; did you mean log.retention.ms?",
        f"{file}: unknown setting zookeeper.connect",
        "ODRADEK_NODE_IDD: unknown setting node.idd; did you mean node.id?",
    ]


def test_an_unknown_override_is_refused_with_a_guess():
    with pytest.raises(
        ConfigError, match=r"^--set: unknown setting num\.partition; did you mean num\.partitions\?$"
    ):
        load_broker_config(None, {"num.partition": "3"})


@pytest.mark.parametrize(
    "settings",
    [
        {"num.partitions": "0"},
        {"process.roles": "broker,chef"},
        {"process.roles": ""},
        {"listeners": ""},
        {"listeners": "PLAINTEXT:9092"},
        {"listeners": "PLAINTEXT://:65536"},
        {"listeners": "INSIDE://:9092"},
        {"listeners": "PLAINTEXT://:9092,plaintext://:9093"},
        {"listeners": "PLAINTEXT://:9092,SSL://:9092"},
        {"listeners": "PLAINTEXT://:9092", "controller.listener.names": "PLAINTEXT"},
        {"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"},
        {
            "process.roles": "broker",
            "listeners": "PLAINTEXT://:9092",
            "advertised.listeners": "PLAINTEXT://a:9092,CONTROLLER://a:9093",
            "controller.listener.names": "CONTROLLER",
        },
        {"listener.security.protocol.map": "PLAINTEXT:CLEAR"},
        {"node.id": "1", "broker.id": "2"},
        {"log.retention.ms": "0"},
    ],
)
def test_refused(settings):
    with pytest.raises(ConfigError):
        BrokerConfig(settings)


def test_the_older_name_of_the_node_id():
    assert BrokerConfig({"broker.id": "5"}).node_id == 5


def test_kafkas_own_file_is_taken_as_it_is():
    config = load_broker_config(Path(__file__).with_name("server.properties"))
    assert config.broker_listeners == (Listener("PLAINTEXT", "", 9092, PLAINTEXT),)
    [told] = config.advertised_listeners(config.broker_listeners, "elsewhere")
    assert (told.host, told.port) == ("localhost", 9092)
    assert config["group.initial.rebalance.delay.ms"] == 3000
    assert config.controller_listeners == (Listener("CONTROLLER", "", 9093, PLAINTEXT),)
    assert not config.names_a_quorum("elsewhere"), "it is its own bootstrap server"
    [warning] = config.warnings
    assert warning.startswith("accepted, but without effect here: num.io.threads, ")


def test_listeners():
    config = BrokerConfig(
        {
            "listeners": "inside://[::1]:9092,OUTSIDE://example.org:0,CONTROLLER://:9093",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:SSL,CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "inside",
        }
    )
    assert config.broker_listeners == (
        Listener("INSIDE", "::1", 9092, PLAINTEXT),
        Listener("OUTSIDE", "example.org", 0, SSL),
    )
    assert config.listeners[2] == Listener("CONTROLLER", "", 9093, PLAINTEXT)
    assert config.inter_broker_listener_name == "INSIDE"


def test_the_controllers_listener_needs_no_protocol_map():
    config = BrokerConfig({"listeners": "PLAINTEXT://:1,CTL://:2", "controller.listener.names": "CTL"})
    assert [item.protocol for item in config.listeners] == [PLAINTEXT, PLAINTEXT]


@pytest.mark.parametrize(
    ("listeners", "advertised", "expected"),
    [
        ("PLAINTEXT://:0", None, ("me", 4711)),
        ("PLAINTEXT://0.0.0.0:0", None, ("me", 4711)),
        ("PLAINTEXT://[::]:0", None, ("me", 4711)),
        ("PLAINTEXT://10.0.0.1:0", None, ("10.0.0.1", 4711)),
        ("PLAINTEXT://:0", "PLAINTEXT://front:80", ("front", 80)),
        ("PLAINTEXT://:0", "PLAINTEXT://front:0", ("front", 4711)),
        ("PLAINTEXT://:0", "PLAINTEXT://:0", ("me", 4711)),
    ],
)
def test_what_clients_are_told_to_connect_to(listeners, advertised, expected):
    config = BrokerConfig(
        {"listeners": listeners} | ({"advertised.listeners": advertised} if advertised else {})
    )
    bound = [item._replace(port=4711) for item in config.broker_listeners]
    [told] = config.advertised_listeners(bound, "me")
    assert (told.host, told.port) == expected


def test_directories():
    assert BrokerConfig({"log.dir": "/x"}).log_dirs == (Path("/x"),)
    config = BrokerConfig({"log.dir": "/x", "log.dirs": "/a, /b"})
    assert config.log_dirs == (Path("/a"), Path("/b"))
    assert config.metadata_log_dir == Path("/a")


def test_a_listeners_own_key_wins_over_the_common_one():
    config = BrokerConfig(
        {
            "ssl.client.auth": "none",
            "listener.name.inside.ssl.client.auth": "required",
            "ssl.key.password": "x",
        }
    )
    assert config.for_listener("INSIDE", "ssl.client.auth") == "required"
    assert config.for_listener("OUTSIDE", "ssl.client.auth") == "none"
    assert config.warnings == []


def test_dynamic_layers():
    config = BrokerConfig({"log.retention.ms": "1"}).with_dynamic(
        dynamic={"log.retention.ms": "3"}, dynamic_default={"log.retention.ms": "2", "message.max.bytes": "9"}
    )
    assert (config["log.retention.ms"], config["message.max.bytes"]) == (3, 9)
    back = config.with_dynamic({}, {})
    assert (back["log.retention.ms"], back["message.max.bytes"]) == (1, 1048588)


def test_a_dynamic_value_that_no_longer_parses_is_ignored_with_a_warning():
    config = BrokerConfig({"num.partitions": "2"}).with_dynamic({}, {"log.retention.ms": "soon"})
    assert config["log.retention.ms"] is None
    assert "soon" in config.warnings[0]
