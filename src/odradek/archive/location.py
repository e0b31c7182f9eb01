"""The place of a table, and access to its files: a local directory, or whatever storage delta-rs knows by a URL."""

import errno
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from odradek.archive.failures import MissingExtra
from odradek.archive.layout import table_of

INSTALL = "archives need more packages: install them with pip install '.[archive]' in a clone of Odradek"


@dataclass(frozen=True, slots=True)
class Location:
    """The place of a topic's table, and the options for storage that is not a local directory."""

    uri: str
    storage: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, archive: str, topic: str, storage: Mapping[str, str] | None = None) -> "Location":
        """A local path becomes absolute: tasks of Spark run in other directories."""
        uri = table_of(archive, topic)
        absolute = uri if "://" in uri else str(Path(uri).absolute())
        return cls(absolute, tuple(sorted((storage or {}).items())))

    @property
    def local(self) -> Path | None:
        if "://" not in self.uri:
            return Path(self.uri)
        return Path(self.uri.removeprefix("file://")) if self.uri.startswith("file://") else None

    @property
    def options(self) -> dict[str, str] | None:
        return dict(self.storage) or None

    def absolute(self, path: str) -> str:
        """A file of the table as Spark and DuckDB name it."""
        return f"{self.uri}/{path}" if self.local is None else str(self.local.absolute() / path)

    def filesystem(self) -> Any:
        """Arrow's, in which paths are those of the table."""
        from pyarrow import fs

        if self.local is not None:
            return fs.SubTreeFileSystem(str(self.local.absolute()), fs.LocalFileSystem())
        delta_rs()
        from deltalake.fs import DeltaStorageHandler

        return fs.PyFileSystem(DeltaStorageHandler(self.uri, options=self.options))


def delta_rs() -> Any:
    """The package, or a sentence that says how to get it."""
    try:
        import deltalake
    except ModuleNotFoundError as error:
        raise MissingExtra(INSTALL) from error
    return deltalake


def advice(error: Exception) -> str:
    """Say what to do about a target that refuses."""
    text = str(error)
    if getattr(error, "errno", None) == errno.ENOSPC or "No space left" in text:
        return ". Make room there, and run it again: it goes on where it stopped"
    if getattr(error, "errno", None) == errno.EACCES or "ermission denied" in text:
        return ". Let this user write there, and run it again: it goes on where it stopped"
    return ". Nothing of it counts as archived: run it again once that is mended"
