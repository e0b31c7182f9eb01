"""Profiles, and which of the ways to name a cluster wins."""

import json
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from odradek.cli.access import Naming, named_cluster
from odradek.cli.failures import CommandError
from odradek.cli.profiles import chosen_profile, read_profile, write_profile

Odradek = Callable[..., CompletedProcess[str]]


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """An environment with a home of its own, and no cluster named."""
    return {"XDG_CONFIG_HOME": str(tmp_path), "ODRADEK_BOOTSTRAP_SERVER": "", "ODRADEK_PROFILE": ""}


@pytest.fixture
def at_home(run_here: Odradek, home: dict[str, str]) -> Odradek:
    return partial(run_here, environ=home)


def test_a_profile_names_a_cluster(
    at_home: Odradek, bootstrap: str, topic: str, home: dict[str, str]
) -> None:
    created = at_home("profile", "create", "here", "-b", bootstrap, "--set", "client.id=from-profile")
    assert created.returncode == 0, created.stderr
    file = Path(home["XDG_CONFIG_HOME"]) / "odradek" / "profiles" / "here.properties"
    assert created.stdout == f"Created profile here in {file}.\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert at_home("--profile", "here", "topic", "create", topic).returncode == 0
    assert topic in at_home("topic", "list", "--profile", "here").stdout.splitlines()
    assert at_home("profile", "use", "here").stdout == "Using profile here.\n"
    assert topic in at_home("topic", "list").stdout.splitlines()
    assert json.loads(at_home("profile", "list", "--json").stdout) == [
        {"profile": "here", "in_use": True, "bootstrap": bootstrap}
    ]
    assert at_home("profile", "create", "here", "-b", "other:1").returncode == 1
    assert at_home("profile", "create", "here", "-b", "other:1", "--replace").returncode == 0
    assert at_home("profile", "delete", "here").returncode == 2
    assert at_home("profile", "delete", "here", "--yes").stdout == "Deleted profile here.\n"
    assert json.loads(at_home("profile", "list", "--json").stdout) == []


def test_secrets_are_not_shown(at_home: Odradek, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_SSL\nsasl.username=me\nsasl.password=hush\nsasl.jaas.config=hush;\n"
    )
    at_home("profile", "create", "prod", "-b", "a:1,b:2", "--command-config", str(file))
    shown = at_home("profile", "show", "prod")
    assert "hush" not in shown.stdout + shown.stderr
    assert shown.stdout.splitlines()[:3] == [
        "bootstrap.servers=a:1,b:2",
        "security.protocol=SASL_SSL",
        "sasl.username=me",
    ]


def test_bad_names_and_missing_profiles(at_home: Odradek) -> None:
    assert at_home("profile", "create", "../x", "-b", "a:1").returncode == 1
    assert at_home("profile", "create", "x").returncode == 2
    missing = at_home("topic", "list", "--profile", "nope")
    assert missing.returncode == 1
    assert missing.stderr.startswith("error: no such profile: nope (there are: none")


def test_the_nearest_name_wins(home: dict[str, str]) -> None:
    write_profile("one", {"bootstrap.servers": "one:1", "sasl.password": "a"}, home)
    write_profile("two", {"bootstrap.servers": "two:2"}, home)
    none = Naming()

    def address(command: Naming = none, before: Naming = none, **environ: str) -> str:
        return named_cluster(command, before, home | environ).bootstrap

    variable = {"ODRADEK_BOOTSTRAP_SERVER": "env:3"}
    assert address() == "localhost:9092"
    assert address(ODRADEK_PROFILE="one") == "one:1"
    assert address(**variable, ODRADEK_PROFILE="one") == "env:3"
    assert address(before=Naming(profile="two"), **variable) == "two:2"
    assert address(Naming(profile="one"), Naming(profile="two")) == "one:1"
    assert address(before=Naming("before:4"), **variable) == "before:4"
    assert address(Naming("after:5"), Naming("before:4")) == "after:5"
    assert address(Naming("after:5", profile="one")) == "after:5"


def test_credentials_stay_with_their_cluster(home: dict[str, str]) -> None:
    write_profile("one", {"bootstrap.servers": "one:1", "sasl.password": "a"}, home)
    environ = home | {"ODRADEK_PROFILE": "one"}
    assert named_cluster(Naming(), Naming(), environ).given["sasl.password"] == "a"
    assert "sasl.password" not in named_cluster(Naming("other:1"), Naming(), environ).given
    assert named_cluster(Naming("other:1", profile="one"), Naming(), environ).given["sasl.password"] == "a"


@pytest.mark.parametrize("value", ["plain", " leading", "back\\slash", "two\nlines", "a=b:c #d", "", "é☂\t"])
def test_values_survive_the_file(home: dict[str, str], value: str) -> None:
    write_profile("p", {"sasl.password": value}, home)
    assert read_profile("p", home) == {"sasl.password": value}
    with pytest.raises(CommandError):
        chosen_profile("q", home)
