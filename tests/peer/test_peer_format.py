"""`odradek format` beside `kafka-storage format`: each one's directory is read by the other."""

import re
from pathlib import Path

import pytest

from odradek.metadata.loading import find_base
from odradek.metadata.properties import read_properties
from odradek.raft.voters import KRaftVersion
from odradek.storage.disk.files import DiskFiles
from tests.peer.test_peer_tools import dump
from tests.support import run_command
from tools.peer.kafka import run_tool

STORAGE = "kafka.tools.StorageTool"
CLUSTER = "5L6g3nShT-eMCtK--X86sw"
VOTERS = "1@c1:9093:JEXY6aqzQY-32P5TStzaFg,2@c2:9093:MvDxzVmcRsaTz33bUuRU6A,3@c3:9093:07R5amHmR32VDA6jHkGbTA"
OPTIONS = ("-t", CLUSTER, "-I", VOTERS)
CHECKPOINT = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
TIMES = re.compile(r"CreateTime: \d+ |Timestamp\":\d+|crc: \d+ |Dumping .*")


def settings(directory: Path) -> Path:
    file = directory.with_suffix(".properties")
    file.write_text(
        "process.roles=controller\nnode.id=1\nlisteners=CONTROLLER://:9093\ncontroller.listener.names=CONTROLLER\n"
        f"controller.quorum.bootstrap.servers=c1:9093,c2:9093,c3:9093\nlog.dirs={directory}\n"
    )
    return file


@pytest.fixture(scope="module")
def directories(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Kafka's and ours."""
    home = tmp_path_factory.mktemp("formatted")
    theirs, ours = home / "theirs", home / "ours"
    formatted = run_tool(STORAGE, "format", "-c", str(settings(theirs)), *OPTIONS)
    assert formatted.returncode == 0, formatted.stderr
    done = run_command("format", "-c", str(settings(ours)), *OPTIONS)
    assert done.returncode == 0, done.stderr
    return theirs, ours


def test_the_first_voters_are_written_alike(directories: tuple[Path, Path]) -> None:
    options = ("--cluster-metadata-decoder",)
    theirs, ours = (TIMES.sub("", dump(one / CHECKPOINT, options=options)) for one in directories)
    assert "KRaftVoters" in ours
    assert ours == theirs


def test_kafka_accepts_our_directory(directories: tuple[Path, Path]) -> None:
    info = run_tool(STORAGE, "info", "-c", str(settings(directories[1])))
    assert info.returncode == 0, info.stdout + info.stderr
    assert (
        f"Found metadata: {{cluster.id={CLUSTER}, directory.id=JEXY6aqzQY-32P5TStzaFg, node.id=1"
        in info.stdout
    )
    assert "problem" not in info.stdout


def test_we_read_kafkas_directory(directories: tuple[Path, Path]) -> None:
    theirs, ours = (
        (read_properties(DiskFiles(), str(one)), find_base(DiskFiles(), str(one), CLUSTER).quorum_changes)
        for one in directories
    )
    assert theirs == ours
    assert theirs[1][0] == KRaftVersion(1)
