"""Every API, one row for each. ApiVersions is derived from this table, so it cannot lie.

An API is served in all versions that Kafka has, unless its row says otherwise. A row costs nothing but itself: neither
handlers nor messages are imported for it.

Where access does not divide by item, a row names a function of the API's module: listings that hide what the caller may
not see, and APIs that ask for one kind of access or else for another. docs/ARCHITECTURE.md ("Access") lists them.
"""

from collections.abc import Mapping
from typing import Any

from odradek.apis.row import (
    NEVER,
    Access,
    Api,
    Handling,
    Items,
    ListenerKind,
    Need,
    Operation,
    Resource,
)
from odradek.wire.messages.index import SCHEMAS, Schema

BROKER, CONTROLLER = ListenerKind.BROKER, ListenerKind.CONTROLLER
BROKERS, CONTROLLERS, BOTH = (BROKER,), (CONTROLLER,), (BROKER, CONTROLLER)
AT_ONCE, WAITS, IN_STEPS = Handling.AT_ONCE, Handling.WAITS, Handling.IN_STEPS
TOPIC, GROUP, CLUSTER, TRANSACTION = (
    Resource.TOPIC,
    Resource.GROUP,
    Resource.CLUSTER,
    Resource.TRANSACTIONAL_ID,
)
NO_OFFSET = NO_NODE = NO_EPOCH = -1

# --- access ---

ANYBODY = Access()


def _on_cluster(operation: Operation) -> Access:
    return Access((Need(operation, CLUSTER),))


def _on_group(operation: Operation) -> Access:
    return Access((Need(operation, GROUP, "group_id"),))


def _on_items(operation: Operation, resource: Resource | None) -> Access:
    return Access((Need(operation, resource),))


EITHER_OR = Access(function="access")
LISTING = Access(hides="hide")
NAMED_OR_LISTED = Access(function="access", hides="hide")


CLUSTER_ACTION = _on_cluster(Operation.CLUSTER_ACTION)
ALTER_CLUSTER = _on_cluster(Operation.ALTER)
DESCRIBE_CLUSTER = _on_cluster(Operation.DESCRIBE)
READ_GROUP = _on_group(Operation.READ)
WRITE_TRANSACTION = Need(Operation.WRITE, TRANSACTION, "transactional_id")

# --- items ---


def _same(*fields: str) -> dict[str, str]:
    return {field: field for field in fields}


def _partitions(name: str = "partition_index", **values: Any) -> Items:
    return Items("partitions", "partitions", {"partition_index": name}, values=values)


def _indexes(response: str = "partitions", name: str = "partition_index", **values: Any) -> Items:
    """The partitions of a topic, which a request lists as plain numbers."""
    request = "partition_indexes" if response == "partitions" else "partitions"
    return Items(response, request, {name: ""}, values=values)


def _topics(
    *names: str, inner: Items | None = None, response: str = "topics", request: str = "topics", **more: Any
) -> Items:
    return Items(response, request, _same(*(names or ("name",))), inner, TOPIC, **more)


def _resources(response: str) -> tuple[Items, ...]:
    return (Items(response, "resources", _same("resource_type", "resource_name")),)


def _groups(response: str, request: str) -> tuple[Items, ...]:
    return (Items(response, request, {"group_id": ""}, None, GROUP),)


# --- rows ---

_BY_NAME: dict[str, Schema] = {schema.name: schema for schema in SCHEMAS.values()}


def _api(
    name: str,
    listeners: tuple[ListenerKind, ...],
    handling: Handling,
    access: Access,
    *items: Items,
    module: str = "",
    controller_module: str = "",
    max_version: int | None = None,
    advertised_min_version: int | None = None,
    copied: tuple[str, ...] = (),
    values: Mapping[str, Any] = {},
    is_forwarded: bool = False,
    before_authentication: bool = False,
    waits_by_design: bool = False,
) -> Api:
    schema = _BY_NAME[name]
    modules = dict.fromkeys(listeners, module or schema.module)
    if controller_module:
        modules[CONTROLLER] = controller_module
    return Api(
        schema.key,
        name,
        modules,
        schema.min_version,
        schema.max_version if max_version is None else max_version,
        schema.min_version if advertised_min_version is None else advertised_min_version,
        handling,
        access,
        items,
        copied,
        values,
        is_forwarded,
        before_authentication,
        waits_by_design,
    )


def _controlled(name: str, access: Access, *items: Items, listeners: tuple[ListenerKind, ...] = BOTH) -> Api:
    """An API on which the active controller decides, however a client reaches it."""
    return _api(name, listeners, WAITS, access, *items, is_forwarded=listeners is BOTH)


