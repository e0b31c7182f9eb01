"""AddOffsetsToTxn (25): the offsets of a group join a transaction.

That is AddPartitionsToTxn for the partition of `__consumer_offsets` where the group's offsets are. Before version 2
PRODUCER_FENCED is called INVALID_PRODUCER_EPOCH.
"""

from odradek.coordinators.routing import partition_of
from odradek.model import OFFSETS_TOPIC
from odradek.serving.fencing import fenced_for
from odradek.serving.request import Request
from odradek.serving.services import Services
from odradek.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

FENCED_SINCE = 2


def handle(services: Services, request: Request, message: AddOffsetsToTxnRequest) -> None:
    topic = services.cluster.image.topics.get(OFFSETS_TOPIC)
    count = len(topic.partitions) if topic else services.node.config["offsets.topic.num.partitions"]
    asked = AddPartitionsToTxnTransaction(
        message.transactional_id,
        message.producer_id,
        message.producer_epoch,
        verify_only=False,
        topics=[AddPartitionsToTxnTopic(OFFSETS_TOPIC, [partition_of(message.group_id, count)])],
    )

    def amend(response: AddPartitionsToTxnResponse) -> AddOffsetsToTxnResponse:
        (result,) = response.results_by_transaction
        code = result.topic_results[0].results_by_partition[0].partition_error_code
        return AddOffsetsToTxnResponse(error_code=fenced_for(code, request.version >= FENCED_SINCE))

    services.coordination.transactions.handle(
        request, AddPartitionsToTxnRequest([asked]), message.transactional_id, amend
    )
