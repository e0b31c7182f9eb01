"""`odradek consume --group`: what one run has read, the next does not read again."""

from collections.abc import Callable
from subprocess import CompletedProcess

import pytest
from tests.peer.exchange import served_versions

from odradek.wire.messages.join_group import JoinGroupRequest

Odradek = Callable[..., CompletedProcess[str]]


@pytest.fixture(autouse=True)
def groups(bootstrap: str) -> None:
    if JoinGroupRequest.API_KEY not in served_versions(bootstrap):
        pytest.skip("this cluster has no consumer groups")


def test_a_group_remembers_where_it_was(odradek: Odradek, topic: str) -> None:
    odradek("topic", "create", topic)
    odradek("produce", topic, stdin="one\ntwo\nthree\n")
    group = ("consume", topic, "--group", f"{topic}-readers", "--from-beginning")
    assert odradek(*group, "--max-messages", "2").stdout == "one\ntwo\n"
    assert odradek(*group, "--exit-at-end").stdout == "three\n"


def test_a_group_leaves_no_choice_of_partitions(odradek: Odradek, topic: str) -> None:
    assert odradek("consume", topic, "--group", "g", "--partition", "0").returncode == 2