_ROWS = (
    # --- records ---
    _api(
        "Produce",
        BROKERS,
        AT_ONCE,
        Access((WRITE_TRANSACTION, Need(Operation.WRITE, TOPIC)), asked_by_handler=BROKERS),
        _topics(
            "name",
            "topic_id",
            inner=Items(
                "partition_responses", "partition_data", _same("index"), values={"base_offset": NO_OFFSET}
            ),
            response="responses",
            request="topic_data",
        ),
        module="produce.handler",
        # KAFKA-18659: with a higher minimum, older librdkafka stops compressing without a word.
        advertised_min_version=0,
    ),
    _api(
        "Fetch",
        BOTH,
        AT_ONCE,
        EITHER_OR._replace(asked_by_handler=BROKERS),
        _topics(
            "topic",
            "topic_id",
            inner=_partitions("partition", high_watermark=NO_OFFSET),
            response="responses",
            refused_until=12,
        ),
        module="fetch.handler",
        controller_module="fetch_metadata",  # a controller is asked for the metadata log, and for no other
        copied=("session_id",),
        waits_by_design=True,
    ),
    _api(
        "ListOffsets", BROKERS, IN_STEPS, _on_items(Operation.DESCRIBE, TOPIC), _topics(inner=_partitions())
    ),
    _api(
        "DeleteRecords",
        BROKERS,
        IN_STEPS,
        _on_items(Operation.DELETE, TOPIC),
        _topics(inner=_partitions(low_watermark=NO_OFFSET)),
    ),
    _api(
        "OffsetForLeaderEpoch",
        BROKERS,
        IN_STEPS,
        EITHER_OR,
        _topics("topic", inner=Items("partitions", "partitions", _same("partition"))),
    ),
    _api(
        "DescribeProducers",
        BROKERS,
        IN_STEPS,
        _on_items(Operation.READ, TOPIC),
        _topics(inner=_indexes()),
    ),
    # --- what there is ---
    _api("Metadata", BROKERS, IN_STEPS, EITHER_OR._replace(says_more=True), _topics("name", "topic_id")),
    _api("DescribeTopicPartitions", BROKERS, IN_STEPS, EITHER_OR, _topics()),
    _api("DescribeCluster", BOTH, AT_ONCE, EITHER_OR, controller_module="describe_controllers"),
    _api("DescribeLogDirs", BROKERS, IN_STEPS, DESCRIBE_CLUSTER),
    _api("ApiVersions", BOTH, AT_ONCE, ANYBODY, before_authentication=True),
    _api("SaslHandshake", BOTH, WAITS, ANYBODY, before_authentication=True),
    _api("SaslAuthenticate", BOTH, WAITS, ANYBODY, before_authentication=True),
    # --- topics and settings ---
    _controlled("CreateTopics", NAMED_OR_LISTED, _topics()),
    _controlled(
        "DeleteTopics",
        _on_items(Operation.DELETE, TOPIC),
        _topics("name", "topic_id", response="responses"),
        Items("responses", "topic_names", {"name": ""}, None, TOPIC),
    ),
    _controlled("CreatePartitions", _on_items(Operation.ALTER, TOPIC), _topics(response="results")),
    _api(
        "DescribeConfigs",
        BOTH,
        IN_STEPS,
        _on_items(Operation.DESCRIBE_CONFIGS, None),
        *_resources("results"),
    ),
    _controlled("AlterConfigs", _on_items(Operation.ALTER_CONFIGS, None), *_resources("responses")),
    _controlled(
        "IncrementalAlterConfigs", _on_items(Operation.ALTER_CONFIGS, None), *_resources("responses")
    ),
    _api("ListConfigResources", BROKERS, AT_ONCE, _on_cluster(Operation.DESCRIBE_CONFIGS)),
    # --- users ---
    _controlled(
        "AlterUserScramCredentials",
        ALTER_CLUSTER,
        Items("results", "upsertions", {"user": "name"}),
        Items("results", "deletions", {"user": "name"}),
    ),
    _api(
        "DescribeUserScramCredentials",
        BROKERS,
        IN_STEPS,
        DESCRIBE_CLUSTER,
        Items("results", "users", {"user": "name"}, refused_until=NEVER),
    ),
    # --- who may do what ---
    _controlled("CreateAcls", ALTER_CLUSTER, Items("results", "creations", {})),
    _controlled("DeleteAcls", ALTER_CLUSTER, Items("filter_results", "filters", {})),
    _api("DescribeAcls", BOTH, IN_STEPS, DESCRIBE_CLUSTER),
    # --- quotas ---
    _controlled(
        "AlterClientQuotas",
        _on_cluster(Operation.ALTER_CONFIGS),
        Items("entries", "entries", _same("entity")),
    ),
    _api(
        "DescribeClientQuotas",
        BROKERS,
        IN_STEPS,
        _on_cluster(Operation.DESCRIBE_CONFIGS),
        values={"entries": None},
    ),
    # --- replicas and brokers ---
    _controlled(
        "ElectLeaders",
        ALTER_CLUSTER,
        _topics(
            "topic",
            inner=_indexes("partition_result", "partition_id"),
            response="replica_election_results",
            request="topic_partitions",
        ),
    ),
    _controlled(
        "AlterPartitionReassignments", ALTER_CLUSTER, _topics(inner=_partitions(), response="responses")
    ),
    # Its partitions have no code, only the response has.
    _controlled("ListPartitionReassignments", DESCRIBE_CLUSTER, _topics(inner=_indexes())),
    _controlled("UpdateFeatures", ALTER_CLUSTER),
    _controlled("UnregisterBroker", ALTER_CLUSTER),
    _controlled("AlterPartition", CLUSTER_ACTION, listeners=CONTROLLERS),
    _controlled("AssignReplicasToDirs", CLUSTER_ACTION, listeners=CONTROLLERS),
    _controlled("BrokerRegistration", CLUSTER_ACTION, listeners=CONTROLLERS),
    _controlled("BrokerHeartbeat", CLUSTER_ACTION, listeners=CONTROLLERS),
    _controlled("AllocateProducerIds", CLUSTER_ACTION, listeners=CONTROLLERS),
    _controlled("ControllerRegistration", CLUSTER_ACTION, listeners=CONTROLLERS),
    _api(
        "GetReplicaLogInfo",
        BROKERS,
        IN_STEPS,
        CLUSTER_ACTION,
        _topics(
            "topic_id",
            inner=Items(
                "partition_log_info", "partitions", {"partition": ""}, values={"log_end_offset": NO_OFFSET}
            ),
            response="topic_partition_log_info_list",
            request="topic_partitions",
        ),
    ),
    # --- the quorum ---
    _api("Envelope", CONTROLLERS, IN_STEPS, CLUSTER_ACTION),
    _api("Vote", CONTROLLERS, AT_ONCE, CLUSTER_ACTION),
    _api("BeginQuorumEpoch", CONTROLLERS, AT_ONCE, CLUSTER_ACTION),
    _api("EndQuorumEpoch", CONTROLLERS, AT_ONCE, CLUSTER_ACTION),
    _api("FetchSnapshot", CONTROLLERS, AT_ONCE, CLUSTER_ACTION),
    _controlled("DescribeQuorum", DESCRIBE_CLUSTER),
    _controlled("AddRaftVoter", ALTER_CLUSTER),
    _controlled("RemoveRaftVoter", ALTER_CLUSTER),
    _api("UpdateRaftVoter", CONTROLLERS, WAITS, CLUSTER_ACTION),
    # --- groups ---
    _api(
        "FindCoordinator",
        BROKERS,
        WAITS,
        EITHER_OR,
        Items("coordinators", "coordinator_keys", {"key": ""}, values={"node_id": NO_NODE, "port": NO_NODE}),
        values={"node_id": NO_NODE, "port": NO_NODE},
    ),
    _api("JoinGroup", BROKERS, AT_ONCE, READ_GROUP, waits_by_design=True, values={"protocol_name": None}),
    _api("SyncGroup", BROKERS, AT_ONCE, READ_GROUP, waits_by_design=True),
    _api("Heartbeat", BROKERS, AT_ONCE, READ_GROUP),
    _api(
        "LeaveGroup",
        BROKERS,
        IN_STEPS,
        READ_GROUP,
        Items("members", "members", _same("member_id"), refused_until=NEVER),
    ),
    _api("ConsumerGroupHeartbeat", BROKERS, AT_ONCE, READ_GROUP),
    _api(
        "DescribeGroups",
        BROKERS,
        IN_STEPS,
        _on_items(Operation.DESCRIBE, GROUP),
        *_groups("groups", "groups"),
    ),
    _api(
        "ConsumerGroupDescribe",
        BROKERS,
        IN_STEPS,
        _on_items(Operation.DESCRIBE, GROUP)._replace(hides="hide"),
        *_groups("groups", "group_ids"),
    ),
    _api(
        "DeleteGroups",
        BROKERS,
        IN_STEPS,
        _on_items(Operation.DELETE, GROUP),
        *_groups("results", "groups_names"),
    ),
    _api(
        "ListGroups",
        BROKERS,
        IN_STEPS,
        LISTING,
        Items("groups", "", _same("group_id"), None, GROUP, refused_until=NEVER),
    ),
    _api(
        "OffsetCommit",
        BROKERS,
        IN_STEPS,
        Access((Need(Operation.READ, GROUP, "group_id"), Need(Operation.READ, TOPIC))),
        _topics("name", "topic_id", inner=_partitions()),
    ),
    _api(
        "OffsetFetch",
        BROKERS,
        IN_STEPS,
        NAMED_OR_LISTED,
        _topics(inner=_indexes(committed_offset=NO_OFFSET), refused_until=1),
        Items(
            "groups",
            "groups",
            _same("group_id"),
            _topics(
                "name",
                "topic_id",
                inner=_indexes(committed_offset=NO_OFFSET)._replace(refused_until=NEVER),
                refused_until=NEVER,
            ),
            GROUP,
        ),
    ),
    _api(
        "OffsetDelete",
        BROKERS,
        IN_STEPS,
        Access((Need(Operation.DELETE, GROUP, "group_id"), Need(Operation.READ, TOPIC))),
        _topics(inner=_partitions(), refused_until=NEVER),
    ),
    # --- transactions ---
    _api(
        "InitProducerId",
        BROKERS,
        AT_ONCE,
        EITHER_OR,
        # Version 6 is for two-phase commit (KIP-939), which Kafka itself does not serve yet.
        max_version=5,
        values={"producer_epoch": NO_EPOCH},
    ),
    _api(
        "AddPartitionsToTxn",
        BROKERS,
        IN_STEPS,
        EITHER_OR._replace(all_or_none=True),
        _topics(
            inner=_indexes("results_by_partition"),
            response="results_by_topic_v3_and_below",
            request="v3_and_below_topics",
            refused_until=3,
        ),
        Items(
            "results_by_transaction",
            "transactions",
            _same("transactional_id"),
            None,
            TRANSACTION,
            refused_until=NEVER,
        ),
    ),
    _api(
        "AddOffsetsToTxn",
        BROKERS,
        AT_ONCE,
        Access((WRITE_TRANSACTION, Need(Operation.READ, GROUP, "group_id"))),
    ),
    _api("EndTxn", BROKERS, AT_ONCE, Access((WRITE_TRANSACTION,))),
    _api(
        "TxnOffsetCommit",
        BROKERS,
        IN_STEPS,
        Access(
            (WRITE_TRANSACTION, Need(Operation.READ, GROUP, "group_id"), Need(Operation.READ, TOPIC)),
        ),
        _topics(inner=_partitions()),
    ),
    _api(
        "WriteTxnMarkers",
        BROKERS,
        IN_STEPS,
        EITHER_OR,
        Items("markers", "markers", _same("producer_id"), _topics(inner=_indexes())),
    ),
    _api(
        "DescribeTransactions",
        BROKERS,
        IN_STEPS,
        _on_items(Operation.DESCRIBE, TRANSACTION)._replace(hides="hide"),
        Items("transaction_states", "transactional_ids", {"transactional_id": ""}, None, TRANSACTION),
    ),
    _api(
        "ListTransactions",
        BROKERS,
        IN_STEPS,
        LISTING,
        Items("transaction_states", "", _same("transactional_id"), None, TRANSACTION, refused_until=NEVER),
    ),
)

