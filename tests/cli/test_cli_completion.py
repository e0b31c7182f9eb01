"""Tests of what the shell is offered, and what a command imports before it does its work."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from confluent_kafka import Producer

from odradek.cli.completion import complete_topic_settings
from odradek.cli.completion_cache import cache_file

Odradek = Callable[..., CompletedProcess[str]]


@pytest.fixture
def offered(
    odradek: Odradek, bootstrap: str, run_here: Odradek, tmp_path: Path
) -> Callable[[str], list[str]]:
    """Return what bash shows for a line."""

    def complete(line: str) -> list[str]:
        words = line.split(" ")
        environ = {
            "_ODRADEK_COMPLETE": "bash_complete",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(words) - 1),
            "ODRADEK_BOOTSTRAP_SERVER": bootstrap,
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
        }
        return [item.partition(",")[2] for item in run_here(environ=environ).stdout.splitlines()]

    return complete


def test_topics_and_groups(odradek: Odradek, topic: str, offered: Callable[[str], list[str]]) -> None:
    odradek("topic", "create", topic)
    odradek("consume", topic, "--group", f"{topic}-group", "--exit-at-end")
    prefix = topic[:-3]
    assert offered(f"odradek topic describe {prefix}") == [topic]
    assert offered(f"odradek consume {prefix}") == [topic]
    assert offered(f"odradek produce {prefix}") == [topic]
    assert offered(f"odradek group describe {prefix}") == [f"{topic}-group"]
    assert offered(f"odradek config describe topic {prefix}") == [topic]


def test_commands_and_settings(offered: Callable[[str], list[str]]) -> None:
    assert offered("odradek topic del") == ["delete", "delete-records"]
    assert offered("odradek topic create t --config retention.m") == ["retention.ms"]
    assert offered("odradek topic create t --config cleanup.policy=c") == ["cleanup.policy=compact"]
    assert offered("odradek config alter broker --set log.sync.commit=") == [
        "log.sync.commit=true",
        "log.sync.commit=false",
    ]
    assert offered("odradek up --set num.part") == ["num.partitions"]
    assert offered("odradek broker --log-level w") == ["warning"]


def test_transactions(bootstrap: str, topic: str, offered: Callable[[str], list[str]]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{topic}-id"})
    producer.init_transactions(30)
    assert offered(f"odradek transaction describe {topic[:-3]}") == [f"{topic}-id"]
    assert offered("odradek transaction list --state prepareC") == ["PrepareCommit"]
    assert offered("odradek transaction ") == ["abort", "describe", "find-hanging", "list"]


def test_a_cluster_that_is_not_there_costs_only_the_suggestions(run_here: Odradek) -> None:
    environ = {
        "_ODRADEK_COMPLETE": "bash_complete",
        "COMP_WORDS": "odradek topic describe -b localhost:1 x",
        "COMP_CWORD": "5",
    }
    result = run_here(environ=environ)
    assert (result.returncode, result.stdout.strip(), result.stderr) == (0, "", "")


def test_settings_come_with_their_documentation() -> None:
    ((key, documentation),) = complete_topic_settings("retention.b")
    assert key == "retention.bytes"
    assert "oldest segments" in documentation


def imported_by(*arguments: str) -> set[str]:
    """All modules that a command has imported when it ends."""
    code = "import sys; from odradek.cli.main import main; main(sys.argv[1:]); print(*sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60
    )
    return set(result.stdout.split())


def test_a_command_imports_little() -> None:
    """It needs the command-line framework and our client to start, but no messages that it does not send."""
    bare = imported_by("topic", "list", "-b", "localhost:1")
    ours = {name for name in bare if name.startswith("odradek")}
    assert "odradek.cli.topic" in bare
    assert not {"odradek.cli.consume", "odradek.cli.produce", "odradek.broker", "confluent_kafka"} & bare
    assert not {"odradek.admin.topics", "odradek.client.sasl", "odradek.client.tls", "ssl"} & bare
    assert {name for name in ours if name.startswith("odradek.wire.messages.")} == {
        "odradek.wire.messages.api_versions",
        "odradek.wire.messages.index",
        "odradek.wire.messages.metadata",
    }
    assert not {"rich", "typer", "pydantic", "pandas", "pyspark", "uvloop"} & bare
    assert len(ours) < 51, sorted(ours)
    assert ours.isdisjoint({"odradek.security.ciphers", "odradek.security.jaas", "odradek.security.stores"})
    frameworks = imported_by_statement("import click.shell_completion, socket")
    assert len(bare - frameworks - ours) < 50, sorted(bare - frameworks - ours)


def test_the_list_of_commands_imports_no_spark() -> None:
    found = imported_by("--help")
    assert "odradek.cli.pipeline" in found
    assert not {"rich", "pandas", "pyarrow", "pyspark", "odradek.spark", "odradek.client"} & found


def imported_by_completion(line: str, **environment: str) -> set[str]:
    """All modules that are imported when a shell completes a line, and what it is offered."""
    code = "import sys; from odradek.cli.main import main; main([]); print(*sys.modules)"
    environ = {
        **(os.environ | environment),
        "_ODRADEK_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(line.count(" ")),
    }
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=environ
    )
    return set(result.stdout.split())


def test_a_completion_imports_only_the_command_that_the_line_names() -> None:
    of_names = imported_by_completion("odradek to")
    assert "plain,topic" in of_names
    assert not {f"odradek.cli.{name}" for name in ("topic", "consume", "pipeline")} & of_names
    assert "confluent_kafka" not in of_names
    of_topic = imported_by_completion("odradek topic des")
    assert not {"confluent_kafka", "asyncio"} & of_topic
    assert {"plain,describe", "odradek.cli.topic"} <= of_topic
    assert not {f"odradek.cli.{name}" for name in ("group", "consume", "pipeline")} & of_topic
    assert "odradek.cli.topic" in imported_by_completion("odradek -b localhost:1 topic des")


def test_the_second_completion_asks_no_cluster(
    odradek: Odradek, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    odradek("topic", "create", topic)
    line = f"odradek topic describe {topic[:-3]}"
    environment = {"ODRADEK_BOOTSTRAP_SERVER": bootstrap, "XDG_CACHE_HOME": str(tmp_path)}
    assert {f"plain,{topic}", "odradek.client"} <= imported_by_completion(line, **environment)
    again = imported_by_completion(line, **environment)
    assert f"plain,{topic}" in again
    assert not {"confluent_kafka", "asyncio", "odradek.client"} & again
    for file in (tmp_path / "odradek").iterdir():  # what has been seen long ago does not count
        os.utime(file, (0, 0))
    assert "odradek.client" in imported_by_completion(line, **environment)


def test_what_was_created_meanwhile_is_offered(
    odradek: Odradek, topic: str, offered: Callable[[str], list[str]]
) -> None:
    assert topic not in offered(f"odradek consume {topic[:-3]}")
    odradek("topic", "create", topic)
    assert offered(f"odradek consume {topic[:-3]}") == [topic]


def test_users_of_a_cluster_do_not_share_what_they_have_seen(tmp_path: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    first = cache_file("topics", "host:9092", {"sasl.username": "alice", "sasl.password": "secret"}, environ)
    assert first != cache_file("topics", "host:9092", {"sasl.username": "bob"}, environ)
    assert first != cache_file("groups", "host:9092", {"sasl.username": "alice"}, environ)
    assert "secret" not in first.name


def imported_by_statement(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    return set(result.stdout.split())


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell(run_here: Odradek, shell: str) -> None:
    result = run_here("completion", shell)
    assert result.returncode == 0, result.stderr
    assert f"_ODRADEK_COMPLETE={shell}_complete" in result.stdout
