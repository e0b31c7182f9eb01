"""`[storage]` in the words of the three libraries that open files: delta-rs, pyiceberg, and pyarrow in tasks.

A place is a path on this machine, or a URI that begins with s3://, gs:// or abfss://. What `[storage]` does not say,
each library looks for in its usual places, such as AWS_ACCESS_KEY_ID or an instance's role; Google's service account is
named by GOOGLE_APPLICATION_CREDENTIALS, which all three read.
"""

import os
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from pyarrow import fs

Access = Mapping[str, str]  # by the names of `[storage]`

DELTA = {
    "endpoint": "aws_endpoint_url",
    "region": "aws_region",
    "access_key_id": "aws_access_key_id",
    "secret_access_key": "aws_secret_access_key",
    "session_token": "aws_session_token",
    "service_account": "google_service_account",
    "account_name": "azure_storage_account_name",
    "account_key": "azure_storage_account_key",
    "sas_token": "azure_storage_sas_key",
    "tenant_id": "azure_tenant_id",
    "client_id": "azure_client_id",
    "client_secret": "azure_client_secret",
}
ICEBERG = {
    "endpoint": "s3.endpoint",
    "region": "s3.region",
    "access_key_id": "s3.access-key-id",
    "secret_access_key": "s3.secret-access-key",
    "session_token": "s3.session-token",
    "account_name": "adls.account-name",
    "account_key": "adls.account-key",
    "sas_token": "adls.sas-token",
    "tenant_id": "adls.tenant-id",
    "client_id": "adls.client-id",
    "client_secret": "adls.client-secret",
}
ARROW_S3 = {
    "endpoint": "endpoint_override",
    "region": "region",
    "access_key_id": "access_key",
    "secret_access_key": "secret_key",
    "session_token": "session_token",
}
AZURE = ("account_name", "account_key", "sas_token", "tenant_id", "client_id", "client_secret")
SECRETS = ("secret_access_key", "session_token", "account_key", "sas_token", "client_secret")
S3, GOOGLE, AZURE_SCHEMES = ("s3", "s3a"), ("gs", "gcs"), ("abfs", "abfss")
GOOGLE_RETRIES = timedelta(minutes=1)
GOOGLE_VARIABLE = "GOOGLE_APPLICATION_CREDENTIALS"
EMULATOR_VARIABLE = "AZURITE_BLOB_STORAGE_URL"
FILE_IO = "odradek.pipeline.kinds.lake.iceberg_files.LakeFileIO"
KNOWN = (*S3, *GOOGLE, *AZURE_SCHEMES, "file")


def scheme_of(place: str) -> str:
    return urlsplit(place).scheme if "://" in place else ""


def is_local(place: str) -> bool:
    return scheme_of(place) in ("", "file")


def local_or_uri(place: str) -> str:
    """file:///my%20lake is the path /my lake on this machine; other URIs stay as they are."""
    return unquote(urlsplit(place).path) if place.startswith("file:") else place


def as_delta_opens(place: str) -> str:
    """delta-rs decodes the path of a URI, and pyarrow does not."""
    if not scheme_of(place):
        return place
    parts = urlsplit(place)
    return f"{parts.scheme}://{parts.netloc}{unquote(parts.path)}"


def warehouse_uri(place: str) -> str:
    """pyiceberg takes the path of a URI as it is, but for what would end it."""
    return place if scheme_of(place) else "file://" + place.replace("#", "%23").replace("?", "%3F")


def delta_options(access: Access) -> dict[str, str]:
    options = {DELTA[name]: value for name, value in access.items()}
    if is_azure(access) and "endpoint" in access:
        options |= azure_endpoint(options.pop(DELTA["endpoint"]), access["account_name"])
    if access.get("endpoint", "").startswith("http://"):
        options["allow_http"] = "true"
    return options


