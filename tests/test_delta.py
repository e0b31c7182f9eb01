"""Looks at a Delta table that others change, delete and create again."""

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from odradek.delta import DeltaLook

ROW = pa.table({"id": [1]})


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "a table")


def look_at(place: str) -> DeltaLook:
    return DeltaLook(place, None, lambda: SubTreeFileSystem(place, LocalFileSystem()))


def rows(table: DeltaTable | None) -> int | None:
    return None if table is None else int(pa.table(table.get_add_actions(flatten=True)).num_rows)


def test_a_look_sees_what_others_have_added_and_that_the_table_is_gone(place: str):
    looks = look_at(place)
    assert looks.again() is None
    for number in range(1, 4):
        write_deltalake(place, ROW, mode="append")
        assert rows(looks.again()) == number
    first = looks.table
    assert looks.again() is first, "it is opened once, and brought up to date"
    shutil.rmtree(place)
    assert looks.again() is None


@pytest.mark.parametrize("commits", [1, 3, 5])
def test_a_table_that_was_created_again_is_another_one(place: str, commits: int):
    """Its log may be shorter, as long or longer than that of the one before."""
    looks = look_at(place)
    for _ in range(3):
        write_deltalake(place, ROW, mode="append")
    before = looks.again().metadata().id
    shutil.rmtree(place)
    for _ in range(commits):
        write_deltalake(place, ROW, mode="append")
    assert looks.again().metadata().id != before
    assert rows(looks.table) == commits
