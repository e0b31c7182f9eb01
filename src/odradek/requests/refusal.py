"""The response that refuses a whole request.

NOT_CONTROLLER, KAFKA_STORAGE_ERROR, REQUEST_TIMED_OUT and similar errors concern a request as a whole, but half of
Kafka's responses have no field for such an error: they have a code for each topic, partition, group or resource. Such a
response names every item of its request, with the same code. `ITEMS` says which list of a response goes with which list
of its request, so one function builds the refusal of any API.

Some responses have both. There we do as Kafka does: Fetch before version 13, Metadata and AlterPartitionReassignments
repeat the code for each item, the others have it at the top only. DescribeLogDirs has no field for the code before
version 3: its refusal is empty.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from odradek.errors import ErrorCode, KafkaError
from odradek.wire.codec import FOREVER, M, Message, Steps, field_of

NO_OFFSET = -1
NO_NODE = -1


class Items(NamedTuple):
    """A list of a response that has one item for each item of a list of the request."""

    response: str
    request: str
    # The field that names an item: its field in the response, and in the request (empty: the request lists plain
    # values).
    names: Mapping[str, str]
    inner: "Items | None" = None  # the codes are one level further down
    values: Mapping[str, Any] = {}  # other fields of a refused item that are not the default
    until: int = FOREVER


def _same(*fields: str) -> dict[str, str]:
    return {field: field for field in fields}


def _partitions(name: str = "partition_index", **values: Any) -> Items:
    return Items("partitions", "partitions", {"partition_index": name}, values=values)


_GROUPS = {"group_id": ""}
_RESOURCE = _same("resource_type", "resource_name")

ITEMS: dict[int, tuple[Items, ...]] = {
    0: (  # Produce
        Items(
            "responses",
            "topic_data",
            _same("name", "topic_id"),
            Items("partition_responses", "partition_data", _same("index"), values={"base_offset": NO_OFFSET}),
        ),
    ),
    1: (  # Fetch
        Items(
            "responses",
            "topics",
            _same("topic"),
            _partitions("partition", high_watermark=NO_OFFSET),
            until=12,
        ),
    ),
    2: (Items("topics", "topics", _same("name"), _partitions()),),  # ListOffsets
    3: (Items("topics", "topics", _same("name", "topic_id")),),  # Metadata
    8: (Items("topics", "topics", _same("name", "topic_id"), _partitions()),),  # OffsetCommit
    9: (  # OffsetFetch
        Items(
            "topics",
            "topics",
            _same("name"),
            Items(
                "partitions",
                "partition_indexes",
                {"partition_index": ""},
                values={"committed_offset": NO_OFFSET},
            ),
            until=1,
        ),
        Items("groups", "groups", _same("group_id")),
    ),
    10: (  # FindCoordinator
        Items("coordinators", "coordinator_keys", {"key": ""}, values={"node_id": NO_NODE, "port": NO_NODE}),
    ),
    15: (Items("groups", "groups", _GROUPS),),  # DescribeGroups
    19: (Items("topics", "topics", _same("name")),),  # CreateTopics
    20: (  # DeleteTopics
        Items("responses", "topics", _same("name", "topic_id")),
        Items("responses", "topic_names", {"name": ""}),
    ),
    21: (  # DeleteRecords
        Items("topics", "topics", _same("name"), _partitions(low_watermark=NO_OFFSET)),
    ),
    23: (  # OffsetForLeaderEpoch
        Items("topics", "topics", _same("topic"), Items("partitions", "partitions", _same("partition"))),
    ),
    24: (  # AddPartitionsToTxn
        Items(
            "results_by_topic_v3_and_below",
            "v3_and_below_topics",
            _same("name"),
            Items("results_by_partition", "partitions", {"partition_index": ""}),
            until=3,
        ),
    ),
    27: (  # WriteTxnMarkers
        Items(
            "markers",
            "markers",
            _same("producer_id"),
            Items(
                "topics",
                "topics",
                _same("name"),
                Items("partitions", "partition_indexes", {"partition_index": ""}),
            ),
        ),
    ),
    28: (Items("topics", "topics", _same("name"), _partitions()),),  # TxnOffsetCommit
    32: (Items("results", "resources", _RESOURCE),),  # DescribeConfigs
    33: (Items("responses", "resources", _RESOURCE),),  # AlterConfigs
    37: (Items("results", "topics", _same("name")),),  # CreatePartitions
    42: (Items("results", "groups_names", _GROUPS),),  # DeleteGroups
    43: (  # ElectLeaders
        Items(
            "replica_election_results",
            "topic_partitions",
            _same("topic"),
            Items("partition_result", "partitions", {"partition_id": ""}),
        ),
    ),
    44: (Items("responses", "resources", _RESOURCE),),  # IncrementalAlterConfigs
    45: (Items("responses", "topics", _same("name"), _partitions()),),  # AlterPartitionReassignments
    46: (  # ListPartitionReassignments: its partitions have no code, only the response has
        Items(
            "topics",
            "topics",
            _same("name"),
            Items("partitions", "partition_indexes", {"partition_index": ""}),
        ),
    ),
    61: (  # DescribeProducers
        Items(
            "topics",
            "topics",
            _same("name"),
            Items("partitions", "partition_indexes", {"partition_index": ""}),
        ),
    ),
    65: (Items("transaction_states", "transactional_ids", {"transactional_id": ""}),),  # DescribeTransactions
    69: (Items("groups", "group_ids", _GROUPS),),  # ConsumerGroupDescribe
    75: (Items("topics", "topics", _same("name")),),  # DescribeTopicPartitions
}

# Other top-level fields of a refusal: the same as in the request, or a value that is not the default.
COPIED = {1: ("session_id",)}
VALUES: dict[int, Mapping[str, Any]] = {
    10: {"node_id": NO_NODE, "port": NO_NODE},
    22: {"producer_epoch": -1},
}


def refuse(response_type: type[Message], request: Message, version: int, error: KafkaError) -> Steps[Message]:
    """The response to `request` that says `error` wherever this version has a place for it."""
    api_key: int = response_type.API_KEY  # type: ignore[attr-defined]
    response = response_type()
    for name in COPIED.get(api_key, ()):
        setattr(response, name, getattr(request, name))
    for name, value in VALUES.get(api_key, {}).items():
        setattr(response, name, value)
    _set_error(response, error)
    for items in ITEMS.get(api_key, ()):
        if version <= items.until:
            refused = getattr(response, items.response)
            refused += yield from _refuse_items(items, response_type, request, version, error)
    return response


def _refuse_items(
    items: Items, parent: Any, request: Any, version: int, error: KafkaError
) -> Steps[list[Any]]:
    item_type = field_of(parent, items.response).struct_type
    refused = []
    for asked in getattr(request, items.request) or ():
        item = item_type(**items.values)
        for name, source in items.names.items():
            value = getattr(asked, source) if source else asked
            if value is not None or field_of(item_type, name).wire.is_nullable_in(version):
                setattr(item, name, value)
        _set_error(item, error)
        if items.inner is not None:
            inner = yield from _refuse_items(items.inner, item_type, asked, version, error)
            setattr(item, items.inner.response, inner)
        refused.append(item)
        yield
    return refused


def code_of(item: Any) -> int:
    """The error code of a response, or of an item; AddPartitionsToTxn has its own name for it."""
    code: int = getattr(item, "error_code", 0) or getattr(item, "partition_error_code", 0)
    return code


def carries(response: Any, code: ErrorCode) -> Steps[bool]:
    """Whether a response has this code, at its top or for one of its items."""
    if code_of(response) == code:
        return True
    for items in ITEMS.get(response.API_KEY, ()):
        if (yield from _item_carries(items, response, code)):
            return True
    return False


def _item_carries(items: Items, parent: Any, code: ErrorCode) -> Steps[bool]:
    for item in getattr(parent, items.response) or ():
        if code_of(item) == code:
            return True
        if items.inner is not None and (yield from _item_carries(items.inner, item, code)):
            return True
        yield
    return False


def refuse_undone(response: M, error: KafkaError) -> M:
    """The response to a change of metadata that was decided but could not be written, as on a full disk.

    Items that would have succeeded get the error instead, and nothing else except their names; items that were refused
    before keep their own error, which a retry would not change.
    """
    refusal = type(response)()
    all_items = ITEMS.get(response.API_KEY)  # type: ignore[attr-defined]
    if all_items is None:
        _set_error(refusal, error)
        return refusal
    _refuse_undone_items(all_items[0], response, refusal, error)
    return refusal


def _refuse_undone_items(items: Items, response: Any, refusal: Any, error: KafkaError) -> None:
    refused = getattr(refusal, items.response)
    for item in getattr(response, items.response):
        if items.inner is not None or not item.error_code:
            undone = type(item)(**{name: getattr(item, name) for name in items.names})
            if items.inner is not None:
                _refuse_undone_items(items.inner, item, undone, error)
            else:
                _set_error(undone, error)
            item = undone
        refused.append(item)


def _set_error(item: Any, error: KafkaError) -> None:
    """Fields that a version does not have are left out when the response is written."""
    if hasattr(item, "error_code"):
        item.error_code = int(error.code)
    if hasattr(item, "partition_error_code"):
        item.partition_error_code = int(error.code)
    if hasattr(item, "error_message"):
        item.error_message = str(error)
