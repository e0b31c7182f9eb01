"""Servers that package registries have: Azurite (npm) for Azure, fake-gcs-server (Go) for Google, and the REST catalog
that Iceberg's own tests use (Maven). Where one cannot be had, `PeerUnavailable` says why."""

import base64
import hmac
import json
import os
import re
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tools.peer.kafka import PeerUnavailable, free_port, jars_of

AZURITE = "azurite@3.37.0"
FAKE_GCS = "github.com/fsouza/fake-gcs-server@v1.56.1"
REST_CATALOG = "org.apache.iceberg.rest.RESTCatalogServer"
POM = Path(__file__).with_name("pom.xml")
ACCOUNT = "devstoreaccount1"  # and its key: those of every emulator of Azure
ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
BUCKET = "lake"
INSTALL_TIMEOUT_S = 900
START_TIMEOUT_S = 60


@dataclass(frozen=True)
class Store:
    """`places` are ways to name the same bucket; `access` is what `[storage]` has, `environ` what emulators need.

    fake-gcs-server does not know the requests by which delta-rs writes ("invalid uploadType")."""

    places: tuple[str, ...]
    access: dict[str, str]
    formats: tuple[str, ...] = ("delta", "iceberg")
    environ: dict[str, str] = field(default_factory=dict)


@contextmanager
def azurite(directory: Path) -> Iterator[Store]:
    from pyarrow.fs import AzureFileSystem

    from odradek.pipeline.kinds.lake.storage import arrow_azure

    home = _cache("azurite")
    program = home / "node_modules" / ".bin" / "azurite-blob"
    npm = ["npm", "install", "--silent", "--no-save", "--no-package-lock", "--prefix", str(home), AZURITE]
    _install(program, npm)
    port = free_port()
    command = [str(program), "--blobPort", str(port), "--location", str(directory)]
    command += ["--skipApiVersionCheck", "--disableTelemetry"]
    endpoint = f"http://127.0.0.1:{port}"
    with _running(command, directory, endpoint):
        access = {"endpoint": endpoint, "account_name": ACCOUNT, "account_key": ACCOUNT_KEY}
        AzureFileSystem(**arrow_azure(access, "")).create_dir(BUCKET)
        host = f"{ACCOUNT}.dfs.core.windows.net"
        yield Store((f"abfss://{BUCKET}@{host}", f"abfss://{BUCKET}"), access)


@contextmanager
def azurite_by_token(directory: Path) -> Iterator[Store]:
    """The same with a SAS token in the place of the account's key."""
    with azurite(directory) as store:
        access = {name: value for name, value in store.access.items() if name != "account_key"}
        yield Store(store.places, access | {"sas_token": sas_token()})


def sas_token() -> str:
    """A token for everything in the account, as `az storage account generate-sas` prints it."""
    facts = {
        "sp": "rwdlacup",
        "ss": "b",
        "srt": "sco",
        "st": "",
        "se": "2099-01-01T00:00:00Z",
        "sip": "",
        "spr": "https,http",
        "sv": "2022-11-02",
        "ses": "",
    }
    signed = "\n".join([ACCOUNT, *facts.values(), ""]).encode()
    signature = hmac.digest(base64.b64decode(ACCOUNT_KEY), signed, "sha256")
    given = {name: value for name, value in facts.items() if value}
    return urllib.parse.urlencode(given | {"sig": base64.b64encode(signature).decode()})


@contextmanager
def fake_gcs(directory: Path) -> Iterator[Store]:
    home = _cache("fake-gcs-server")
    program = home / "fake-gcs-server"
    _install(program, ["go", "install", FAKE_GCS], GOBIN=str(home))
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    command = [
        str(program),
        "-backend",
        "memory",
        "-scheme",
        "http",
        "-host",
        "127.0.0.1",
        "-port",
        str(port),
    ]
    with _running([*command, "-public-host", f"127.0.0.1:{port}"], directory, endpoint):
        body = json.dumps({"name": BUCKET}).encode()
        headers = {"Content-Type": "application/json"}
        new_bucket = urllib.request.Request(f"{endpoint}/storage/v1/b?project=p", body, headers)
        urllib.request.urlopen(new_bucket, timeout=START_TIMEOUT_S).close()
        account = directory / "account.json"
        account.write_text(json.dumps(service_account()))
        environ = {"CLOUD_STORAGE_EMULATOR_ENDPOINT": endpoint}
        yield Store((f"gs://{BUCKET}",), {"service_account": str(account)}, ("iceberg",), environ)


def service_account() -> dict[str, str]:
    """Return what Google gives to its users: libraries sign tokens with the key."""
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return {
        "type": "service_account",
        "project_id": "p",
        "private_key_id": "1",
        "private_key": text,
        "client_email": "lake@p.iam.gserviceaccount.com",
        "client_id": "1",
        "token_uri": "http://127.0.0.1:9/token",
    }


@contextmanager
def rest_catalog(directory: Path) -> Iterator[str]:
    jars, port = jars_of(POM, "iceberg-rest", "Iceberg's REST catalog"), free_port()
    environ = {
        "CATALOG_REST_PORT": str(port),
        "CATALOG_WAREHOUSE": str(directory / "warehouse"),
        "CATALOG_URI": f"jdbc:sqlite:{directory / 'catalog.db'}",
    }
    command = ["java", "-Xmx256m", "-cp", os.pathsep.join([f"{jars}/*", *_hadoop()]), REST_CATALOG]
    address = f"http://127.0.0.1:{port}"
    with _running(command, directory, f"{address}/v1/config", **environ):
        yield address


def _hadoop() -> list[str]:
    """PySpark brings it."""
    import pyspark

    jars = Path(pyspark.__file__).parent / "jars"
    wanted = re.compile(r"(hadoop-client-api|hadoop-client-runtime|jcl-over-slf4j)-[\d.]+\.jar")
    return [str(jar) for jar in jars.iterdir() if wanted.fullmatch(jar.name)]


def _cache(name: str) -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    directory = Path(base) / "odradek" / name
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def _install(program: Path, command: Sequence[str], **environ: str) -> None:
    if program.exists():
        return
    if shutil.which(command[0]) is None:
        raise PeerUnavailable(f"{command[0]} is not installed, so {program.name} cannot be had")
    try:
        done = subprocess.run(
            command, env={**os.environ, **environ}, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        raise PeerUnavailable(f"{command[0]} did not install {program.name} in time") from None
    if done.returncode != 0 or not program.exists():
        raise PeerUnavailable(f"{command[0]} could not install {program.name}: {done.stderr[-300:].strip()}")


@contextmanager
def _running(command: Sequence[str], directory: Path, address: str, **environ: str) -> Iterator[None]:
    log = directory / "server.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            command, env={**os.environ, **environ}, cwd=directory, stdout=output, stderr=output
        )
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not _responds(address):
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()[-3000:]
            time.sleep(0.05)
        yield
    finally:
        process.kill()
        process.wait()


def _responds(address: str) -> bool:
    try:
        urllib.request.urlopen(address, timeout=START_TIMEOUT_S).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True
