"""Settings that may be changed while the broker runs: each takes effect without a restart, or says that it has none."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from odradek.config.broker import BrokerConfig
from odradek.config.broker_definitions import BROKER_DEFINITIONS
from odradek.config.definition import ConfigError, ConfigSource, ConfigType, Definition, Scope, to_text
from odradek.controller.configs import STORES
from odradek.controller.features import SUPPORTED_FEATURES
from odradek.errors import ErrorCode
from odradek.metadata.image import ResourceType
from odradek.metadata.records import ConfigRecord
from odradek.records.record import Record, build_batch
from odradek.services.partitions import integrity
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from odradek.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.in_process import InProcess
from tests.protocol.raw import Closed, Raw
from tests.support import running_broker

TIMEOUT_S = 30
SET, DELETE = 0, 1
# Certificates change by listener: see tests/real_clients/test_tls_clients.py.
DYNAMIC = sorted(
    name
    for name, each in BROKER_DEFINITIONS.items()
    if each.scope is not Scope.READ_ONLY and name not in STORES
)
NO_EFFECT = ("without effect", "Used once", "With remote storage")


def run(data_dir: Path, scenario: Callable[[InProcess], Awaitable[None]], **settings: str) -> None:
    named = {name.replace("_", "."): value for name, value in settings.items()}

    async def main() -> None:
        async with InProcess(str(data_dir), settings=named) as broker:
            await scenario(broker)

    asyncio.run(asyncio.wait_for(main(), TIMEOUT_S))


def alter_request(
    name: str, value: str | None, resource: str = "", kind: int = ResourceType.BROKER
) -> IncrementalAlterConfigsRequest:
    operation = DELETE if value is None else SET
    return IncrementalAlterConfigsRequest(
        [AlterConfigsResource(kind, resource, [AlterableConfig(name, operation, value)])]
    )


async def alter(broker: InProcess, name: str, value: str | None, resource: str = "") -> tuple[int, str]:
    (response,) = (await broker.ask(alter_request(name, value, resource), 1)).responses
    return response.error_code, response.error_message or ""


# --- each of them ---


def in_effect(broker: InProcess) -> list[Any]:
    """Return what the running parts go by: the places where settings are applied."""
    parts = broker.broker
    partition = parts.replicas.get("t", 0)
    server, store, compactor = parts._server, parts._store, parts._compactor
    return [
        partition.log.config,
        partition.settings.rules,
        partition.settings.min_insync_replicas,
        partition.settings.sync_commit,
        server._bounds,
        server._new_connections.per_second,
        store.upkeep.producer_expiration_ms,
        compactor._cleaner.bytes_per_second,
        compactor._cleaner.map_bytes,
        compactor._config["log.cleaner.backoff.ms"],
        [parts._integrity._config[name] for name in (integrity.RATE, integrity.INTERVAL)],
        parts.services.partitions.leader_quota.bytes_per_second,
        parts._replication.quota.bytes_per_second,
        parts.services.coordination.verification._is_required,
        parts._lifecycle._is_cordoned,
        parts._disk.room.reserve_bytes,
    ]


def another_value(definition: Definition) -> str:
    """One that the setting accepts, and that is neither its default nor an extreme."""
    given = {
        "log.cleanup.policy": "compact",
        "compression.type": "gzip",
        "log.message.timestamp.type": "LogAppendTime",
        "max.connections.per.ip.overrides": "10.1.2.3:7",
        "cordoned.log.dirs": "*",
    }
    if definition.name in given:
        return given[definition.name]
    if definition.type is ConfigType.BOOLEAN:
        return to_text(not definition.default) or ""
    choices = ("0.25",) if definition.type is ConfigType.DOUBLE else ("5", "2000000")
    for text in choices:
        with suppress(ConfigError):
            definition.parse(text)
            return text
    raise AssertionError(f"no value is known for {definition.name}")


def owner_of(broker: InProcess, definition: Definition) -> str:
    """Whose setting it is: this broker's, or that of all."""
    return str(broker.broker.node_id) if definition.scope is Scope.PER_BROKER else ""


