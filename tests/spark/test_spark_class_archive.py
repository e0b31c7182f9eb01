"""The archive of Java's classes: which options a start gets, and that Java stores and uses one."""

import os
import shlex
import subprocess
from pathlib import Path

import pyspark
import pytest

from odradek.spark import class_archive
from odradek.spark.class_archive import MAGIC, SWITCH, java_options

STORE, USE = "-XX:ArchiveClassesAtExit=", "-XX:SharedArchiveFile="


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, java: None) -> Path:
    for name in (SWITCH, *class_archive.VARIABLES):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a cache"))
    return tmp_path / "a cache" / "odradek" / "java-classes"


def place(options: str, begin: str) -> Path | None:
    found = [one.removeprefix(begin) for one in shlex.split(options) if one.startswith(begin)]
    return Path(found[0]) if found else None


def run_scala(options: str) -> str:
    """Run a program of Spark's jars, on a class path of jars as Spark's own; returns which classes came from where."""
    jars = Path(pyspark.__file__).parent / "jars"
    path = os.pathsep.join(map(str, sorted(jars.glob("scala-[clr]*.jar"))))
    command = ["java", *shlex.split(options), "-Xlog:class+load=info", "-cp", path]
    return subprocess.check_output([*command, "scala.tools.nsc.MainGenericRunner", "-version"], text=True)


def test_a_run_stores_an_archive_and_the_next_one_uses_it(cache: Path):
    first = java_options("run", stores=True)
    new = place(first, STORE)
    assert new is not None and place(first, USE) is None
    assert "(top)" not in run_scala(first) and new.read_bytes()[: len(MAGIC)] == MAGIC
    second = java_options("run", stores=True)
    archive = place(second, USE)
    assert archive is not None and archive.suffix == ".jsa" and place(second, STORE) is None
    assert "scala.tools.nsc.MainGenericRunner source: shared objects file (top)" in run_scala(second)
    assert not new.exists() and archive.parent == cache
    assert java_options("small", stores=True) != second, "another kind of runs has its own"


def test_an_archive_that_java_cannot_use_does_not_matter(cache: Path):
    first = place(java_options("run", stores=True), STORE)
    assert first is not None
    first.write_bytes(MAGIC + b"cut off")
    options = java_options("run", stores=True)
    assert place(options, USE) is not None
    assert "(top)" not in run_scala(options)


def test_a_file_that_java_did_not_complete_is_not_used_and_is_deleted_when_it_is_old(cache: Path):
    new = place(java_options("run", stores=True), STORE)
    assert new is not None
    new.write_bytes(b"\0" * 100)
    assert place(java_options("run", stores=True), STORE) is not None and new.exists()
    old = new.stat().st_mtime - class_archive.GIVEN_UP_S - 1
    os.utime(new, (old, old))
    assert place(java_options("run", stores=True), STORE) is not None and not new.exists()


def test_of_two_archives_one_is_kept_and_those_that_nobody_uses_are_deleted(cache: Path):
    first, second = (place(java_options("run", stores=True), STORE) for _ in range(2))
    assert first is not None and second is not None and first != second
    for new in (first, second):
        new.write_bytes(MAGIC)
    unused = cache / "run-of-another-spark.jsa"
    unused.write_bytes(MAGIC)
    old = first.stat().st_mtime - class_archive.UNUSED_S - 1
    os.utime(unused, (old, old))
    archive = place(java_options("run", stores=True), USE)
    assert archive is not None and list(cache.iterdir()) == [archive]
    os.utime(archive, (old, old))
    assert place(java_options("run", stores=True), USE) == archive, "using it makes it new"


def test_another_java_or_other_jars_have_their_own(
    cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    before = class_archive._digest()
    home = tmp_path / "java" / "bin"
    home.mkdir(parents=True)
    (home / "java").write_text("another Java")
    monkeypatch.setenv("JAVA_HOME", str(home.parent))
    assert class_archive._digest() != before


def test_nothing_is_stored_where_it_is_not_wanted_or_cannot_be(cache: Path, monkeypatch: pytest.MonkeyPatch):
    assert java_options("run", stores=False) == ""
    assert java_options("run", stores=True, given="-Xmx1g -XX:SharedArchiveFile=my.jsa") == ""
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-XX:SharedArchiveFile=my.jsa")
    assert java_options("run", stores=True) == "", "Java would not start with two"
    monkeypatch.delenv("SPARK_SUBMIT_OPTS")
    cache.parent.mkdir(parents=True, exist_ok=True)
    cache.rmdir()
    cache.write_text("a file is in the way")
    assert java_options("run", stores=True) == ""
    cache.unlink()
    monkeypatch.setenv(SWITCH, "off")
    assert java_options("run", stores=True) == "" and not cache.exists()
    monkeypatch.delenv(SWITCH)
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert java_options("run", stores=True) == ""
