"""`odradek produce` and `odradek consume`, run as a user runs them."""

import json
import os
import pty
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.support import odradek_command, running_broker

Odradek = Callable[..., CompletedProcess[str]]


@pytest.fixture
def read_all(odradek: Odradek, topic: str) -> Callable[..., list[str]]:
    """All there is in the topic, a line a message."""

    def read(*options: str) -> list[str]:
        result = odradek("consume", topic, "--from-beginning", "--exit-at-end", *options)
        assert result.returncode == 0, result.stderr
        return result.stdout.splitlines()

    return read


def test_lines_come_back_in_order(odradek: Odradek, topic: str, read_all: Callable[..., list[str]]) -> None:
    odradek("topic", "create", topic)
    sent = [f"message {number}" for number in range(1000)] + ["", "é ☂"]
    produced = odradek("produce", topic, stdin="\n".join(sent) + "\n")
    assert produced.returncode == 0
    assert produced.stdout == ""
    assert produced.stderr == f"produced {len(sent)} messages to {topic}\n"
    assert read_all() == sent


def test_keys_headers_and_times(odradek: Odradek, topic: str, read_all: Callable[..., list[str]]) -> None:
    odradek("topic", "create", topic)
    options = ("-K", ":", "-H", "source=test", "-H", "n=1", "--timestamp", "2024-02-29T12:00:00Z")
    odradek("produce", topic, *options, stdin="one:first\ntwo:second:half\n")
    assert read_all("--format", r"%t|%p|%o|%k|%v|%h|%T|%K|%S|%%\n") == [
        f"{topic}|0|0|one|first|source=test,n=1|1709208000000|3|5|%",
        f"{topic}|0|1|two|second:half|source=test,n=1|1709208000000|3|11|%",
    ]


def test_json_lines_lose_nothing(odradek: Odradek, topic: str, read_all: Callable[..., list[str]]) -> None:
    odradek("topic", "create", topic)
    messages = [
        {"key": "k", "value": "text ☂", "headers": [["h", "1"], ["h", None]], "timestamp": 1700000000000},
        {"key": None, "value": None, "headers": [], "timestamp": 1700000000001},
        {"key": {"base64": "/w=="}, "value": {"base64": "AP8B"}, "headers": [], "timestamp": 1700000000002},
    ]
    lines = "".join(json.dumps(message) + "\n" for message in messages)
    assert odradek("produce", topic, "--json", stdin=lines).returncode == 0
    first_round = read_all("--json")
    assert odradek("produce", topic, "--json", stdin="\n".join(first_round) + "\n").returncode == 0
    read = [json.loads(line) for line in read_all("--json")]
    assert [{name: one[name] for name in messages[0]} for one in read] == messages + messages
    assert [one["offset"] for one in read] == list(range(6))
    assert read[0]["time"] == "2023-11-14T22:13:20.000+00:00"


def test_files_and_partitions(
    odradek: Odradek, topic: str, tmp_path: Path, read_all: Callable[..., list[str]]
) -> None:
    odradek("topic", "create", topic, "--partitions", "2")
    for number in range(2):
        (tmp_path / f"{number}.txt").write_text(f"in {number}\nno newline at the end")
        file = str(tmp_path / f"{number}.txt")
        assert odradek("produce", topic, file, "--partition", str(number)).returncode == 0
    assert read_all("--partition", "1") == ["in 1", "no newline at the end"]
    assert sorted(read_all("-f", r"%p %v\n"))[0] == "0 in 0"
    missing = odradek("produce", topic, str(tmp_path / "nothing"))
    assert missing.returncode == 1
    assert "nothing: no such file" in missing.stderr


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compression(odradek: Odradek, topic: str, codec: str, read_all: Callable[..., list[str]]) -> None:
    odradek("topic", "create", topic)
    sent = ["the same again " * 10] * 200
    assert odradek("produce", topic, "-z", codec, "--idempotent", stdin="\n".join(sent)).returncode == 0
    assert read_all() == sent


