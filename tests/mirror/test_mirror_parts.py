"""The parts without a cluster: the file, names, who copies what, and what the target needs."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from odradek.cli.mirror import METRICS, Lines
from odradek.exposition import Numbers
from odradek.mirror.copying import Progress
from odradek.mirror.file import load
from odradek.mirror.names import Choice, Direction, topics_to_copy
from odradek.mirror.position import Copy, Position, UnreadablePosition, decode_key, decode_position
from odradek.mirror.protocol import (
    Away,
    CopyProtocol,
    Fetch,
    Found,
    Initialize,
    OutOfRange,
    Pause,
    Stop,
    Succeeded,
)
from odradek.mirror.sharing import assigned, decode, encode
from odradek.mirror.upkeep import TopicFacts, needed
from odradek.mirror.work import RETRY_S, Share
from odradek.model import TopicPartition
from odradek.pipeline.file.errors import PipelineError
from tests.support import run_command

DOCS = Path(__file__).parents[2] / "docs"
GOOD = """
[source]
name = "west"
kafka = { "bootstrap.servers" = "one:9092,two:9092", "security.protocol" = "PLAINTEXT" }
[target]
name = "east"
[target.kafka]
bootstrap.servers = "three:9092"
[topics]
names = ["orders"]
pattern = "shop-.*"
exclude = ".*-draft"
replication_factor = 2
own_settings = ["retention.ms"]
[groups]
names = ["billing"]
"""


@pytest.fixture
def file(tmp_path):
    def write(text: str):
        path = tmp_path / "mirror.toml"
        path.write_text(text)
        return path

    return write


def test_a_file_is_read(file):
    settings = load(file(GOOD))
    assert settings.direction == Direction("west", "east")
    assert settings.source.properties.client.bootstrap == (("one", 9092), ("two", 9092))
    assert settings.topics == Choice(("orders",), "shop-.*", ".*-draft")
    assert (settings.replication_factor, settings.own_settings) == (2, ("retention.ms",))
    assert settings.source.properties.fetch.read_committed
    assert settings.target.properties.produce.transaction_timeout_ms == 60_000


def test_the_file_of_the_documentation_is_one(file):
    text = (DOCS / "MIRROR.md").read_text()
    settings = load(file(re.findall(r"```toml\n(.*?)```", text, re.DOTALL)[0]))
    assert settings.direction.copy_of("orders") == "west.orders"
    assert (
        settings.groups.has("billing") and settings.topics.has("shop-1") and not settings.topics.has("shop")
    )


PROBLEMS = {
    "topic = ['a']": "topic: there is no such key; did you mean 'topics'?",
    "[topic]\nnames = ['a']": "topic: there is no such key; did you mean 'topics'?",
    "[topics]\nname = ['a']": "topics.name: there is no such key; did you mean 'names'?",
    "[topics]\npattern = '('": "topics.pattern: this is not a regular expression",
    "[topics]\nnames = []": "say which topics to mirror",
    "[topics]\nnames = ['east.orders']": "east.orders has come from east, as its name says",
    "[source.kafka]\nbootstrap.server = 'a:1'": "did you mean 'bootstrap.servers'?",
    "[source.kafka]\nbootstrap.servers = 'a'": "'a' is not host:port",
    "[source.kafka]\nisolation.level = 'read_uncommitted'": "a mirror always reads committed records",
    "[source]\nname = 'w.est'": "give the cluster a name of letters, digits, '_' and '-'",
    "[source]\nname = 'east'": "the two clusters must have different names",
    "[target.kafka]\ncompression.type = 'lz4'": "batches keep the compression that they have",
    "[target.kafka]\ngroup.protocol = 'x'": "group.protocol: there is no such setting of a client",
}


@pytest.mark.parametrize("text", PROBLEMS)
def test_what_is_wrong_is_said(file, text):
    given = dict.fromkeys(("source", "target", "topics"), True) | {
        text.split("]")[0][1:].split(".")[0]: False
    }
    rest = [
        part
        for name, part in {
            "source": '[source]\nname = "west"\nkafka = { "bootstrap.servers" = "a:1" }\n',
            "target": '[target]\nname = "east"\nkafka = { "bootstrap.servers" = "b:1" }\n',
            "topics": '[topics]\nnames = ["orders"]\n',
        }.items()
        if given[name]
    ]
    with pytest.raises(PipelineError) as raised:
        load(file("\n".join([text, *rest])))
    assert PROBLEMS[text] in str(raised.value)


def test_the_command_says_it_with_the_line(file):
    path = file(GOOD.replace("pattern", "patern"))
    result = run_command("mirror", "check", str(path), "--offline")
    assert result.returncode == 1
    assert f"{path}:11: topics.patern: there is no such key; did you mean 'pattern'?" in result.stderr
    assert (
        run_command("mirror", "check", str(file(GOOD)), "--offline", "--json").stdout
        == '{\n  "ok": true\n}\n'
    )
    assert "there is no such file; docs/MIRROR.md" in run_command("mirror", "nothing.toml").stderr


def test_a_secret_comes_from_outside(file):
    secret = GOOD.replace(
        '"PLAINTEXT" }',
        '"SASL_PLAINTEXT", "sasl.mechanism" = "PLAIN", "sasl.jaas.config" = "x password=\'p\';" }',
    )
    with pytest.raises(PipelineError, match="a secret does not belong in this file"):
        load(file(secret))


def test_an_empty_file_lacks_everything_and_no_more(file):
    with pytest.raises(PipelineError) as raised:
        load(file(""))
    said = str(raised.value)
    assert 'name = "west"' in said and 'name = "east"' in said and "say which topics to mirror" in said
    assert "different names" not in said


# Names


def test_topics_that_have_come_from_the_target_are_not_copied_back():
    existing = [
        "orders",
        "west.orders",
        "east.orders",
        "north.east.orders",
        "east",
        "__consumer_offsets",
        "_odradek-ledger",
    ]
    found = topics_to_copy(Direction("west", "east"), Choice(pattern=".*"), existing)
    assert found == ["east", "orders", "west.orders"]
    assert topics_to_copy(Direction("west", "east"), Choice(("orders",), "e.*", "or.*"), existing) == ["east"]


# Sharing


def places(*numbers: int) -> list[TopicPartition]:
    return [TopicPartition("t", number) for number in numbers]


def test_everybody_has_the_same_number_and_keeps_what_it_had():
    assert assigned({"a": []}, places(0, 1)) == {"a": places(0, 1)}
    assert assigned({"a": places(0, 1, 2, 3), "b": []}, places(0, 1, 2, 3)) == {
        "a": places(0, 1),
        "b": places(2, 3),
    }
    assert assigned({"a": places(3), "b": places(1, 2)}, places(1, 2, 3)) == {
        "a": places(3),
        "b": places(1, 2),
    }
    assert assigned({"a": places(0), "b": places(0)}, places(0)) == {"a": places(0), "b": []}
    assert assigned({"a": places(9), "b": []}, places(0)) in (
        {"a": places(0), "b": []},
        {"a": [], "b": places(0)},
    )


@pytest.mark.parametrize("members", range(1, 6))
@pytest.mark.parametrize("count", [0, 1, 4, 7])
def test_every_partition_is_assigned_once(members, count):
    owned = {f"m{number}": places(number, 2 * number) for number in range(members)}
    found = assigned(owned, places(*range(count)))
    assert sorted(one for those in found.values() for one in those) == places(*range(count))
    assert max(map(len, found.values())) - min(map(len, found.values())) <= 1


def test_what_members_say_is_read_back():
    assert decode(encode(places(2, 1))) == places(1, 2)
    assert decode(b"") == decode(b'{"format": 99, "partitions": "?"}') == []


class FakeWork:
    """A partition's thread that has ended, or not."""

    def __init__(self) -> None:
        self.progress, self.copier = Progress(), SimpleNamespace(initialized_s=0.0)
        self.has_ended, self.is_stopped, self.ended_s = False, False, float("inf")

    def start(self) -> None:
        self.progress.records += 1

    def stop(self) -> None:
        self.is_stopped = True

    def join(self, timeout_s: float) -> None:
        pass

    def end(self, state: str, initialized_s: float, ended_s: float = 0.0) -> None:
        self.progress.state, self.has_ended = state, True
        self.copier.initialized_s, self.ended_s = initialized_s, ended_s