@pytest.mark.parametrize("name", DYNAMIC)
def test_is_applied_or_says_that_it_has_no_effect(tmp_path: Path, name: str) -> None:
    """A new dynamic setting fails here until something in `in_effect` follows it."""
    definition = BROKER_DEFINITIONS[name]
    value = another_value(definition)
    codec = name.split(".")[1] if name.startswith("compression.") and name.endswith(".level") else "producer"

    async def scenario(broker: InProcess) -> None:
        await broker.create_topic("t")
        before, owner = in_effect(broker), owner_of(broker, definition)
        assert await alter(broker, name, value, owner) == (0, "")
        assert broker.broker.config[name] == definition.parse(value)
        changed = in_effect(broker) != before
        has_none = any(phrase in definition.documentation for phrase in NO_EFFECT)
        assert changed != has_none, "either it is applied or its documentation says that it is not"
        back = "1" if name == "min.insync.replicas" else None  # which cannot be deleted
        assert await alter(broker, name, back, owner) == (0, "")
        assert in_effect(broker) == before

    run(tmp_path, scenario, compression_type=codec)


def test_what_was_set_before_a_restart_is_in_effect_after_it(tmp_path: Path) -> None:
    async def before(broker: InProcess) -> None:
        await broker.create_topic("t")  # a cordoned broker gets none
        for name in DYNAMIC:
            definition = BROKER_DEFINITIONS[name]
            owner = owner_of(broker, definition)
            assert await alter(broker, name, another_value(definition), owner) == (0, "")
        effects.append(in_effect(broker))

    async def after(broker: InProcess) -> None:
        effects.append(in_effect(broker))

    effects: list[Any] = []
    run(tmp_path, before)
    run(tmp_path, after)
    assert effects[0] == effects[1]


# --- what is refused ---


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("num.partitions", "3", "Only a restart"),
        ("connections.max.idle.ms", "1000", "Only a restart"),
        ("offsets.topic.segment.bytes", "2000000", "Only a restart"),
        ("listener.name.plaintext.max.connections.per.ip", "5", "Only a restart"),
        ("listener.name.plaintext.max.connections", "-5", "must be at least 0"),
        ("log.segment.bytes", "1000", "must be at least 1048576"),
        ("log.retention.ms", "0", "must be -1 (no limit) or at least 1"),
        ("log.cleaner.max.compaction.lag.ms", "5", "is more than max.compaction.lag.ms"),
        ("max.connections.per.ip.overrides", "10.0.0.1", "must be a list of address:count"),
        ("max.connections", "-1", "must be at least 0"),
    ],
)
@pytest.mark.parametrize("resource", ["", "1"])
def test_what_could_not_take_effect_is_refused(
    tmp_path: Path, name: str, value: str, reason: str, resource: str
) -> None:
    async def scenario(broker: InProcess) -> None:
        code, message = await alter(broker, name, value, resource)
        assert code == ErrorCode.INVALID_REQUEST
        assert reason in message
        await broker.create_topic("t")

    run(tmp_path, scenario, log_cleaner_min_compaction_lag_ms="10")


def test_what_is_wrong_only_together_with_another_layer_is_refused(tmp_path: Path) -> None:
    async def scenario(broker: InProcess) -> None:
        assert await alter(broker, "log.cleaner.min.compaction.lag.ms", "10") == (0, "")
        code, message = await alter(broker, "log.cleaner.max.compaction.lag.ms", "5", resource="1")
        assert (code, "is more than" in message) == (ErrorCode.INVALID_REQUEST, True)
        assert await alter(broker, "log.cleaner.max.compaction.lag.ms", "15", resource="1") == (0, "")

    run(tmp_path, scenario)


