"""Reads the table `[storage]`: how to get to object stores, and the catalog of Iceberg tables.

Its keys have names of ours. `kinds.lake.storage` translates them for each library that opens files.
"""

from odradek.pipeline.file.definition import Storage
from odradek.pipeline.file.tables import Table

S3 = ("endpoint", "region", "access_key_id", "secret_access_key", "session_token")
GOOGLE = ("service_account",)
AZURE = ("account_name", "account_key", "sas_token", "tenant_id", "client_id", "client_secret")
PAIRS = (("access_key_id", "secret_access_key"), ("client_id", "client_secret"))


def read_storage(table: Table) -> Storage:
    access = {name: table.text(name) for name in (*S3, *GOOGLE, *AZURE) if table.has(name)}
    for first, second in PAIRS:
        if (first in access) != (second in access):
            table.complain(first if first in access else second, f"give both {first} and {second}")
    return Storage(access, table.text("warehouse"), table.settings("catalog"))
