"""Brokers with TLS and SASL for tests, in processes of their own."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from odradek.config.authorizer import STANDARD_AUTHORIZER
from odradek.security.jaas import PLAIN
from tests.support import START_TIMEOUT_S, RunningBroker

PASSWORDS = {"admin": "admin-secret", "ada": "ada-secret"}


def users(passwords: Mapping[str, str] = PASSWORDS) -> str:
    """A login module with these users, the first of which is this node's own."""
    name, password = next(iter(passwords.items()))
    listed = " ".join(f'user_{user}="{word}"' for user, word in passwords.items())
    return f'{PLAIN} required username="{name}" password="{password}" {listed};'


def guarded_settings() -> dict[str, str]:
    """A broker with passwords and ACLs: `admin` may do everything, others what they are granted."""
    return {
        "listeners": "SASL_PLAINTEXT://localhost:0",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": users(),
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:admin",
    }


def login_of(user: str) -> dict[str, str]:
    """Settings of a client, by Java's names."""
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{PLAIN} required username="{user}" password="{PASSWORDS[user]}";',
    }


class ConfiguredBroker(RunningBroker):
    """A broker that reads all its settings from a file: secrets are not in its arguments."""

    def __init__(self, data_dir: Path, settings: Mapping[str, str]) -> None:
        super().__init__(data_dir, settings)
        self.file = data_dir.with_name(f"{data_dir.name}.properties")
        self.file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))

    def command(self, port: str) -> list[str]:
        command = [
            *self._prefix,
            sys.executable,
            "-m",
            "odradek",
            "broker",
            "--json",
            "--config",
            str(self.file),
        ]
        return [*command, "--data-dir", str(self.data_dir)]


@contextmanager
def configured_broker(directory: Path, settings: Mapping[str, str]) -> Iterator[ConfiguredBroker]:
    broker = ConfiguredBroker(directory / "data", settings)
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


def refused_start(directory: Path, settings: Mapping[str, str]) -> str:
    """Return what a broker says that does not start with these settings."""
    broker = ConfiguredBroker(directory / "data", settings)
    done = subprocess.run(broker.command("0"), capture_output=True, text=True, timeout=START_TIMEOUT_S)
    assert done.returncode != 0, json.dumps(dict(settings))
    return done.stderr
