"""`odradek up --secure` and `--console` where their packages are not installed: one line, and nothing is begun."""

from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path

import pytest

from odradek.cli import up_packages
from odradek.cli.main import main


@pytest.mark.parametrize(
    ("option", "absent", "reason"),
    [
        ("--secure", "cryptography", "--secure needs cryptography: install with pip install '.[security]'"),
        ("--console", "uvicorn", "--console needs uvicorn: install with pip install '.[console]'"),
    ],
)
def test_a_missing_package_is_named_before_anything_is_written(
    option: str,
    absent: str,
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def find(name: str) -> ModuleSpec | None:
        return None if name == absent else find_spec(name)

    monkeypatch.setattr(up_packages, "find_spec", find)
    assert main(["up", "--port", "0", option, "--data-dir", str(tmp_path / "data")]) == 1
    assert capsys.readouterr().err == f"error: {reason} in a clone of Odradek\n"
    assert not (tmp_path / "data").exists()


def test_a_plain_broker_asks_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(up_packages, "find_spec", lambda name: None)
    assert up_packages.missing(console=False, secure=False) == ""
