"""The wheel and the sdist: each is built, installed into an empty environment, and runs there."""

import os
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent.parent
TIMEOUT_S = 280


def run(*command: str, directory: Path | None = None) -> str:
    environ = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "ODRADEK_"))
    }
    result = subprocess.run(
        command, cwd=directory, capture_output=True, text=True, timeout=TIMEOUT_S, env=environ
    )
    assert result.returncode == 0, f"{command}:\n{result.stdout}\n{result.stderr}"
    return result.stdout


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the wheel and the sdist."""
    directory = tmp_path_factory.mktemp("packages")
    build = "import sys; from hatchling.build import build_sdist, build_wheel; build_sdist(sys.argv[1]); "
    build += "build_wheel(sys.argv[1])"
    run(sys.executable, "-c", build, str(directory), directory=ROOT)
    return directory


@pytest.mark.parametrize("suffix", [".whl", pytest.param(".tar.gz", marks=pytest.mark.long)])
def test_a_package_installs_into_an_empty_environment_and_runs(
    packages: Path, suffix: str, tmp_path: Path
) -> None:
    (package,) = packages.glob(f"odradek-*{suffix}")
    run(sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "env"))
    # What it depends on is linked in rather than downloaded again: this is about our package, offline.
    python = str(tmp_path / "env" / "bin" / "python")
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    options = ("--no-deps", "--quiet", "--disable-pip-version-check")
    if suffix == ".tar.gz":
        wheels = ("--no-build-isolation", "--wheel-dir", str(tmp_path))
        run(sys.executable, "-m", "pip", "wheel", *options, *wheels, str(package))
        (package,) = tmp_path.glob("*.whl")
    run(sys.executable, "-m", "pip", "--python", python, "install", *options, str(package))
    link_dependencies(site)
    check = "import odradek, sys; print(odradek.__file__)"
    assert str(site) in run(python, "-c", check, directory=tmp_path)
    assert run(str(tmp_path / "env" / "bin" / "odradek"), "--version").startswith("odradek ")
    use = "\n".join(
        [
            "import subprocess, sys",
            "from odradek.testing import broker",
            "with broker() as kafka:",
            "    topic = kafka.create_topic()",
            "    command = [sys.executable, '-m', 'odradek', '-b', kafka.bootstrap]",
            "    subprocess.run([*command, 'produce', topic, '-q'], input=b'hello\\n', check=True)",
            "    subprocess.run([*command, 'consume', topic, '-o', 'earliest', '-e', '-q'], check=True)",
        ]
    )
    assert run(python, "-c", use, directory=tmp_path) == "hello\n"


def link_dependencies(site: Path) -> None:
    """Only what pyproject.toml names as needed, and what that needs: an import of anything else must fail."""
    (ours,) = site.glob("odradek-*.dist-info")
    wanted, seen = needed_by(Distribution.at(ours)), set()
    while wanted:
        name = wanted.pop()
        if name in seen:
            continue
        seen.add(name)
        found = distribution(name)
        wanted += needed_by(found)
        for top in {Path(file).parts[0] for file in found.files or () if not str(file).startswith("..")}:
            if not (site / top).exists():
                (site / top).symlink_to(Path(str(found.locate_file(top))))


def needed_by(package: Distribution) -> list[str]:
    requirements = [Requirement(text) for text in package.requires or ()]
    return [one.name for one in requirements if one.marker is None or one.marker.evaluate({"extra": ""})]


def test_the_packages_hold_what_they_should(packages: Path) -> None:
    (wheel,) = packages.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "odradek/py.typed" in names
    assert "odradek/testing/plugin.py" in names
    assert not [name for name in names if name.startswith("tests/")]
    (entries,) = [name for name in names if name.endswith("entry_points.txt")]
    text = zipfile.ZipFile(wheel).read(entries).decode()
    assert "odradek = odradek.cli.main:main" in text
    assert "odradek = odradek.testing.plugin" in text
    (sdist,) = packages.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "src/odradek/cli/app.py", "tests/support.py"} <= inside
    assert not [name for name in inside if "node_modules" in name or name.startswith(".venv")]
