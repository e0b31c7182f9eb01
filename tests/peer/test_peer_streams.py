"""Kafka Streams with exactly_once_v2 on three of our brokers: a word count, killed on the way together with brokers.

The program keeps its counts in a store with a changelog topic, and regroups words by a repartition topic. It caches
nothing, so that every change of a count is a record: the counts of a word must be 1, 2, 3, ..., each once.
"""

from collections import Counter, defaultdict
from pathlib import Path

import pytest

from tests.peer.big_clients import (
    CLUSTER,
    Feed,
    Program,
    Progress,
    committed,
    create_topics,
    kill_both,
    running,
)
from tests.processes.nodes import BOTH, cluster

pytestmark = pytest.mark.timeout(900)


def settings(bootstrap: str, state: Path) -> dict[str, str]:
    return {
        "application.id": "word-count",
        "bootstrap.servers": bootstrap,
        "processing.guarantee": "exactly_once_v2",
        "state.dir": str(state),
        "replication.factor": "3",
        "num.stream.threads": "1",
        "commit.interval.ms": "100",
        "statestore.cache.max.bytes": "0",
        "session.timeout.ms": "10000",
        "auto.offset.reset": "earliest",
    }


def test_a_word_count_is_exact_through_kills(java_classes: Path, tmp_path: Path) -> None:
    with cluster(tmp_path, dict.fromkeys((1, 2, 3), BOTH), **CLUSTER) as nodes:
        create_topics(nodes.bootstrap, "lines", "counts")
        programs = [
            Program("odradek.WordCount", java_classes, home, settings(nodes.bootstrap, home / "state"))
            for home in (tmp_path / "first", tmp_path / "second")
        ]
        progress = Progress(nodes.bootstrap, "counts", *programs)
        with running(*programs):
            with Feed(nodes.bootstrap, "lines") as feed:
                progress.await_more()
                for program, node in zip(programs, nodes, strict=False):
                    kill_both(program, nodes, node, progress)
            words = Counter(
                word for lines in feed.written.values() for line in lines for word in line.split()
            )
            progress.await_records(words.total())
        progress.close()
        counts: dict[str, list[int]] = defaultdict(list)
        for records in committed(nodes.bootstrap, "counts").values():
            for _, word, count in records:
                counts[word].append(int(count))
        wrong = {word for word, count in words.items() if counts[word] != list(range(1, count + 1))}
        assert not wrong and counts.keys() == words.keys(), {word: counts[word] for word in sorted(wrong)[:3]}