def test_starting_at_an_offset_or_a_time(
    odradek: Odradek, topic: str, read_all: Callable[..., list[str]]
) -> None:
    odradek("topic", "create", topic)
    for number in range(4):
        day = f"2024-01-0{number + 1}T00:00:00+00:00"
        odradek("produce", topic, "--timestamp", day, stdin=f"day {number + 1}\n")

    def read(*start: str) -> list[str]:
        return list(odradek("consume", topic, "-e", *start).stdout.splitlines())

    assert read("--offset", "2") == ["day 3", "day 4"]
    assert read("--offset", "-1") == ["day 4"]
    assert read("--offset", "end") == []
    assert read() == []
    assert read("--from-time", "2024-01-02T12:00:00Z") == ["day 3", "day 4"]
    assert read("--from-time", "1704153600000") == ["day 2", "day 3", "day 4"]
    assert read("--from-time", "-1h") == []
    assert read("--from-beginning", "--max-messages", "1") == ["day 1"]
    assert odradek("consume", topic, "--offset", "2", "--from-beginning").returncode == 2


def test_flags_of_kafkas_console_tools(odradek: Odradek, topic: str) -> None:
    odradek("topic", "create", "--topic", topic)
    sent = ("--property", "parse.key=true", "--property", "key.separator=:")
    assert odradek("produce", "--topic", topic, *sent, stdin="a:1\nb:2\n").returncode == 0
    wanted = ("--from-beginning", "--max-messages", "2", "--property", "print.key=true")
    assert odradek("consume", "--topic", topic, *wanted).stdout == "a\t1\nb\t2\n"


