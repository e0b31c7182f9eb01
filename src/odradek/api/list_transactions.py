"""ListTransactions (66): the transactional ids that this broker coordinates, by state, producer id, duration and
pattern where asked.

While one of its partitions is still being loaded the list would not be complete: COORDINATOR_LOAD_IN_PROGRESS, and
no list, as in Kafka. An invalid pattern is refused with INVALID_REGULAR_EXPRESSION.
"""

from odradek.apis.row import May, Operation, Resource
from odradek.serving.coordination import Coordination
from odradek.serving.request import Request
from odradek.wire.codec import Steps
from odradek.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse


def hide(message: ListTransactionsRequest, response: ListTransactionsResponse, may: May) -> None:
    response.transaction_states = [
        state
        for state in response.transaction_states
        if may(Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, state.transactional_id)
    ]


def handle(coordination: Coordination, request: Request, message: ListTransactionsRequest) -> Steps[None]:
    return coordination.transactions.handle_all(request, message, _all_or_nothing)


def _all_or_nothing(response: ListTransactionsResponse) -> ListTransactionsResponse:
    if response.error_code:
        response.transaction_states.clear()
    return response
