"""Both brokers are asked the same things; the responses are compared field by field."""

import re
import uuid

import pytest

from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.get_replica_log_info import GetReplicaLogInfoRequest
from odradek.wire.messages.index import SCHEMAS
from tests.peer import coordinator_scripts, quota_scripts  # noqa: F401, their scripts register themselves
from tests.peer.exchange import Cluster, Versions, common_versions, compare, served_versions
from tests.peer.scripts import SCENARIOS
from tests.support import RunningBroker
from tools.peer.kafka import KafkaPeer

# Differences that are meant, and why.
ACCEPTED = {
    r"Produce: garbage behind": "Kafka drops bytes behind a batch without a word; we refuse them",
    r"ListOffsets: what came through.*offset: Kafka 1, ours 0": "for the same reason",
    r"AlterClientQuotas: not a number": "Kafka takes it for a quota, which nothing ever exceeds; we refuse it",
    r"IncrementalAlterConfigs: bad operation": "Kafka answers UNKNOWN_SERVER_ERROR; we say what is wrong",
}


@pytest.fixture(scope="module")
def common(kafka: KafkaPeer, ours: RunningBroker) -> Versions:
    return common_versions(served_versions(kafka.bootstrap), served_versions(ours.bootstrap))


def test_what_we_serve_kafka_serves(kafka: KafkaPeer, ours: RunningBroker) -> None:
    theirs, served = served_versions(kafka.bootstrap), served_versions(ours.bootstrap)
    for api_key in sorted(theirs):
        if theirs[api_key] != served.get(api_key):
            name = SCHEMAS[api_key].name if api_key in SCHEMAS else f"API {api_key}"
            print(f"{name}: Kafka {theirs[api_key]}, ours {served.get(api_key, 'not served')}")
    served.pop(
        GetReplicaLogInfoRequest.API_KEY
    )  # Kafka's version is not stable; our controllers ask our brokers
    assert served.keys() <= theirs.keys()
    too_new = {key: served[key] for key in served if served[key][1] > theirs[key][1]}
    assert not too_new


@pytest.mark.parametrize("age", ["newest", "oldest"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_same_request_same_answer(
    kafka: KafkaPeer, ours: RunningBroker, common: Versions, name: str, age: str
) -> None:
    scenario = SCENARIOS[name]
    if missing := [SCHEMAS[key].name for key in scenario.needs if key not in common]:
        pytest.skip(f"not served by both: {', '.join(missing)}")
    place = 1 if age == "newest" else 0
    clusters = [Cluster(broker.bootstrap, lambda key: common[key][place]) for broker in (kafka, ours)]
    prefix = f"{name.replace('_', '')}-{uuid.uuid4().hex[:6]}"
    for cluster in clusters:
        scenario.script(cluster, prefix)
        cluster.close()
    is_accepted = re.compile("|".join(ACCEPTED)).search
    found = [difference for difference in compare(*clusters) if not is_accepted(difference)]
    assert not found, "\n" + "\n".join(found)


def test_api_versions_of_the_future_is_answered_in_version_0(kafka: KafkaPeer, ours: RunningBroker) -> None:
    responses = []
    for broker in (kafka, ours):
        cluster = Cluster(broker.bootstrap, lambda key: 0)
        request = ApiVersionsRequest("peer-test", "1")
        responses.append(cluster.ask_in(request, sent_as=99, read_as=0))
        cluster.close()
    theirs, answered = responses
    assert theirs.error_code == answered.error_code == 35
    assert [one.api_key for one in theirs.api_keys] == [18]
    assert [one.api_key for one in answered.api_keys] == [18]
