"""Java's classes kept ready to use between runs, so that Spark starts in half the time.

A JVM spends most of the CPU of a short run on reading, checking and linking Spark's classes. Java can store those of a
whole run in an archive when it exits (a dynamic CDS archive), and map that file at the next start. The first run that
processes rows stores it, in the user's cache directory; that takes its Java process a few seconds after the command
has ended, and 200 MB. An archive that was not used for 60 days is deleted.

It must never be a reason for a failed start, and need no care:

- The name has a digest of Java and of Spark's jars: another version of either has its own archive. Java compares jars,
  class path and options itself, and does without an archive that does not fit.
- Each run that stores an archive writes a file of its own; the next start gives a complete one its final name. Java
  writes the first bytes last, so a file whose Java was killed is recognised, and deleted by a later start.
- What cannot be found, read or written only means that there is no archive. A Java that does not know the options
  ignores them.

`ODRADEK_CLASS_ARCHIVE=off` turns it off.
"""

import hashlib
import os
import shutil
import time
from pathlib import Path

SWITCH = "ODRADEK_CLASS_ARCHIVE"
MAGIC = 0xF00BABA8.to_bytes(4, "little")  # of a dynamic archive
GIVEN_UP_S = 3600.0  # after which an incomplete file is no longer being written
UNUSED_S = 60 * 86_400.0  # after which an archive, of another Java or Spark, is deleted
VARIABLES = ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")  # all of which Java is given
ARCHIVES = ("SharedArchiveFile", "ArchiveClassesAtExit", "AutoCreateSharedArchive")
QUIET = ("-XX:+IgnoreUnrecognizedVMOptions", "-Xshare:auto", "-Xlog:cds*=off")


def java_options(kind: str, *, stores: bool, given: str = "") -> str:
    """Options for Spark's Java: use the archive of a kind of runs, or else store one. Empty if there can be none.

    `given` are the user's own: Java does not start with options for two archives.
    """
    if os.environ.get(SWITCH, "").lower() in ("off", "0", "false", "no"):
        return ""
    if any(
        option in text for text in (given, *map(os.environ.get, VARIABLES)) if text for option in ARCHIVES
    ):
        return ""
    try:
        directory = _directory()
        directory.mkdir(parents=True, exist_ok=True)
        name = f"{kind}-{_digest()}"
        if (archive := _ready(directory, name)) is not None:
            options = [*QUIET, f"-XX:SharedArchiveFile={archive}"]
        elif not stores:
            return ""
        else:
            new = directory / f"{name}.{os.getpid()}-{time.time_ns()}.new"
            options = [*QUIET, f"-XX:ArchiveClassesAtExit={new}"]
    except OSError:
        return ""
    return "" if '"' in str(directory) else " ".join(f'"{option}"' for option in options)


def cache_directory() -> Path:
    """Return the directory where we keep what only saves time, for this user."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "odradek"


def _directory() -> Path:
    return cache_directory() / "java-classes"


def _digest() -> str:
    """Digests what decides which classes there are: another Java or other jars have other places, sizes or times."""
    from pyspark.find_spark_home import _find_spark_home

    home = os.environ.get("JAVA_HOME")
    java = Path(home) / "bin" / "java" if home else Path(shutil.which("java") or "java")
    jars = Path(_find_spark_home()) / "jars"
    digest = hashlib.sha256()
    for place in (java.resolve(strict=True), jars.resolve(strict=True), *sorted(jars.iterdir())):
        facts = place.stat()
        digest.update(f"{place} {facts.st_size} {facts.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


def _ready(directory: Path, name: str) -> Path | None:
    """The archive of that name. Two runs may have stored one each at the same time: one is enough."""
    archive, now = directory / f"{name}.jsa", time.time()
    for new in sorted(directory.glob(f"{name}.*.new")):
        if _is_complete(new) and not archive.exists():
            new.replace(archive)
        elif _is_complete(new) or now - new.stat().st_mtime > GIVEN_UP_S:
            new.unlink(missing_ok=True)
    if not archive.exists():
        return None
    os.utime(archive)
    for other in directory.glob("*.jsa"):
        if now - other.stat().st_mtime > UNUSED_S:
            other.unlink(missing_ok=True)
    return archive


def _is_complete(new: Path) -> bool:
    with new.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC
