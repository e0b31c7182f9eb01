"""`odradek consume --group`: what one run has read, the next does not read again."""

from collections.abc import Callable
from subprocess import CompletedProcess

Odradek = Callable[..., CompletedProcess[str]]


def test_a_group_remembers_where_it_was(odradek: Odradek, topic: str) -> None:
    odradek("topic", "create", topic)
    odradek("produce", topic, stdin="one\ntwo\nthree\n")
    group = ("consume", topic, "--group", f"{topic}-readers", "--from-beginning")
    assert odradek(*group, "--max-messages", "2").stdout == "one\ntwo\n"
    assert odradek(*group, "--exit-at-end").stdout == "three\n"


def test_a_group_leaves_no_choice_of_partitions(odradek: Odradek, topic: str) -> None:
    assert odradek("consume", topic, "--group", "g", "--partition", "0").returncode == 2
