"""Looks at the newest version of a Delta table again and again, and notices that it was deleted or created again.

delta-rs does not notice that by itself: it looks for versions later than the one it has, finds none, and its next
commit leaves a hole in the log of the new table. So each look compares the log's entry of the version at hand with what
it was; one that has changed or gone means that the table is to be opened anew.
"""

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyarrow.fs import FileSystem

GONE = b""
STACK = "\n   0: "
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def plain(error: BaseException) -> str:
    """The text of an error of delta-rs, which draws causes as a tree, in one line and without its stack."""
    text = " ".join(COLOURS.sub("", str(error)).split(STACK)[0].split())
    return text.replace(" ↳ ", ": ").removeprefix("Kernel error -> ")


class DeltaLook:
    """The table at a path or URI, as it was at the last look. `options` are delta-rs's; `files` gives a file system of
    Arrow's, in which paths are those of the table."""

    def __init__(
        self,
        uri: str,
        options: Mapping[str, str] | None,
        files: "Callable[[], FileSystem]",
        table: "DeltaTable | None" = None,
    ) -> None:
        """`table` is one that was opened before; the first look opens it anew."""
        self._uri, self._options, self._files = uri, dict(options or {}) or None, files
        self._table = table
        self._entry = GONE

    @property
    def table(self) -> "DeltaTable":
        assert self._table is not None, "it was looked at, and is there"
        return self._table

    def again(self) -> "DeltaTable | None":
        """The newest version, or None if there is no table."""
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            if self._table is not None and self._entry != GONE and self._newest_entry() == self._entry:
                self._table.update_incremental()
            else:
                self._table = DeltaTable(self._uri, storage_options=self._options)
            self._entry = self._newest_entry()
        except TableNotFoundError:
            self._table, self._entry = None, GONE
        return self._table

    def _newest_entry(self) -> bytes:
        """The log's entry of the version at hand, as it is now."""
        entry = f"_delta_log/{self.table.version():020d}.json"
        try:
            with self._files().open_input_stream(entry) as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return GONE
