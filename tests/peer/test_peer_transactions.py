"""Transactions: Apache Kafka and our broker are asked the same things, and answer alike, by every protocol there is.

A client's protocol follows from the versions it speaks and from the finalized level of transaction.version; both
brokers are led through the levels.
"""

import json
import re
import uuid
from collections.abc import Iterator
from difflib import unified_diff
from pathlib import Path
from typing import Any

import pytest

from odradek.coordinators.routing import partition_of
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.index import SCHEMAS
from odradek.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.peer.exchange import Cluster, Versions, common_versions, compare, served_versions
from tests.peer.test_peer_tools import dump
from tests.peer.transaction_scripts import TRANSACTION_SCENARIOS, Producer, codes_in, start
from tests.support import RunningBroker, running_broker
from tools.peer.kafka import KafkaPeer

# Overdue transactions are looked for often; nothing waits for members of groups.
SETTINGS = {
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": "100",
    "group_initial_rebalance_delay_ms": "0",
}
FEATURE = "transaction.version"
SAFE_DOWNGRADE, UPGRADE = 2, 1

# The last versions before transaction.version 2.
BEFORE_RAISED_EPOCHS = {0: 11, 22: 5, 24: 3, 25: 3, 26: 4, 28: 4, 27: 1}

# Levels, and ages of clients. Clients that know newer versions do not use them below level 2: Kafka would refuse them
# at level 0, and at level 1 follow the version alone, where we follow the level, too.
PROTOCOLS = [(2, "newest"), (2, "before"), (2, "oldest"), (1, "before"), (0, "before"), (0, "oldest")]

# Differences that are meant, and why.
ACCEPTED = {
    r"Produce: no producer\.": "Kafka takes transactional records of no producer; we refuse them",
    r"Produce: no epoch\.": "Kafka asks the coordinator before it looks at the batch; we look first",
    r"Produce: to an internal topic": "the same",
    r"(Fetch|records): markers that came twice": "Kafka writes the second one, too; it changes nothing",
}


@pytest.fixture(scope="module")
def pair(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[KafkaPeer, RunningBroker]]:
    with (
        KafkaPeer(**SETTINGS) as kafka,
        running_broker(tmp_path_factory.mktemp("ours"), **SETTINGS) as ours,
    ):
        yield kafka, ours


@pytest.fixture(scope="module")
def common(pair: tuple[KafkaPeer, RunningBroker]) -> Versions:
    kafka, ours = pair
    return common_versions(served_versions(kafka.bootstrap), served_versions(ours.bootstrap))


@pytest.fixture(scope="module", params=PROTOCOLS, ids=lambda protocol: f"level {protocol[0]}, {protocol[1]}")
def age(request: pytest.FixtureRequest, pair: tuple[KafkaPeer, RunningBroker]) -> str:
    """Age of the clients. Both brokers have the level of transaction.version that goes with it."""
    level, age = request.param
    for broker in pair:
        cluster = Cluster(broker.bootstrap, lambda key: SCHEMAS[key].max_version)
        _finalize(cluster, level)
        cluster.close()
    return str(age)


def _finalize(cluster: Cluster, level: int) -> None:
    def is_there(response: object) -> bool:
        levels = {each.name: each.max_version_level for each in response.finalized_features}  # type: ignore[attr-defined]
        return levels.get(FEATURE, 0) == level

    if is_there(cluster.ask_quietly(ApiVersionsRequest("peer-test", "1"))):
        return
    for kind in (SAFE_DOWNGRADE, UPGRADE):
        update = UpdateFeaturesRequest(10_000, [FeatureUpdateKey(FEATURE, level, kind)])
        if codes_in(cluster.ask_quietly(update)) == {0}:
            break
    cluster.until(ApiVersionsRequest("peer-test", "1"), is_there)


def version_of(common: Versions, age: str, key: int) -> int:
    lowest, highest = common[key]
    if age == "oldest":
        return lowest
    return min(highest, BEFORE_RAISED_EPOCHS.get(key, highest)) if age == "before" else highest


