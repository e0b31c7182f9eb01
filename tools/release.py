"""Build the sdist and the wheel, and try them as a user would: `make release`.

The wheel is installed into a new environment of every supported Python that is found (on the path, and among pyenv's),
the sdist into one. In each, a broker is started, a message produced and consumed by the installed command, and a test
run that uses the pytest fixture. Nothing is uploaded.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
SUPPORTED = ("3.11", "3.12", "3.13")
TEST = """\
from confluent_kafka import Producer

def test_a_topic(odradek_broker):
    producer = Producer({"bootstrap.servers": odradek_broker.bootstrap})
    producer.produce("greetings", "hello")
    assert producer.flush(30) == 0
"""


def main() -> int:
    version = check_version()
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(DIST), str(ROOT))
    (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    pythons = find_pythons()
    print(f"odradek {version}: trying it with Python {', '.join(pythons) or '- none was found'}", flush=True)
    for number, python in enumerate(pythons.values()):
        try_package(python, wheel, version)
        if number == 0:
            try_package(python, sdist, version)
    print(f"{wheel.relative_to(ROOT)} and {sdist.relative_to(ROOT)} are ready")
    return 0 if pythons else 1


def check_version() -> str:
    """Return the version of the package, which must have a dated entry in the changelog."""
    found = re.search(r'__version__ = "(.+)"', (ROOT / "src/odradek/__init__.py").read_text())
    assert found is not None
    version = found[1]
    entry = rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$"
    changelog = (ROOT / "CHANGELOG.md").read_text()
    if not re.search(entry, changelog, re.MULTILINE):
        raise SystemExit(f"CHANGELOG.md has no dated entry for {version}")
    unreleased = re.search(r"^## \[Unreleased\]$(.*?)^## ", changelog, re.MULTILINE | re.DOTALL)
    if unreleased is not None and unreleased[1].strip():
        print(f"CHANGELOG.md has unreleased changes: set a new version before you publish this as {version}")
    return version


def find_pythons() -> dict[str, str]:
    """Find Pythons by version: the one on the path, or pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = {}
    for version in SUPPORTED:
        candidates = [shutil.which(f"python{version}"), *sorted(pyenv.glob(f"{version}.*/bin/python"))]
        for candidate in filter(None, candidates):
            test = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
            result = subprocess.run([candidate, "-c", test], capture_output=True, text=True)
            if result.stdout.strip() == version:  # pyenv's shims answer for versions that are not chosen, too
                found[version] = str(candidate)
                break
    return found


def try_package(python: str, package: Path, version: str) -> None:
    with tempfile.TemporaryDirectory(prefix="odradek-release-") as scratch:
        home = Path(scratch)
        run(python, "-m", "venv", str(home / "venv"))
        bin_ = home / "venv" / "bin"
        run(
            str(bin_ / "python"),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            str(package),
            "pytest",
        )
        command = str(bin_ / "odradek")
        told = output(command, "--version", home=home)
        assert told == f"odradek {version}\n", told
        try_broker(command, home)
        (home / "test_fixture.py").write_text(TEST)
        passed = output(str(bin_ / "python"), "-m", "pytest", "-q", str(home / "test_fixture.py"), home=home)
        assert "1 passed" in passed, passed
        print(f"  {package.name}, {python}: up, produce, consume, pytest fixture: ok", flush=True)


def try_broker(command: str, home: Path) -> None:
    process = subprocess.Popen(
        [command, "up", "--port", "0", "--json", "--data-dir", str(home / "data"), "--log-level", "error"],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(home),
        cwd=home,
    )
    try:
        assert process.stdout is not None
        bootstrap = json.loads(process.stdout.readline())["bootstrap"]
        subprocess.run(
            [command, "produce", "-b", bootstrap, "greetings"],
            input="hello\n",
            text=True,
            check=True,
            env=environment(home),
            cwd=home,
        )
        read = output(command, "consume", "-b", bootstrap, "greetings", "--from-beginning", "-e", home=home)
        assert read == "hello\n", read
    finally:
        process.terminate()
        status = process.wait(60)
        if process.stdout is not None:
            process.stdout.close()
    assert status == 0, f"the broker ended with status {status}"


def environment(home: Path) -> dict[str, str]:
    """Without this checkout: what is tried is the package."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "ODRADEK"))}
    return {**kept, "HOME": str(home), "XDG_DATA_HOME": str(home / "share")}


def output(*command: str, home: Path) -> str:
    result = subprocess.run(
        command, capture_output=True, text=True, env=environment(home), cwd=home, timeout=300
    )
    if result.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{result.stdout}{result.stderr}")
    return result.stdout


def run(*command: str) -> None:
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{result.stdout[-3000:]}{result.stderr[-3000:]}")


if __name__ == "__main__":
    raise SystemExit(main())
