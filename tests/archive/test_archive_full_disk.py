"""An archive on a disk that really is full: whatever did not fit, what is archived stays, and it goes on once there is
room."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.archive.failures import ArchiveError
from odradek.archiving.archiver import Archiver
from tests.archive.conftest import archived_offsets
from tests.archive.test_archive_broker import archiver, order
from tests.processes.disk_faults import fill, small_disks

PAGE = 4096


@pytest.fixture
def small_disk(tmp_path) -> Iterator[Path]:
    with small_disks(tmp_path, range(1), 2 << 20) as mounted:
        if not mounted:
            pytest.skip("no file system can be mounted here")
        yield tmp_path / "node-0"


def test_it_fails_wherever_the_disk_ends_and_goes_on_once_there_is_room(broker, topics, small_disk):
    topic, archive, ballast = topics.create(partitions=1), small_disk / "archive", small_disk / "ballast"
    topics.fill(topic, [b"first"])
    archiver(broker, archive, topic).run_once()
    count, failures = 1, []
    for pages in range(8):  # that are left: for no file, for a part of one, for one without its commit…
        topics.fill(topic, [os.urandom(2 * PAGE)])
        fill(ballast)
        os.truncate(ballast, ballast.stat().st_size - pages * PAGE)
        try:
            archiver(broker, archive, topic).run_once()
            count = pages + 2
        except ArchiveError as error:
            failures.append(str(error))
        ballast.unlink()
        assert archived_offsets(archive, topic) == {0: list(range(count))}
    assert len(failures) > 1 and all("Make room there, and run it again" in one for one in failures), failures
    archiver(broker, archive, topic).run_once()
    assert archived_offsets(archive, topic) == {0: list(range(9))}


def test_a_process_that_watches_tries_again_until_there_is_room(broker, topics, small_disk):
    topic, archive, ballast = topics.create(partitions=1), small_disk / "archive", small_disk / "ballast"
    topics.fill(topic, [b"first"])
    warned: list[str] = []
    one = Archiver(order(broker, archive, topic), lambda done: None, warned.append)
    passes = iter(["full", "still full", "room", "end"])

    def wait() -> bool:
        now = next(passes)
        topics.fill(topic, [os.urandom(2 * PAGE)])
        if now == "full":
            fill(ballast)
        elif now == "room":
            ballast.unlink()
        return now != "end"

    one.run(wait)
    assert len(warned) == 2 and all(
        "was not archived this time, and is tried again" in text for text in warned
    )
    assert archived_offsets(archive, topic) == {0: list(range(4))}
    assert f'odradek_archive_failures_total{{topic="{topic}"}} 2' in one.metrics.text()
