"""Makes pyiceberg open files by pyarrow, as tasks do.

pyiceberg takes the first part of abfss://container@account.dfs.core.windows.net/path for the container's name, and does
not see the account (its issue 2698); and it lets Google's library try for a quarter of an hour. The rest is left to it.
"""

from urllib.parse import urlsplit

from pyarrow.fs import FileSystem
from pyiceberg.io import ADLS_ACCOUNT_NAME
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.typedef import EMPTY_DICT, Properties

from odradek.pipeline.kinds.lake.storage import AZURE_SCHEMES, GOOGLE, google_file_system


class LakeFileIO(PyArrowFileIO):  # type: ignore[misc]
    @staticmethod
    def parse_location(location: str, properties: Properties = EMPTY_DICT) -> tuple[str, str, str]:
        scheme, place, path = PyArrowFileIO.parse_location(location, properties)
        if scheme in AZURE_SCHEMES:
            path = place.partition("@")[0] + urlsplit(location).path
        return scheme, place, path

    def _initialize_fs(self, scheme: str, netloc: str | None = None) -> FileSystem:
        if scheme in GOOGLE and not any(name.startswith("gcs.") for name in self.properties):
            return google_file_system()
        host = (netloc or "").partition("@")[2]
        if scheme in AZURE_SCHEMES and host:
            self.properties.setdefault(ADLS_ACCOUNT_NAME, host.partition(".")[0])
        return super()._initialize_fs(scheme, netloc)