def iceberg_properties(access: Access) -> dict[str, str]:
    """Return the properties for the catalog, which gives them to its FileIO. It opens all files by pyarrow, as tasks
    do.
    """
    name_google_account(access)
    given = _with_query(access)
    properties = {ICEBERG[name]: value for name, value in given.items() if name in ICEBERG}
    if is_azure(access):
        properties.pop(ICEBERG["endpoint"], None)
        properties |= {
            f"adls.{name.replace('_', '-')}": value for name, value in azure_address(access).items()
        }
    elif "endpoint" in access:
        properties["s3.force-virtual-addressing"] = "false"
    return properties | {"py-io-impl": FILE_IO}


def name_google_account(access: Access) -> None:
    if "service_account" in access:
        os.environ[GOOGLE_VARIABLE] = access["service_account"]


def file_system(place: str, access: Access) -> tuple["fs.FileSystem", str]:
    """Return pyarrow's file system, with the place as a path in it."""
    from pyarrow import fs

    scheme, parts = scheme_of(place), urlsplit(place)
    if is_local(place):
        return fs.LocalFileSystem(), parts.path if scheme else place
    if scheme in S3:
        return fs.S3FileSystem(**arrow_s3(access)), f"{parts.netloc}{parts.path}"
    if scheme in GOOGLE:
        name_google_account(access)
        return google_file_system(), f"{parts.netloc}{parts.path}"
    container, _, host = parts.netloc.partition("@")
    return fs.AzureFileSystem(**arrow_azure(access, host)), f"{container}{parts.path}"


def google_file_system() -> "fs.FileSystem":
    """It would try for 15 minutes, and so without credentials, too."""
    from pyarrow import fs

    return fs.GcsFileSystem(retry_time_limit=GOOGLE_RETRIES)


def arrow_s3(access: Access) -> dict[str, Any]:
    options: dict[str, Any] = {ARROW_S3[name]: access[name] for name in ARROW_S3 if name in access}
    if "endpoint" in access:
        scheme, _, rest = access["endpoint"].partition("://")
        options |= {"scheme": scheme, "endpoint_override": rest}
    return options


def _with_query(access: Access) -> dict[str, str]:
    """pyarrow puts Azure's SAS token behind the address as it is; Azure's tools print it without the question mark."""
    token = access.get("sas_token", "")
    return dict(access) | ({"sas_token": f"?{token.removeprefix('?')}"} if token else {})


def without_secrets(text: str, access: Access) -> str:
    """What a library says, without what must not be seen: pyarrow names addresses with their SAS token."""
    for name in SECRETS:
        if secret := access.get(name, "").removeprefix("?"):
            text = text.replace(secret, "***")
    return text


def is_azure(access: Access) -> bool:
    return "account_name" in access


def arrow_azure(access: Access, host: str) -> dict[str, str]:
    options = {name: value for name, value in _with_query(access).items() if name in AZURE}
    return {"account_name": host.partition(".")[0]} | options | azure_address(access)


def azure_endpoint(endpoint: str, account: str) -> dict[str, str]:
    """Return the endpoint's settings by delta-rs's names. Azure's clouds have the account in the name of the host,
    its emulator in the path. delta-rs has to know that it is the emulator, which ignores where a listing is to start,
    and finds it by a variable.
    """
    if urlsplit(endpoint).netloc.startswith(f"{account}."):
        return {"azure_storage_endpoint": endpoint}
    os.environ[EMULATOR_VARIABLE] = endpoint
    return {"azure_storage_use_emulator": "true"}


def azure_address(access: Access) -> dict[str, str]:
    """The endpoint by pyarrow's names. What begins with a dot follows the name of the account."""
    if "endpoint" not in access:
        return {}
    parts, account = urlsplit(access["endpoint"]), access["account_name"]
    blob = parts.netloc.removeprefix(account)
    dfs = blob.replace(".blob.", ".dfs.", 1)
    return {
        "blob_storage_authority": blob,
        "dfs_storage_authority": dfs,
        "blob_storage_scheme": parts.scheme,
        "dfs_storage_scheme": parts.scheme,
    }