APIS: Mapping[int, Api] = {api.key: api for api in _ROWS}
SERVED: Mapping[ListenerKind, Mapping[int, Api]] = {
    kind: {api.key: api for api in _ROWS if kind in api.modules} for kind in ListenerKind
}


def named(name: str) -> Api:
    return APIS[_BY_NAME[name].key]


def api_name(api_key: int) -> str:
    schema = SCHEMAS.get(api_key)
    return schema.name if schema is not None else f"api key {api_key}"


def name_of(api_key: int, version: int) -> str:
    """CreateTopics v7"""
    return f"{api_name(api_key)} v{version}"


def is_served(api_key: int, version: int, kind: ListenerKind = BROKER) -> bool:
    api = SERVED[kind].get(api_key)
    return api is not None and api.min_version <= version <= api.max_version


def why_not_served(api_key: int, version: int, kind: ListenerKind = BROKER) -> str:
    name, api = name_of(api_key, version), APIS.get(api_key)
    if api is None:
        return f"{name} is not served"
    if kind in api.modules:
        served = f"v{api.min_version} to v{api.max_version}"
        return f"{name} is not served, only {served}: its client is too old or too new"
    if CONTROLLER in api.modules:
        return f"{name} is served on the controller's listener only, and this is a broker's"
    return f"{name} is served on the broker's listeners only, and this is the controller's"
