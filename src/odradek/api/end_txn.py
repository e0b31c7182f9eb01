"""EndTxn (26): commit or abort a transaction.

The coordinator of the transactional id (`coordinators.transactions`) responds once the decision is committed; the
markers follow. From version 5 on, under transaction.version 2, the response names the producer id and epoch of the next
transaction. Before version 2 PRODUCER_FENCED is called INVALID_PRODUCER_EPOCH.
"""

from odradek.serving.coordination import Coordination
from odradek.serving.fencing import fenced_for
from odradek.serving.request import Request
from odradek.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

FENCED_SINCE = 2


def handle(coordination: Coordination, request: Request, message: EndTxnRequest) -> None:
    def amend(response: EndTxnResponse) -> EndTxnResponse:
        response.error_code = fenced_for(response.error_code, request.version >= FENCED_SINCE)
        return response

    coordination.transactions.handle(request, message, message.transactional_id, amend)
