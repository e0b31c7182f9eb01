"""Run kafka-python's own integration tests against a broker of ours: `make conformance`.

A client's tests know what that client expects of a broker, and nobody here wrote them. They come from the source
distribution on PyPI, of the version installed, at every run; nothing of them is kept. Two files they need are not in
it and are made here: an empty package, and the module that would start Java's broker, of which only the class for a
broker that runs already is used.

Passes and failures are told by name. A test may fail or be skipped only if docs/CONFORMANCE.md gives the reason in its
table, and a test named there must not pass: the exit status says whether that holds.
"""

import argparse
import importlib.metadata
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

CLIENT = "kafka-python"
KAFKA_VERSION = "4.3"  # as the client infers it from ApiVersions; an older one would skip tests
CODECS = ("lz4", "python-snappy", "zstandard")  # without them the tests of compression are skipped
SETTINGS = {  # as the client's authors set their own broker
    "node.id": "0",
    "num.partitions": "4",
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
}
REASONS = Path(__file__).parent.parent / "docs" / "CONFORMANCE.md"
REASON_ROW = re.compile(r"^\| `([^`]+::test_[^`]+)` \| (.+) \|$", re.MULTILINE)
SERVICE_MODULE = """
class ExternalService:
    def __init__(self, host, port):
        pass


class SpawnedService:
    def __init__(self, *args):
        raise RuntimeError("only a broker that runs already is tested")
"""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a test: passed, failed or skipped, and the last word about it."""

    name: str
    result: str
    seconds: float
    detail: str


def pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    subprocess.run(command, check=True)


def fetch_tests(scratch: Path) -> Path:
    """Unpack the tests of the client's source distribution; the directory to run them in."""
    version = importlib.metadata.version(CLIENT)
    pip("download", "--no-deps", "--no-binary", ":all:", "--dest", str(scratch), f"{CLIENT}=={version}")
    (archive,) = scratch.glob("*.tar.gz")
    with tarfile.open(archive) as source:
        tests = [member for member in source if Path(member.name).parts[1:2] == ("test",)]
        filtered = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # not in every Python 3.11
        source.extractall(scratch, tests, **filtered)
    (root,) = (path.parent for path in scratch.glob("*/test"))
    for name, text in (("__init__.py", ""), ("service.py", SERVICE_MODULE)):
        if not (root / "test" / name).exists():
            (root / "test" / name).write_text(text)
    return root


def free_port() -> int:
    with socket.create_server(("localhost", 0)) as server:
        port: int = server.getsockname()[1]
    return port


@contextmanager
def running_broker(scratch: Path) -> Iterator[str]:
    """A broker in a process of its own; yields its address."""
    port = free_port()
    settings = {**SETTINGS, "advertised.listeners": f"PLAINTEXT://localhost:{port}"}
    command = [sys.executable, "-m", "odradek", "up", "--json", "--port", str(port)]
    command += ["--data-dir", str(scratch / "data")]
    command += [argument for item in settings.items() for argument in ("--set", "=".join(item))]
    with (scratch / "broker.log").open("w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["bootstrap"]
    finally:
        process.terminate()
        process.wait()


def run_tests(root: Path, scratch: Path, bootstrap: str, chosen: str) -> list[Outcome]:
    codecs, report = scratch / "codecs", scratch / "report.xml"
    pip("install", "--target", str(codecs), *CODECS)
    environ = {
        **os.environ,
        "KAFKA_URI": f"PLAINTEXT://{bootstrap}",
        "KAFKA_VERSION": KAFKA_VERSION,
        "KAFKA_ROOT": str(scratch),  # looked at, but used only by a broker that the tests start
        "PYTHONPATH": f"{root}{os.pathsep}{codecs}",
    }
    command = [sys.executable, "-m", "pytest", "test/integration", "-q", "--rootdir", ".", "--timeout", "120"]
    command += [
        "--tb",
        "short",
        "-W",
        "ignore",
        "-p",
        "no:cacheprovider",
        "--junit-xml",
        str(report),
        "-k",
        chosen,
    ]
    subprocess.run(command, cwd=root, env=environ)
    cases = ElementTree.parse(report).getroot().iter("testcase")
    return sorted(map(outcome_of, cases), key=lambda outcome: outcome.name)


def outcome_of(case: ElementTree.Element) -> Outcome:
    module = (case.get("classname") or "").split(".")[2].removeprefix("test_").removesuffix("_integration")
    name, seconds = f"{module}::{case.get('name')}", float(case.get("time") or 0)
    for child in case:
        if child.tag in ("failure", "error", "skipped"):
            result = "skipped" if child.tag == "skipped" else "failed"
            return Outcome(name, result, seconds, (child.get("message") or "").split("\n")[0])
    return Outcome(name, "passed", seconds, "")


def surprises(outcomes: list[Outcome], reasons: Mapping[str, str]) -> list[str]:
    """List the outcomes that differ from what docs/CONFORMANCE.md leads one to expect."""
    found = []
    for outcome in outcomes:
        explained = outcome.name in reasons
        if explained and outcome.result == "passed":
            found.append(f"{outcome.name} passed, though a reason for failure is given")
        elif not explained and outcome.result != "passed":
            found.append(f"{outcome.name} {outcome.result}, and no reason is given")
    return found


def report(outcomes: list[Outcome], reasons: Mapping[str, str]) -> bool:
    print()
    for outcome in outcomes:
        why = reasons.get(outcome.name, outcome.detail)
        print(f"{outcome.result:8}{outcome.seconds:6.1f} s  {outcome.name}{'  ' + why if why else ''}")
    counts = Counter(outcome.result for outcome in outcomes)
    print(f"\n{', '.join(f'{count} {result}' for result, count in sorted(counts.items()))}")
    unexpected = surprises(outcomes, reasons)
    print("\n".join(unexpected) or f"all that did not pass is explained in docs/{REASONS.name}")
    return bool(outcomes) and not unexpected


def main() -> int:
    parser = argparse.ArgumentParser(description="kafka-python's integration tests against a broker")
    parser.add_argument("-k", dest="chosen", default="", help="only tests that match, as for pytest")
    parser.add_argument("--bootstrap", help="a broker that runs already; one is started if not given")
    arguments = parser.parse_args()
    reasons = dict(REASON_ROW.findall(REASONS.read_text()))
    scratch = Path(tempfile.mkdtemp(prefix="odradek-conformance-"))
    try:
        root = fetch_tests(scratch)
        if arguments.bootstrap:
            outcomes = run_tests(root, scratch, arguments.bootstrap, arguments.chosen)
        else:
            with running_broker(scratch) as bootstrap:
                outcomes = run_tests(root, scratch, bootstrap, arguments.chosen)
    finally:
        shutil.rmtree(scratch)
    return 0 if report(outcomes, reasons) else 1


if __name__ == "__main__":
    sys.exit(main())
