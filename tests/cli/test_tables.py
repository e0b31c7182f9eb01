"""Tables: numbers to the right, colours at a terminal only."""

import sys
from collections.abc import Callable
from subprocess import CompletedProcess

import pytest

from odradek.cli.output import Coloured, coloured, lag_cell, offset_cell, print_columns, state_cell
from odradek.wording import counted

Odradek = Callable[..., CompletedProcess[str]]
HEADER = ("TOPIC", "PARTITIONS", "SIZE", "STATE", "LAG")


def rows() -> list[tuple[object, ...]]:
    return [
        ("7", 3, "57.7 KB", state_cell("Stable"), lag_cell(0)),
        ("b", 12, "0 B", state_cell("fenced"), lag_cell(2159)),
        ("c", None, None, state_cell("other"), lag_cell(None)),
    ]


def pretend_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")


def test_numbers_and_sizes_are_to_the_right(capsys: pytest.CaptureFixture[str]) -> None:
    print_columns(HEADER, rows())
    assert capsys.readouterr().out.splitlines() == [
        "TOPIC  PARTITIONS     SIZE  STATE    LAG",
        "7               3  57.7 KB  Stable     0",
        "b              12      0 B  fenced  2159",
        "c               -        -  other      -",
    ]


def test_an_offset_that_nobody_knows_is_a_dash() -> None:
    assert [offset_cell(one) for one in (0, 7, -1)] == [0, 7, None]


def test_names_are_to_the_left_though_they_be_digits(capsys: pytest.CaptureFixture[str]) -> None:
    print_columns(("REPLICAS", "IS-IT"), [("1", True), ("1,2,3", False)])
    print_columns(("TOPIC", "LAG"), [])
    assert capsys.readouterr().out.splitlines() == [
        "REPLICAS  IS-IT",
        "1         True",
        "1,2,3     False",
        "TOPIC  LAG",
    ]


def test_states_and_lags_have_colours_at_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_terminal(monkeypatch)
    print_columns(HEADER, rows())
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "TOPIC  PARTITIONS     SIZE  STATE    LAG"
    assert lines[1] == "7               3  57.7 KB  \x1b[32mStable\x1b[0m     0"
    assert lines[2] == "b              12      0 B  \x1b[31mfenced\x1b[0m  \x1b[33m2159\x1b[0m"
    assert lines[3] == "c               -        -  other      -"


@pytest.mark.parametrize(("variable", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_who_wants_no_colours_gets_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    pretend_terminal(monkeypatch)
    monkeypatch.setenv(variable, value)
    print_columns(("STATE",), [(state_cell("fenced"),), (Coloured("x", "31"),)])
    assert coloured("healthy", "32") == "healthy"
    assert "\x1b" not in capsys.readouterr().out


def test_one_of_them_is_not_some() -> None:
    assert [counted(count, "node") for count in (0, 1, 2)] == ["0 nodes", "1 node", "2 nodes"]


def test_status_and_describe_tell_of_the_quorum_in_the_same_words(odradek: Odradek) -> None:
    shown = odradek("cluster", "status").stdout.splitlines()
    described = odradek("quorum", "describe").stdout.splitlines()
    columns = ["NODE", "ROLE", "LOG-END-OFFSET", "LAG", "CAUGHT-UP"]
    assert described[1].split()[:5] == columns
    assert shown[-2].split() == columns
    assert shown[-1].split()[1] == described[2].split()[1] == "leader"


def test_a_refusal_names_the_next_command_in_full(odradek: Odradek, topic: str) -> None:
    odradek("topic", "create", topic)
    result = odradek("produce", topic, "-p", "7", stdin="x\n")
    assert f"no such partition (see 'odradek topic describe {topic}')" in result.stderr