@pytest.mark.parametrize("name", TRANSACTION_SCENARIOS)
def test_transactions_are_answered_alike(
    pair: tuple[KafkaPeer, RunningBroker], common: Versions, name: str, age: str
) -> None:
    scenario = TRANSACTION_SCENARIOS[name]
    if missing := [SCHEMAS[key].name for key in scenario.needs if key not in common]:
        pytest.skip(f"not served by both: {', '.join(missing)}")
    clusters = [Cluster(broker.bootstrap, lambda key: version_of(common, age, key)) for broker in pair]
    prefix = f"{name.replace('_', '')}-{uuid.uuid4().hex[:6]}"
    for cluster in clusters:
        scenario.script(cluster, prefix)
        cluster.close()
    is_accepted = re.compile("|".join(ACCEPTED) or "(?!)").search
    found = [difference for difference in compare(*clusters) if not is_accepted(difference)]
    assert not found, "\n" + "\n".join(found)


# --- the records of coordinators ---

HEADER = re.compile(
    r"baseOffset: .* producerId: (-?\d+) producerEpoch: (-?\d+) .* isTransactional: (\w+) isControl: (\w+)"
)
RECORD = re.compile(r"key: (\{.*\}) payload: (\{.*\})$")
MARKER = re.compile(r"endTxnMarker: .*$")
IDS = {"producerId", "previousProducerId", "nextProducerId"}


def test_coordinators_write_the_same_records(
    pair: tuple[KafkaPeer, RunningBroker], common: Versions, age: str
) -> None:
    """While transactions end in every way there is, in one partition of each of their topics."""
    name = f"recorded-{uuid.uuid4().hex[:6]}"
    producers = []
    for broker in pair:
        cluster = Cluster(broker.bootstrap, lambda key: version_of(common, age, key))
        producers.append(end_in_every_way(cluster, name))
        cluster.close()
    for topic, decoder in (
        ("__transaction_state", "--transaction-log-decoder"),
        ("__consumer_offsets", "--offsets-decoder"),
    ):
        theirs, written = (
            records_of(broker.data_dir / f"{topic}-{partition_of(name, 50)}", decoder, name, producer.id)
            for broker, producer in zip(pair, producers, strict=True)
        )
        assert theirs
        found = list(unified_diff(theirs, written, "Kafka", "ours", n=0, lineterm=""))
        assert not found, "\n" + "\n".join(found)


def end_in_every_way(cluster: Cluster, name: str) -> Producer:
    """The producer, which has begun again."""
    producer = start(cluster, name)
    for is_commit, offset in ((False, 7), (True, 8)):
        producer.send(name, b"x")
        producer.send(name, b"y", partition=1)
        producer.commit_offset(name, name, offset)
        producer.end(is_commit)
    producer.send(name, b"x")
    return producer.begin()


def records_of(directory: Path, decoder: str, name: str, producer_id: int) -> list[str]:
    """Return the records about a transactional id or a group of this name, as Kafka reads them, without times and
    ids.
    """
    plain = PlainRecord()
    lines, header, is_own_producer = [], "", False
    for line in dump(*directory.glob("*.log"), options=(decoder, "--print-data-log")).splitlines():
        if found := HEADER.match(line):
            is_own_producer = int(found[1]) == producer_id
            header = f"epoch {found[2]}, transactional {found[3]}, control {found[4]}"
        elif (marker := MARKER.search(line)) and is_own_producer:
            lines.append(f"{header}: {marker[0]}")
        elif (record := RECORD.search(line)) and f'"{name}"' in record[1]:
            lines.append(f"{header}: {record[1]} {plain(json.loads(record[2]))}")
    return lines


class PlainRecord:
    """A record without what must differ. Kafka writes partitions in the order of its hash maps, and the ids of topics
    only with offsets outside of transactions; we always do."""

    def __init__(self) -> None:
        self._numbers: dict[int, str] = {}

    def __call__(self, value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            return {name: self(inner, name) for name, inner in value.items() if name != "topicId"}
        if isinstance(value, list):
            return sorted((self(inner, name) for inner in value), key=str)
        if name in IDS and value >= 0:
            return self._numbers.setdefault(value, f"producer {len(self._numbers) + 1}")
        return "a time" if "timestamp" in name.lower() and int(value) >= 0 else value
