"""Every API that is served, and in which versions. ApiVersions is derived from these tables, so it cannot lie.

There are two of them. Clients, and brokers that talk to brokers, use the listeners of a broker; the replicas of the
quorum, and brokers that talk to the active controller, those of a controller. The split is Kafka's own.

Each API is in the module of its name: `handle(services, request, message)` does the work and either
- returns the response,
- returns None, having responded itself or promised to (`request.answer`), its effect done, or
- is a coroutine: its effect takes time, and later requests on the connection wait for it, or
- is a generator, which yields every few items and returns one of the above: with many items, it takes several
  turns of the event loop (`requests.turns`), and later requests wait too.

A module, and the messages of its API, are imported when a client first uses them: a broker that starts
should not pay for APIs that are not used.
"""

from collections.abc import Callable, Coroutine, Mapping
from enum import StrEnum
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

from odradek.requests.naming import name_of
from odradek.requests.request import Request
from odradek.requests.services import Services
from odradek.requests.session import AUTHENTICATION_APIS
from odradek.wire.codec import Message, Steps
from odradek.wire.messages.index import SCHEMAS

HandlerResult = Message | Coroutine[Any, Any, Message | None] | None
Handler = Callable[[Services, Request, Any], HandlerResult | Steps[HandlerResult]]


class ListenerKind(StrEnum):
    BROKER = "broker"
    CONTROLLER = "controller"


class Api(NamedTuple):
    """By default, all versions that Kafka has."""

    module: str
    min_version: int
    max_version: int
    advertised_min_version: int


def _serve(*api_keys: int) -> dict[int, Api]:
    schemas = [SCHEMAS[api_key] for api_key in api_keys]
    return {s.key: Api(s.module, s.min_version, s.max_version, s.min_version) for s in schemas}


APIS = _serve(
    *(0, 1, 2, 3),  # Produce, Fetch, ListOffsets, Metadata
    *(8, 9, 10, 28, 47),  # OffsetCommit, OffsetFetch, FindCoordinator, TxnOffsetCommit, OffsetDelete
    *(11, 12, 13, 14, 68),  # JoinGroup, Heartbeat, LeaveGroup, SyncGroup, ConsumerGroupHeartbeat
    *(15, 16, 42, 69),  # DescribeGroups, ListGroups, DeleteGroups, ConsumerGroupDescribe
    18,  # ApiVersions
    *(19, 20, 21, 37),  # CreateTopics, DeleteTopics, DeleteRecords, CreatePartitions
    *(22, 23, 61),  # InitProducerId, OffsetForLeaderEpoch, DescribeProducers
    *(24, 25, 26, 27),  # AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, WriteTxnMarkers
    *(65, 66),  # DescribeTransactions, ListTransactions
    *(32, 33, 44, 74),  # DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources
    *(35, 60, 75),  # DescribeLogDirs, DescribeCluster, DescribeTopicPartitions
    *(55, 80, 81),  # DescribeQuorum, AddRaftVoter, RemoveRaftVoter
    *(43, 57, 64),  # ElectLeaders, UpdateFeatures, UnregisterBroker
    *(45, 46),  # AlterPartitionReassignments, ListPartitionReassignments
)
# KAFKA-18659: with a higher minimum, older librdkafka stops compressing without a word.
APIS[0] = APIS[0]._replace(advertised_min_version=0)
# Version 6 is for two-phase commit (KIP-939), which Kafka itself does not serve yet.
APIS[22] = APIS[22]._replace(max_version=5)


CONTROLLER_APIS = _serve(
    *(1, 59),  # Fetch, FetchSnapshot
    *(52, 53, 54),  # Vote, BeginQuorumEpoch, EndQuorumEpoch
    *(55, 80, 81, 82),  # DescribeQuorum, AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter
    *(18, 60),  # ApiVersions, DescribeCluster
    58,  # Envelope
    *(19, 20, 37),  # CreateTopics, DeleteTopics, CreatePartitions
    *(32, 33, 44),  # DescribeConfigs, AlterConfigs, IncrementalAlterConfigs
    *(62, 63, 67, 70),  # BrokerRegistration, BrokerHeartbeat, AllocateProducerIds, ControllerRegistration
    56,  # AlterPartition
    *(43, 57, 64),  # ElectLeaders, UpdateFeatures, UnregisterBroker
    *(45, 46),  # AlterPartitionReassignments, ListPartitionReassignments
)
# A controller is asked for the metadata log, and for no other.
CONTROLLER_APIS[1] = CONTROLLER_APIS[1]._replace(module="fetch_metadata")

SERVED: Mapping[ListenerKind, Mapping[int, Api]] = {
    ListenerKind.BROKER: APIS,
    ListenerKind.CONTROLLER: CONTROLLER_APIS,
}
BROKER, CONTROLLER = ListenerKind.BROKER, ListenerKind.CONTROLLER


def is_served(api_key: int, version: int, kind: ListenerKind = BROKER) -> bool:
    api = SERVED[kind].get(api_key)
    return api is not None and api.min_version <= version <= api.max_version


def why_not_served(api_key: int, version: int, kind: ListenerKind = BROKER) -> str:
    name, api = name_of(api_key, version), SERVED[kind].get(api_key)
    if api is not None:
        served = f"v{api.min_version} to v{api.max_version}"
        return f"{name} is not served, only {served}: its client is too old or too new"
    if kind is BROKER and api_key in CONTROLLER_APIS:
        return f"{name} is served on the controller's listener only, and this is a broker's"
    if kind is CONTROLLER and api_key in APIS:
        return f"{name} is served on the broker's listeners only, and this is the controller's"
    if api_key in AUTHENTICATION_APIS:
        return f"{name} is not served: this listener has no SASL, set security.protocol=PLAINTEXT"
    return f"{name} is not served"


@cache
def module_of(api_key: int, kind: ListenerKind = BROKER) -> Any:
    return import_module(f"odradek.api.{SERVED[kind][api_key].module}")


def handler(api_key: int, kind: ListenerKind = BROKER) -> Handler:
    handle: Handler = module_of(api_key, kind).handle
    return handle


@cache
def request_type(api_key: int) -> type[Message]:
    return _message_type(api_key, "Request")


@cache
def response_type(api_key: int) -> type[Message]:
    return _message_type(api_key, "Response")


def _message_type(api_key: int, direction: str) -> type[Message]:
    schema = SCHEMAS[api_key]
    module = import_module(f"odradek.wire.messages.{schema.module}")
    found: type[Message] = getattr(module, schema.name + direction)
    return found