def test_what_is_fenced_begins_again_with_the_next_assignment_and_not_before():
    """One that the owner before us has fenced begins again at once: the assignment is newer."""
    share = Share(lambda partition: FakeWork())  # type: ignore[arg-type,return-value]
    (one, two) = places(1, 2)
    share.take([one, two])
    first, now_s = dict(share.works), share.assigned_s + 1
    first[one].end("parked", initialized_s=now_s)  # type: ignore[attr-defined]
    share.tick(now_s + 1000)
    assert share.works == first, "a rival has it"
    first[two].end("parked", initialized_s=share.assigned_s - 1)  # type: ignore[attr-defined]
    share.tick(now_s)
    assert share.works[one] is first[one] and share.works[two] is not first[two]
    share.take([one])
    assert share.works.keys() == {one} and share.works[one] is not first[one]
    assert share.totals().records == 4, "those of partitions that are gone count"


def test_what_has_stopped_begins_again_after_a_while():
    share = Share(lambda partition: FakeWork())  # type: ignore[arg-type,return-value]
    share.take(places(1))
    (work,) = share.works.values()
    work.end("stopped", initialized_s=0.0, ended_s=100.0)  # type: ignore[attr-defined]
    share.tick(100.0 + RETRY_S - 1)
    assert list(share.works.values()) == [work] and share.has_ended
    share.tick(100.0 + RETRY_S + 1)
    assert list(share.works.values()) != [work] and not share.has_ended


