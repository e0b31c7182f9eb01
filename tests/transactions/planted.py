"""Bugs that are planted in transactions, to show that their simulation finds them; see `tests/planting`."""

from tests.planting.changes import (
    afterwards,
    always,
    assigning,
    judging,
    returning,
    swapping,
    without,
)
from tests.planting.planted import planted

OLDER_EPOCHS_PASS = judging(
    "coordinators.transactions.adding:_check_producer",
    "producer_epoch",
    by="transaction.producer_epoch < asked.producer_epoch",
)

PLANTED = [
    planted(
        "early-marker",
        "markers are sent before the decision is committed",
        afterwards(
            "coordinators.runtime:Shard._ready",
            "if result.batch is not None:\n    result.effects, decision.effects = decision.effects, ()",
        ),
    ),
    planted(
        "both-markers",
        "a marker that has to be sent again is an abort",
        swapping(
            "services.coordination.txn_markers:_marker_of",
            "markers.is_commit",
            "markers.is_commit and not job.failures",
        ),
    ),
    planted(
        "epoch-kept",
        "the end of a transaction does not raise the epoch",
        afterwards(
            "coordinators.transactions.transaction:Transaction.prepared",
            "result = result._replace(producer_epoch=self.producer_epoch)",
        ),
    ),
    planted(
        "late-produce",
        "a Produce of a transaction that has ended is accepted, by its partition and by the coordinator",
        swapping(
            "storage.producers.state:Producers.check",
            "header.producer_epoch < producer.epoch",
            "header.attributes & CONTROL and header.producer_epoch < producer.epoch",
        ),
        OLDER_EPOCHS_PASS,
    ),
    planted(
        "unverified",
        "the coordinator is not asked before the first batch of a transaction",
        always("services.coordination.verification:Verifier.verify", "_is_required"),
    ),
    planted(
        "unstable",
        "the last stable offset ignores all open transactions but the newest",
        assigning(
            "storage.producers.state:Producers.first_unstable_offset",
            "first_open",
            "max(self.open_transactions, default=None)",
        ),
    ),
    planted(
        "aborted-before",
        "the list of aborted transactions misses those that began before the fetch offset",
        judging(
            "storage.segments.indexes:find_aborted", "first_offset", by="start <= aborted.first_offset < end"
        ),
    ),
    planted(
        "offsets-early",
        "the offsets of a transaction are visible before it is committed",
        afterwards(
            "coordinators.offsets:Offsets.replay",
            "if value is not None and producer is not None:\n"
            "    self._put(Place(key.group, key.topic, key.partition), value)",
        ),
    ),
    planted(
        "fenced",
        "the coordinator accepts the requests of a producer that was fenced",
        OLDER_EPOCHS_PASS,
        judging(
            "coordinators.transactions.ending:judge",
            "producer_epoch",
            by="transaction.producer_epoch < request.producer_epoch",
        ),
    ),
    planted(
        "prepared-aborted",
        "the timeout aborts a transaction that is prepared for its commit",
        always("coordinators.transactions.transaction:Transaction._moved", "LEGAL_MOVES"),
        judging(
            "coordinators.transactions.coordinator:TransactionCoordinator._watch",
            "ONGOING",
            by="transaction is None or transaction.state is not ONGOING and not transaction.partitions",
        ),
        judging(
            "coordinators.transactions.coordinator:TransactionCoordinator._overdue",
            "ONGOING",
            by="transaction is None or transaction.state.name not in ('ONGOING', 'PREPARE_COMMIT')",
        ),
    ),
    planted(
        "truncated-producers",
        "a log that is truncated forgets its producers",
        swapping("storage.log.log:Log.truncate_to", "self._rebuild_producers", "self.producers.clear"),
    ),
    planted(
        "untruncated-index",
        "a log that is truncated keeps the aborted transactions that are gone in its index",
        without("storage.segments.segment:Segment.truncate_to", "aborted.truncate_to"),
    ),
    planted(
        "compacted",
        "compaction does not know which transactions were aborted",
        assigning("storage.compaction.rounds:compact", "aborted", "[]"),
    ),
    planted(
        "not-again",
        "a coordinator that takes over does not send the markers of what is prepared",
        without("coordinators.transactions.coordinator:TransactionCoordinator.loaded", "timers.schedule"),
    ),
    planted(
        "untimed",
        "a coordinator that takes over does not watch the timeouts of what is open",
        without("coordinators.transactions.coordinator:TransactionCoordinator.loaded", "_watch"),
    ),
    planted(
        "retried-commit",
        "a commit that is requested again is reported as impossible",
        swapping(
            "coordinators.transactions.ending:judge_by_raised_epoch",
            "_ended_so(...)",
            "(_ for _ in ()).throw(KafkaError(ErrorCode.INVALID_TXN_STATE))",
        ),
    ),
    planted(
        "epochs",
        "a producer whose epochs are exhausted continues with the last one",
        returning("coordinators.transactions.transaction:Transaction.is_epoch_exhausted", "False"),
    ),
    planted(
        "expired-open",
        "a transactional id is forgotten though a transaction is open",
        judging(
            "coordinators.transactions.coordinator:TransactionCoordinator._expire",
            "AT_REST",
            by="transaction.updated_ms <= oldest_ms",
        ),
        among="expiring",
    ),
    planted(
        "deleted-topic",
        "a transaction does not end while a topic that it wrote to is deleted",
        swapping(
            "services.coordination.txn_markers:MarkerSender._route",
            "job.missing.discard(...)",
            "by_broker.setdefault(NO_LEADER, []).append(each)",
        ),
        script="tests/transactions/test_rare_cases.py::test_a_transaction_ends_though_its_topic",
    ),
    planted(
        "zombie",
        "the offsets of a former member are accepted in a transaction",
        returning("coordinators.offsets:Offsets._check_transactional_commit", "None"),
        script="tests/coordinators/test_transactional_offsets.py::test_who_may_commit_to_a_group_with_members",
    ),
]