def test_a_wrong_dynamic_setting_from_an_older_broker_keeps_none_from_starting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def before(broker: InProcess) -> None:
        await broker.create_topic("t")
        kind = ResourceType.BROKER
        wrong = [
            ConfigRecord(kind, "", "log.retention.ms", "0"),
            ConfigRecord(kind, "", "log.segment.bytes", "12"),
            ConfigRecord(kind, "1", "log.cleaner.max.compaction.lag.ms", "5"),
            ConfigRecord(kind, "1", "max.connections", "77"),
        ]
        broker.broker.metadata._commit([*wrong])

    async def after(broker: InProcess) -> None:
        assert broker.broker.config["max.connections"] == 77
        assert broker.broker.replicas.get("t", 0).log.config.segment_bytes == 1 << 30
        await broker.create_topic("u")

    settings = {"log_cleaner_min_compaction_lag_ms": "10"}
    run(tmp_path, before, **settings)
    caplog.clear()
    run(tmp_path, after, **settings)
    assert "Invalid value 0 for configuration log.retention.ms" in caplog.text


# --- what they do ---


def ask_to_alter(raw: Raw, name: str, value: str) -> None:
    (response,) = raw.ask(alter_request(name, value)).responses
    assert response.error_code == 0, response


def is_served(raw: Raw) -> bool:
    try:
        return bool(raw.ask(ApiVersionsRequest(), 0).error_code == 0)
    except (Closed, BrokenPipeError):
        return False


def test_max_connections(tmp_path: Path) -> None:
    with running_broker(tmp_path, max_connections="3") as broker:
        first, second, admin = (Raw(broker.bootstrap) for _ in range(3))
        assert is_served(first)
        assert is_served(second)
        with Raw(broker.bootstrap) as waiting:
            waiting.send(ApiVersionsRequest(), 0)  # in the backlog: the broker has not accepted it
            waiting.socket.settimeout(0.2)
            with pytest.raises(TimeoutError):
                waiting.socket.recv(1)
            ask_to_alter(admin, "max.connections", "4")
            waiting.socket.settimeout(TIMEOUT_S)
            assert waiting.receive().error_code == 0
        assert is_served(second)
        assert is_served(admin)
        ask_to_alter(admin, "max.connections", "2")
        assert first.is_closed(), "the one that was silent for longest gives way"
        assert is_served(second)
        assert is_served(admin)
        second.socket.close()
        with Raw(broker.bootstrap) as next_one:
            assert is_served(next_one)
        admin.socket.close()