def test_what_the_group_assigns_to_a_process_that_stops_is_not_begun():
    """Nobody would stop it any more."""
    share = Share(lambda partition: FakeWork())  # type: ignore[arg-type,return-value]
    share.take(places(1))
    (work,) = share.works.values()
    share.stop(patience_s=0)
    share.take(places(1, 2))
    work.end("stopped", initialized_s=0.0)  # type: ignore[attr-defined]
    share.tick(RETRY_S + 1)
    assert list(share.works.values()) == [work] and work.is_stopped  # type: ignore[attr-defined]


# Progress


def test_how_far_a_partition_is_behind():
    progress = Progress(next_offset=5, source_end=9)
    assert progress.behind_ms(10_000) is None, "nothing is copied yet"
    progress.copied_until_ms = 7_000
    assert (progress.lag, progress.behind_ms(10_000)) == (4, 3_000)
    progress.next_offset = 9
    assert (progress.lag, progress.behind_ms(10_000)) == (0, 0)


def test_why_a_partition_does_not_copy_is_said_once(capsys):
    lines = Lines(False, Numbers(METRICS))
    facts = {"source": "west", "target": "east", "partitions": 2, "records": 7, "bytes": 2_500_000}
    facts |= {"transactions": 1, "lag": 4, "behind_ms": 1500, "not_copying": {"t-0": "stopped: why"}}
    for kind in ("progress", "progress", "end"):
        lines.tell({"event": kind, "ok": False, **facts})
    found = capsys.readouterr()
    line = "west to east: 7 records, 2.5 MB, 2 partitions, lag 4 (1.5 s), 1 not copying\n"
    assert found.out == 3 * line + "Not everything could be copied.\n"
    assert found.err == 2 * "t-0: stopped: why\n"


