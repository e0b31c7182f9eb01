"""Tests of what is refused because nobody would obey it, what is only told, and that the list of the latter is true."""

import re
from pathlib import Path

import pytest

import odradek
from odradek.config.broker import load_broker_config
from odradek.config.broker_definitions import BROKER_DEFINITIONS
from odradek.config.definition import ConfigError
from odradek.config.topic_definitions import SYNONYMS
from odradek.config.unsupported import WITHOUT_EFFECT, is_protecting

PROTECTING = [
    ("super.users", "User:admin"),
    ("allow.everyone.if.no.acl.found", "false"),
    ("ssl.keystore.location", "/etc/kafka/broker.pem"),
    ("ssl.key.password", "secret"),
    ("ssl.client.auth", "required"),
    ("listener.name.plaintext.ssl.client.auth", "required"),
    ("listener.name.plaintext.plain.sasl.jaas.config", "secret"),
    ("sasl.enabled.mechanisms", "PLAIN"),
    ("sasl.kerberos.service.name", "kafka"),
    ("connections.max.reauth.ms", "1000"),
    ("principal.builder.class", "org.example.Builder"),
    ("create.topic.policy.class.name", "org.example.Policy"),
    ("delegation.token.secret.key", "secret"),
    ("security.inter.broker.protocol", "SASL_SSL"),
]


@pytest.mark.parametrize(("key", "value"), PROTECTING)
def test_protection_that_is_not_there_is_refused(key: str, value: str, tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"{key}={value}\n")
    for arguments in ((file, {}), (None, {key: value})):
        with pytest.raises(ConfigError) as refusal:
            load_broker_config(*arguments)
        assert key in str(refusal.value)
        assert "secret" not in str(refusal.value).replace(key, "")
        assert (str(file) if arguments[0] else "--set") in str(refusal.value)


def test_protection_is_refused_from_the_environment_too() -> None:
    with pytest.raises(ConfigError, match="ODRADEK_SUPER_USERS"):
        load_broker_config(None, {}, {"ODRADEK_SUPER_USERS": "User:admin"})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("authorizer.class.name", ""),
        ("super.users", ""),
        ("allow.everyone.if.no.acl.found", "true"),
        ("ssl.client.auth", "none"),
        ("security.inter.broker.protocol", "PLAINTEXT"),
    ],
)
def test_a_setting_that_asks_for_nothing_is_accepted(key: str, value: str) -> None:
    assert load_broker_config(None, {key: value}).warnings == []


def test_a_later_source_may_take_a_setting_back(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("super.users=User:admin\n")
    load_broker_config(file, {"super.users": ""})


def test_settings_without_effect_are_told_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.io.threads=8\nbackground.threads=1\nnum.partitions=2\n")
    config = load_broker_config(file, {"queued.max.requests": "1"})
    assert config.warnings == [
        f"accepted, but without effect here: background.threads, num.io.threads ({file}), queued.max.requests (--set)"
    ]


# names that config.group and config.topic put together from parts
PUT_TOGETHER = re.compile(r"group\.consumer\.(min|max)\..*|compression\.\w+\.level")


def keys_that_the_code_reads() -> set[str]:
    """Find keys by their names in quotes, as fields with underscores, or through a topic's key that is read so."""
    root = Path(odradek.__file__).parent
    read_by = (
        "api",
        "broker",
        "serving",
        "services",
        "controller",
        "coordinators",
        "metadata",
        "net",
        "replication",
        "storage",
        "config",
    )
    not_readers = ("unsupported.py", "storage/config.py")
    text = "".join(
        path.read_text()
        for package in read_by
        for path in (root / package).rglob("*.py")
        if not path.name.endswith("definitions.py") and not path.as_posix().endswith(not_readers)
    )
    words = set(re.findall(r"\w+", text))

    def is_read(key: str) -> bool:
        return f'"{key}"' in text or ("." in key and key.replace(".", "_") in words)

    found = {key for key in BROKER_DEFINITIONS if is_read(key)}
    found |= {name for key, names in SYNONYMS.items() if is_read(key) for name, _ in names}
    return found | {key for key in BROKER_DEFINITIONS if PUT_TOGETHER.fullmatch(key)}


def test_the_list_of_settings_without_effect_is_true() -> None:
    """Fails for a key that has begun, or ceased, to be read: correct WITHOUT_EFFECT in config/unsupported.py."""
    protecting = {key for key in BROKER_DEFINITIONS if is_protecting(key)}
    assert sorted(WITHOUT_EFFECT - BROKER_DEFINITIONS.keys()) == []
    assert sorted(BROKER_DEFINITIONS.keys() - protecting - keys_that_the_code_reads()) == sorted(
        WITHOUT_EFFECT
    )