def test_following_a_topic_until_told_to_stop(odradek: Odradek, bootstrap: str, topic: str) -> None:
    odradek("topic", "create", topic)
    follower = subprocess.Popen(
        odradek_command("consume", topic, "--from-beginning", "-b", bootstrap),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    watchdog = threading.Timer(120, follower.kill)
    watchdog.start()
    assert follower.stdout is not None
    for word in ("first", "second"):
        odradek("produce", topic, stdin=f"{word}\n")
        assert follower.stdout.readline() == f"{word}\n"
    follower.send_signal(signal.SIGINT)
    _, errors = follower.communicate()
    watchdog.cancel()
    assert (follower.returncode, errors) == (0, "consumed 2 messages\n")


def test_a_reader_that_leaves_is_no_error(odradek: Odradek, bootstrap: str, topic: str) -> None:
    odradek("topic", "create", topic)
    odradek("produce", topic, stdin="x\n" * 50_000)
    command = " ".join(odradek_command("consume", topic, "--from-beginning", "-b", bootstrap))
    result = subprocess.run(
        f"set -o pipefail; {command} | head -n 1",
        shell=True,
        executable="/bin/bash",
        capture_output=True,
        timeout=60,
    )
    assert (result.returncode, result.stdout) == (0, b"x\n")
    assert b"Traceback" not in result.stderr


def test_waiting_for_messages_has_an_end(odradek: Odradek, topic: str) -> None:
    odradek("topic", "create", topic)
    assert odradek("consume", topic, "--timeout", "0.2").returncode == 0
    short = odradek("consume", topic, "--timeout", "0.2", "--max-messages", "2")
    assert short.returncode == 1
    assert "0 of 2 messages" in short.stderr


@pytest.mark.parametrize(
    ("arguments", "stdin", "reason"),
    [
        (("consume", "{missing}", "-e"), "", "no such topic"),
        (("consume", "{topic}", "-e", "-p", "5"), "", "has no partition 5"),
        (("produce", "{topic}", "-p", "5"), "x\n", "no such partition"),
        (("produce", "bad name"), "x\n", "bad name: Topic name is invalid"),
        (("produce", "{topic}", "--json"), "{}\n", "standard input, line 1: a message is a JSON object"),
        (("produce", "{topic}", "-K", ":"), "a:1\nb\n", "standard input, line 2: no key separator"),
        (("produce", "{topic}", "--acks", "some"), "x\n", "bad client settings"),
        (("produce", "{topic}"), "x" * 2_000_000, "too large"),
    ],
)
def test_failures_are_one_line(
    odradek: Odradek, topic: str, arguments: tuple[str, ...], stdin: str, reason: str
) -> None:
    odradek("topic", "create", topic)
    result = odradek(*(one.format(topic=topic, missing=f"{topic}-missing") for one in arguments), stdin=stdin)
    assert result.returncode == 1
    errors = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert reason in errors[0]
    assert "Traceback" not in result.stderr


def test_a_topic_that_is_not_there_is_announced(odradek: Odradek, topic: str) -> None:
    first = odradek("produce", topic, stdin="x\n")
    assert first.returncode == 0
    assert first.stderr == (
        f"{topic} does not exist: the broker will create it with its default settings, if it may\n"
        f"produced 1 message to {topic}\n"
    )
    assert odradek("produce", topic, stdin="x\n").stderr == f"produced 1 message to {topic}\n"


def test_several_topics_and_patterns(odradek: Odradek, topic: str) -> None:
    names = [f"{topic}-{letter}" for letter in "abc"]
    for name in names:
        odradek("topic", "create", name)
        odradek("produce", name, stdin=f"{name}\n")

    def read(*wanted: str) -> list[str]:
        result = odradek("consume", *wanted, "-o", "earliest", "-e", "-q")
        assert result.returncode == 0, result.stderr
        return sorted(result.stdout.splitlines())

    assert read(names[0], names[2]) == [names[0], names[2]]
    assert read(f"^{topic}-[ab]") == names[:2]
    assert read(f"^{topic}-a", names[0]) == names[:1]
    nothing = odradek("consume", f"^{topic}-z", "-e")
    assert (nothing.returncode, nothing.stderr) == (
        1,
        f"error: ^{topic}-z: no topic matches the pattern (see 'odradek topic list')\n",
    )
    grouped = odradek("consume", f"^{topic}-", "-G", f"{topic}-group", "--from-beginning", "-n", "3", "-q")
    assert sorted(grouped.stdout.splitlines()) == names


def test_ranges(odradek: Odradek, topic: str) -> None:
    odradek("topic", "create", topic)
    for number in range(6):
        odradek("produce", topic, "--timestamp", str(1000 * (number + 1)), stdin=f"{number}\n")

    def read(*options: str) -> str:
        result = odradek("consume", topic, "-q", *options)
        assert (result.returncode, result.stderr) == (0, ""), options
        return result.stdout.replace("\n", "")

    assert read("-o", "earliest", "-e") == "012345"
    assert read("-o", "latest", "-e") == ""
    assert read("-o", "1:4") == "123"
    assert read("-o", ":2") == "01"
    assert read("-o", "4:", "-e") == "45"
    assert read("-o", "3:3") == ""
    assert read("-o", "-2", "-e") == "45"
    assert read("-o", "@3000", "-e") == "2345"
    assert read("-o", "@1970-01-01T00:00:05Z", "-e") == "45"
    assert read("-o", "earliest", "--until", "latest") == "012345"
    assert read("-o", "earliest", "--until", "3000") == "01"
    assert read("-o", "2", "--until", "@5000") == "23"
    assert read("-o", "2", "--until", "-1h") == "2345"
    assert read("-o", "4:100", "-n", "2") == "45"
    assert odradek("consume", topic, "-o", "1:2", "--until", "latest").returncode == 2
    assert odradek("consume", topic, "-G", "g", "--until", "latest").returncode == 2


def test_a_time_to_come_ends_a_partition_at_the_first_message_so_late(
    odradek: Odradek, bootstrap: str, topic: str
) -> None:
    odradek("topic", "create", topic)
    later_ms = round(time.time() * 1000) + 3_000_000
    odradek("produce", topic, stdin="now\n")
    with following(topic, "-o", "earliest", "--until", str(later_ms), bootstrap=bootstrap) as follower:
        assert follower.stdout is not None
        assert follower.stdout.readline() == "now\n"
        odradek("produce", topic, "--timestamp", str(later_ms + 1), stdin="too late\n")
        rest, errors = follower.communicate()
    assert (follower.returncode, rest, errors) == (0, "", "consumed 1 message\n")


def test_filters_formats_and_tombstones(odradek: Odradek, topic: str) -> None:
    odradek("topic", "create", topic)
    odradek("produce", topic, "-K", ":", stdin='a:{"n": 1}\nb:{"n": 2}\na:null\n')
    odradek("produce", topic, "-k", "a", "--tombstone")
    odradek("produce", topic, "--tombstone", stdin="b\nc\n")

    def read(*options: str) -> list[str]:
        return list(odradek("consume", topic, "-o", "earliest", "-e", "-q", *options).stdout.splitlines())

    assert read("--filter", "key=b") == ['{"n": 2}', "null"]
    assert read("--filter", "value.$.n>1") == ['{"n": 2}']
    assert read("-F", "key=a", "-F", "value~null") == ["null"]
    assert read("-f", r"%k %v %S\n", "--null", "(none)") == [
        'a {"n": 1} 8',
        'b {"n": 2} 8',
        "a null 4",
        "a (none) -1",
        "b (none) -1",
        "c (none) -1",
    ]
    counted = odradek("consume", topic, "-o", "earliest", "-e", "-F", "key=c")
    assert counted.stderr == "consumed 6 messages, printed 1\n"


def test_counts_rates_and_standard_input_among_files(odradek: Odradek, topic: str, tmp_path: Path) -> None:
    odradek("topic", "create", topic)
    (tmp_path / "first").write_text("a\n")
    (tmp_path / "last").write_text("d\ne\n")
    files = (str(tmp_path / "first"), "-", str(tmp_path / "last"))
    result = odradek("produce", topic, *files, "--count", "4", "--rate", "200", "--quiet", stdin="b\nc\n")
    assert (result.returncode, result.stderr) == (0, "")
    assert odradek("consume", topic, "-o", "earliest", "-e", "-q").stdout == "a\nb\nc\nd\n"


def test_progress_is_shown_at_a_terminal_only(odradek: Odradek, bootstrap: str, topic: str) -> None:
    odradek("topic", "create", topic)
    ours, theirs = pty.openpty()
    command = odradek_command("produce", topic, "-b", bootstrap)
    subprocess.run(command, input=b"x\n" * 1000, stderr=theirs, check=True, timeout=60)
    os.close(theirs)
    shown = os.read(ours, 65536).decode()
    os.close(ours)
    assert " delivered, " in shown
    assert shown.endswith(f"produced 1000 messages to {topic}\r\n")


def test_the_cluster_may_be_named_before_the_command(run_here: Odradek, bootstrap: str, topic: str) -> None:
    assert run_here("-b", bootstrap, "topic", "create", topic).returncode == 0
    assert run_here("--bootstrap-server", bootstrap, "produce", topic, stdin="x\n").returncode == 0
    assert (
        run_here("-b", "localhost:1", "consume", topic, "-b", bootstrap, "-o", "earliest", "-e").stdout
        == "x\n"
    )


@contextmanager
def following(topic: str, *options: str, bootstrap: str) -> Iterator[subprocess.Popen[str]]:
    """`odradek consume` in a process of its own; killed if the test leaves it running."""
    follower = subprocess.Popen(
        odradek_command("consume", topic, *options, "-b", bootstrap),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    watchdog = threading.Timer(120, follower.kill)
    watchdog.start()
    try:
        yield follower
    finally:
        watchdog.cancel()
        follower.kill()
        follower.communicate()


def test_following_outlives_a_broker_and_says_so(run_here: Odradek, tmp_path: Path, topic: str) -> None:
    with running_broker(tmp_path) as broker:
        run_here("topic", "create", topic, "-b", broker.bootstrap)
        with following(topic, "-o", "earliest", bootstrap=broker.bootstrap) as follower:
            assert follower.stdout is not None
            assert follower.stderr is not None
            run_here("produce", topic, "-b", broker.bootstrap, stdin="before\n")
            assert follower.stdout.readline() == "before\n"
            broker.kill()
            told = follower.stderr.readline()
            assert told.startswith("warning: no broker reachable (")
            assert told.endswith("): waiting for one to come back\n")
            broker.start()
            assert follower.stderr.readline().startswith("reconnected after ")
            run_here("produce", topic, "-b", broker.bootstrap, stdin="after\n")
            assert follower.stdout.readline() == "after\n"
            follower.send_signal(signal.SIGTERM)
            assert follower.wait(60) == 0


# --- ends, and what a person is told ---


def test_a_range_ends_where_a_partition_does(odradek: Odradek, topic: str) -> None:
    odradek("topic", "create", topic, "--partitions", "2")
    odradek("produce", topic, "-p", "0", stdin="a\nb\nc\n")
    odradek("produce", topic, "-p", "1", stdin="d\n")
    result = odradek("consume", topic, "-o", "0:2")
    assert (result.returncode, sorted(result.stdout.split())) == (0, ["a", "b", "d"])
    assert odradek("consume", topic, "-o", "1:99", "-p", "0").stdout.split() == ["b", "c"]


def test_an_offset_beyond_the_end_is_told(odradek: Odradek, topic: str) -> None:
    odradek("topic", "create", topic, "--partitions", "2")
    odradek("produce", topic, "-p", "0", stdin="a\nb\n")
    beyond = odradek("consume", topic, "-o", "99", "-e")
    assert (beyond.returncode, beyond.stderr) == (
        1,
        f"error: offset 99 is beyond the end of 2 partitions: {topic}-0 at 2, {topic}-1 at 0\n",
    )
    partly = odradek("consume", topic, "-o", "1", "-e", "-q")
    assert (partly.returncode, partly.stdout) == (0, "b\n")
    assert partly.stderr == (
        f"warning: offset 1 is beyond the end of 1 partition: {topic}-1 at 0; nothing is read there\n"
    )
    at_end = odradek("consume", topic, "-o", "2", "-p", "0", "-e", "-q")
    assert (at_end.returncode, at_end.stderr) == (0, "")


def test_an_offset_before_the_first_record_is_the_first_record(odradek: Odradek, topic: str) -> None:
    odradek("topic", "create", topic)
    odradek("produce", topic, stdin="a\nb\nc\n")
    odradek("topic", "delete-records", topic, "--before", "1", "--yes")
    assert odradek("consume", topic, "-o", "0", "-e").stdout.split() == ["b", "c"]


def test_a_person_is_told_that_it_waits(odradek: Odradek, bootstrap: str, topic: str) -> None:
    odradek("topic", "create", topic)
    ours, theirs = pty.openpty()
    command = odradek_command("consume", topic, "-b", bootstrap)
    follower = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    watchdog = threading.Timer(120, follower.kill)
    watchdog.start()
    assert os.read(ours, 1000).startswith(b"waiting for new messages")
    follower.send_signal(signal.SIGINT)
    follower.communicate()
    watchdog.cancel()
    os.close(ours)
    assert follower.returncode == 0


def test_a_reader_that_leaves_is_told_no_count(odradek: Odradek, bootstrap: str, topic: str) -> None:
    odradek("topic", "create", topic)
    odradek("produce", topic, stdin="x\n" * 50_000)
    command = " ".join(odradek_command("consume", topic, "--from-beginning", "-b", bootstrap))
    result = subprocess.run(f"{command} | head -n 1", shell=True, capture_output=True, timeout=60)
    assert (result.stdout, result.stderr) == (b"x\n", b"")