def test_metrics_have_all_digits():
    metrics = Numbers(METRICS)
    metrics.set("odradek_mirror_bytes_total", 123_456_789_012, source="west")
    metrics.set("odradek_mirror_behind_seconds", 1.25, source="west")
    assert 'odradek_mirror_bytes_total{source="west"} 123456789012\n' in metrics.text()
    assert 'odradek_mirror_behind_seconds{source="west"} 1.25\n' in metrics.text()
    names = re.findall(r"odradek_mirror_\w+", (DOCS / "METRICS.md").read_text())
    assert set(names) == set(METRICS), "docs/METRICS.md lists them"


# Upkeep


def test_what_the_target_needs():
    wanted = {
        "new": TopicFacts(2, {"retention.ms": "1", "min.insync.replicas": "2"}),
        "few": TopicFacts(3),
        "same": TopicFacts(1, {"retention.ms": "1"}),
        "many": TopicFacts(1, {"segment.ms": "5"}),
    }
    present = {
        "few": TopicFacts(2, {"cleanup.policy": "compact"}),
        "same": TopicFacts(1, {"retention.ms": "1", "unclean.leader.election.enable": "true"}),
        "many": TopicFacts(4, {"segment.ms": "6", "retention.bytes": "7"}),
    }
    changes = needed(wanted, present, ["retention.bytes"])
    assert changes.create == {"new": TopicFacts(2, {"retention.ms": "1"})}
    assert changes.grow == {"few": 3}
    assert changes.alter == {"few": {"cleanup.policy": None}, "many": {"segment.ms": "5"}}
    assert changes.told()[:2] == ["create new with 2 partitions", "give few 3 partitions"]
    assert not needed({}, present, [])


# Protocol and positions


def test_pauses_grow_while_a_cluster_is_away():
    protocol, pauses = CopyProtocol(Copy("west", "orders", 0), "west.orders"), []
    protocol.start()
    for _ in range(9):
        step = protocol.step(Away("no broker"))
        assert isinstance(step, Pause)
        pauses.append(step.seconds)
        assert isinstance(protocol.step(Succeeded()), Initialize)
    assert pauses[:3] == [1.0, 2.0, 4.0] and pauses[-1] == 30.0


def position_at(next_offset: int) -> Position:
    return Position("source", "target", 0, next_offset, 0, 10, 10, 1)


@pytest.mark.parametrize(
    ("found", "gone", "why", "begins_at"),
    [
        pytest.param(
            Found(position_at(100), "source", "target", 130, 150, True),
            None,
            "begins at 130",
            130,
            id="start",
        ),
        pytest.param(
            Found(position_at(100), "source", "target", 0, 120, True),
            OutOfRange(0, 60),
            "an unclean election",
            60,
            id="end",
        ),
        pytest.param(
            Found(position_at(100), "source", "target", 0, 150, True),
            OutOfRange(120, 150),
            "begins at 120",
            120,
            id="late",
        ),
    ],
)
def test_records_that_are_gone_are_told_or_accepted(found, gone, why, begins_at):
    for accepts in (False, True):
        protocol = CopyProtocol(Copy("west", "orders", 0), "west.orders", accepts_loss=accepts)
        protocol.start()
        protocol.step(Succeeded())
        step = protocol.step(found)
        if gone is not None:
            assert step == Fetch(100, -1)
            step = protocol.step(gone)
        if accepts:
            assert step == Fetch(begins_at, -1)
        else:
            assert isinstance(step, Stop) and why in str(step.error) and "--accept-loss" in str(step.error)


def test_positions_of_another_version_are_refused():
    copy = Copy("west", "orders", 0)
    with pytest.raises(UnreadablePosition, match="has format 9, this version reads 1"):
        decode_position(copy, b'{"format": 9}')
    with pytest.raises(UnreadablePosition):
        decode_position(copy, b"no JSON")
    with pytest.raises(UnreadablePosition):
        decode_key(None)
