"""DescribeTransactions (65): the state, the producer and the partitions of transactional ids.

The coordinators of the ids (`coordinators.transactions`) respond, once what they describe is committed.
"""

from odradek.apis.row import May, Operation, Resource
from odradek.serving.coordination import Coordination
from odradek.serving.request import Request
from odradek.wire.codec import Steps
from odradek.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)


def hide(message: DescribeTransactionsRequest, response: DescribeTransactionsResponse, may: May) -> None:
    for state in response.transaction_states:
        state.topics = [
            topic for topic in state.topics if may(Operation.DESCRIBE, Resource.TOPIC, topic.topic)
        ]


def handle(
    coordination: Coordination, request: Request, message: DescribeTransactionsRequest
) -> Steps[DescribeTransactionsResponse | None]:
    if not message.transactional_ids:
        return DescribeTransactionsResponse()
    yield from coordination.transactions.handle_many(request, message)
    return None