def test_max_connections_of_one_listener(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker, Raw(broker.bootstrap) as admin:
        ask_to_alter(admin, "listener.name.plaintext.max.connections", "1")
        with Raw(broker.bootstrap) as waiting:
            waiting.send(ApiVersionsRequest(), 0)
            waiting.socket.settimeout(0.2)
            with pytest.raises(TimeoutError):
                waiting.socket.recv(1)
            ask_to_alter(admin, "listener.name.plaintext.max.connections", "2")
            waiting.socket.settimeout(TIMEOUT_S)
            assert waiting.receive().error_code == 0


def test_max_connections_per_ip_and_its_overrides(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker, Raw(broker.bootstrap) as admin:
        ask_to_alter(admin, "max.connections.per.ip", "1")
        with Raw(broker.bootstrap) as refused:
            assert refused.is_closed()
        ask_to_alter(admin, "max.connections.per.ip.overrides", "10.0.0.1:9,127.0.0.1:2")
        with Raw(broker.bootstrap) as second:
            assert is_served(second)
            with Raw(broker.bootstrap) as refused:
                assert refused.is_closed()
        ask_to_alter(admin, "max.connections.per.ip", "10")
        ask_to_alter(admin, "max.connections.per.ip.overrides", "")
        with Raw(broker.bootstrap) as second, Raw(broker.bootstrap) as third:
            assert is_served(second)
            assert is_served(third)


def test_new_connections_over_their_rate_wait(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker, Raw(broker.bootstrap) as admin:
        ask_to_alter(admin, "max.connection.creation.rate", "20")
        clients = [Raw(broker.bootstrap) for _ in range(30)]
        for client in clients:
            client.send(ApiVersionsRequest(), 0)
        assert all(client.receive().error_code == 0 for client in clients), "none is refused"
        for client in clients:
            client.socket.close()


def test_producer_id_expiration(tmp_path: Path) -> None:
    async def scenario(broker: InProcess) -> None:
        await broker.create_topic("t", message_timestamp_type="LogAppendTime")
        records = bytes(
            build_batch([Record(0, 0, None, b"x")], producer_id=7, producer_epoch=0, base_sequence=0)
        )
        data = TopicProduceData(name="t", partition_data=[PartitionProduceData(0, records)])
        response = await broker.ask(ProduceRequest(None, -1, 30_000, [data]), 9)
        assert response.responses[0].partition_responses[0].error_code == 0
        producers = broker.broker.replicas.get("t", 0).log.producers
        broker.broker._maintenance.look_after_logs()
        assert 7 in producers.by_id
        assert await alter(broker, "producer.id.expiration.ms", "1") == (0, "")
        await asyncio.sleep(0.01)  # so long the producer has been silent
        broker.broker._maintenance.look_after_logs()
        assert 7 not in producers.by_id

    run(tmp_path, scenario)


def test_the_rest_of_the_cleaner_ends_when_it_is_made_shorter(tmp_path: Path) -> None:
    async def scenario(broker: InProcess) -> None:
        rounds = 0
        rested = asyncio.Event()
        compactor = broker.broker._compactor
        clean_one = compactor.clean_one

        async def counted() -> bool:
            nonlocal rounds
            rounds += 1
            if rounds >= 5:
                rested.set()
            return await clean_one()

        compactor.clean_one = counted  # type: ignore[method-assign]
        await asyncio.sleep(0)
        assert await alter(broker, "log.cleaner.backoff.ms", "1") == (0, "")
        await rested.wait()

    run(tmp_path, scenario, log_cleaner_backoff_ms="3600000")


def test_settings_of_a_group(tmp_path: Path) -> None:
    async def scenario(broker: InProcess) -> None:
        await broker.create_topic("t")
        await broker.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
        name = "consumer.heartbeat.interval.ms"

        async def interval_ms(member_epoch: int) -> int:
            request = ConsumerGroupHeartbeatRequest(
                "g", "member", member_epoch, None, None, 60_000, ["t"], topic_partitions=[]
            )
            response = await broker.ask(request, 0)
            assert response.error_code == 0, response
            found: int = response.heartbeat_interval_ms
            return found

        assert await interval_ms(0) == 5000
        request = alter_request(name, "7000", "g", ResourceType.GROUP)
        assert (await broker.ask(request, 1)).responses[0].error_code == 0
        assert await interval_ms(0) == 7000
        wanted = DescribeConfigsResource(ResourceType.GROUP, "g", [name])
        (described,) = (await broker.ask(DescribeConfigsRequest([wanted]), 4)).results
        assert [(entry.name, entry.value) for entry in described.configs] == [(name, "7000")]

    run(tmp_path, scenario)


def test_the_server_and_the_topic_hold_settings_to_the_same_limits() -> None:
    """A broker's setting that becomes a topic's is refused at start by the rule that would refuse the topic."""
    for name, text in (
        ("offsets.topic.segment.bytes", "1000"),
        ("transaction.state.log.segment.bytes", "1000"),
        ("share.coordinator.state.topic.segment.bytes", "1000"),
        ("offsets.topic.num.partitions", "20000"),
        ("num.partitions", "20000"),
        ("default.replication.factor", "0"),
        ("log.cleaner.min.compaction.lag.ms", "9223372036854775808"),
    ):
        with pytest.raises(
            ConfigError, match=re.escape(f"Invalid value {text} for configuration {name}: must be")
        ):
            BrokerConfig({name: text})
    with pytest.raises(ConfigError, match=re.escape("is more than max.compaction.lag.ms")):
        BrokerConfig({"log.cleaner.min.compaction.lag.ms": "6", "log.cleaner.max.compaction.lag.ms": "5"})


# --- the minimal ISR, which is one setting of the whole cluster ---


def test_the_minimal_isr_is_a_setting_of_all_brokers(tmp_path: Path) -> None:
    async def scenario(broker: InProcess) -> None:
        await broker.create_topic("t")
        described = await broker.ask(
            DescribeConfigsRequest(
                [
                    DescribeConfigsResource(ResourceType.TOPIC, "t", ["min.insync.replicas"]),
                    DescribeConfigsResource(ResourceType.BROKER, "1", ["min.insync.replicas"]),
                    DescribeConfigsResource(ResourceType.BROKER, "", None),
                ]
            ),
            4,
        )
        for result in described.results:
            ((name, value, source),) = [(one.name, one.value, one.config_source) for one in result.configs]
            assert (name, value, source) == (
                "min.insync.replicas",
                "2",
                ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
            )
        code, _ = await alter(broker, "min.insync.replicas", "1", resource="1")
        assert code == ErrorCode.INVALID_CONFIG
        assert await alter(broker, "min.insync.replicas", "1") == (0, "")
        assert broker.broker.replicas.get("t", 0).settings.min_insync_replicas == 1

    run(tmp_path, scenario, min_insync_replicas="2")


def test_a_node_says_that_its_own_minimal_isr_has_no_effect(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def nothing(broker: InProcess) -> None:
        pass

    run(tmp_path, nothing, min_insync_replicas="2")
    assert "has no effect" not in caplog.text
    run(tmp_path, nothing, min_insync_replicas="3")
    assert "min.insync.replicas=3 in the settings of this node has no effect" in caplog.text


def test_api_versions_names_the_features(tmp_path: Path) -> None:
    async def scenario(broker: InProcess) -> None:
        response = await broker.ask(ApiVersionsRequest("test", "1"), 4)
        supported = {one.name: (one.min_version, one.max_version) for one in response.supported_features}
        finalized = {one.name: one.max_version_level for one in response.finalized_features}
        assert supported == SUPPORTED_FEATURES
        assert finalized == {name: high for name, (_, high) in SUPPORTED_FEATURES.items()}
        assert response.finalized_features_epoch == broker.broker.metadata.image.offset

    run(tmp_path, scenario)


# --- names that nobody knows ---


def test_a_setting_that_nobody_knows_is_kept_listed_and_ignored(tmp_path: Path) -> None:
    resource = DescribeConfigsResource(ResourceType.BROKER, "1", ["some.plugin.url"])

    async def described(broker: InProcess) -> list[Any]:
        (response,) = (await broker.ask(DescribeConfigsRequest([resource], True, True), 4)).results
        return list(response.configs)

    async def scenario(broker: InProcess) -> None:
        assert await described(broker) == []
        assert await alter(broker, "some.plugin.url", "a secret?", "1") == (ErrorCode.NONE, "")
        assert await alter(broker, "message.max.bytes", "12345", "1") == (ErrorCode.NONE, "")

    async def later(broker: InProcess) -> None:
        assert broker.broker.config["message.max.bytes"] == 12345
        (entry,) = await described(broker)
        assert (entry.name, entry.value, entry.is_sensitive, entry.read_only) == (
            "some.plugin.url",
            None,
            True,
            True,
        )
        assert (entry.config_source, entry.config_type) == (ConfigSource.DYNAMIC_BROKER_CONFIG, 0)
        assert await alter(broker, "some.plugin.url", None, "1") == (ErrorCode.NONE, "")
        assert await described(broker) == []

    run(tmp_path, scenario)
    run(tmp_path, later)
