"""Open transactions, the oldest first."""

from odradek.admin.access import Access
from odradek.admin.transactions import OPEN_STATES, describe_transactions, list_transactions
from odradek.console.watch.seen import OpenTransactionSeen
from odradek.wire.messages.list_transactions import ListTransactionsRequest

MOST = 200


def ask_transactions(access: Access) -> list[OpenTransactionSeen]:
    listed = list_transactions(access, ListTransactionsRequest(state_filters=list(OPEN_STATES)))[:MOST]
    described = describe_transactions(access, [one.transactional_id for one in listed]) if listed else {}
    found = []
    for one in listed:
        known = described.get(one.transactional_id)
        if known is None:
            continue
        began_ms = known.state.transaction_start_time_ms
        found.append(
            OpenTransactionSeen(
                one.transactional_id,
                one.producer_id,
                known.state.transaction_state,
                one.coordinator,
                began_ms if began_ms >= 0 else None,
                known.state.transaction_timeout_ms,
                tuple(sorted({place.topic for place in known.partitions})),
            )
        )
    return sorted(found, key=lambda one: one.began_ms or 0)
