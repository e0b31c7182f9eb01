"""Bugs that are planted in the product, to show that the simulation of transactions would find them.

python -m tests.transactions.planted                 find the first seed that catches each, and print the table
python -m tests.transactions.planted NAME            plant one, and run the simulation from its seed on
python -m tests.transactions.planted NAME FIRST      find the first seed from this one on that catches it
"""

import subprocess
import sys

from tests.simulation.mutation import Mutation, Planted, plant

MAX_SEEDS = 500


PLANTED = [
    Planted(
        "early-marker",
        "markers are sent before the decision is committed",
        0,
        (
            Mutation(
                "coordinators.runtime",
                "            return Ready(batch, decision.notes)\n",
                """            effects, decision.effects = decision.effects, ()
            return Ready(batch, decision.notes, effects=effects)
""",
            ),
        ),
    ),
    Planted(
        "both-markers",
        "a marker that has to be sent again is an abort",
        5,
        (
            Mutation(
                "services.txn_markers",
                "        transaction_result=markers.is_commit,\n",
                "        transaction_result=markers.is_commit and not job.failures,\n",
            ),
        ),
    ),
    Planted(
        "epoch-kept",
        "the end of a transaction does not raise the epoch",
        0,
        (
            Mutation(
                "coordinators.transactions.transaction",
                """            raised = {
                "producer_epoch": min(self.producer_epoch + 1, MAX_EPOCH),
""",
                """            raised = {
                "producer_epoch": self.producer_epoch,
""",
            ),
        ),
    ),
    Planted(
        "late-produce",
        "a Produce of a transaction that has ended is taken, by its partition and by the coordinator",
        0,
        (
            Mutation(
                "storage.producers.state",
                "        if header.producer_epoch < producer.epoch:\n",
                "        if header.attributes & CONTROL and header.producer_epoch < producer.epoch:\n",
            ),
            Mutation(
                "coordinators.transactions.adding",
                "    if transaction.producer_epoch != asked.producer_epoch:\n",
                "    if transaction.producer_epoch < asked.producer_epoch:\n",
            ),
        ),
    ),
    Planted(
        "unverified",
        "the coordinator is not asked before the first batch of a transaction",
        0,
        (
            Mutation(
                "services.verification",
                """        if not adds and not self._is_required:
            return [NOT_REQUIRED] * len(batches)
""",
                """        if True:
            return [NOT_REQUIRED] * len(batches)
""",
            ),
        ),
    ),
    Planted(
        "unstable",
        "the last stable offset ignores all open transactions but the newest",
        0,
        (
            Mutation(
                "storage.producers.state",
                "        first_open = next(iter(self.open_transactions), None)\n",
                "        first_open = max(self.open_transactions, default=None)\n",
            ),
        ),
    ),
    Planted(
        "aborted-before",
        "the list of aborted transactions misses those that began before the fetch offset",
        0,
        (
            Mutation(
                "storage.segments.indexes",
                "        if aborted.first_offset < end:\n",
                "        if start <= aborted.first_offset < end:\n",
            ),
        ),
    ),
    Planted(
        "offsets-early",
        "the offsets of a transaction are visible before it is committed",
        0,
        (
            Mutation(
                "coordinators.offsets",
                "            self._pending.add(place, producer.id, value)\n",
                """            self._pending.add(place, producer.id, value)
            self._put(place, value)
""",
            ),
        ),
    ),
    Planted(
        "fenced",
        "the coordinator takes the requests of a producer that was fenced",
        0,
        (
            Mutation(
                "coordinators.transactions.adding",
                "    if transaction.producer_epoch != asked.producer_epoch:\n",
                "    if transaction.producer_epoch < asked.producer_epoch:\n",
            ),
            Mutation(
                "coordinators.transactions.ending",
                "    if transaction.producer_epoch != request.producer_epoch:\n",
                "    if transaction.producer_epoch < request.producer_epoch:\n",
            ),
        ),
    ),
    Planted(
        "prepared-aborted",
        "the timeout aborts a transaction that is prepared for its commit",
        7,
        (
            Mutation(
                "coordinators.transactions.states",
                "    PREPARE_COMMIT: frozenset({COMPLETE_COMMIT}),\n",
                "    PREPARE_COMMIT: frozenset({COMPLETE_COMMIT, PREPARE_ABORT}),\n",
            ),
            Mutation(
                "coordinators.transactions.coordinator",
                """        if transaction is None or transaction.state is not ONGOING:
            self.timers.cancel(key)
""",
                """        if transaction is None or (transaction.state is not ONGOING and not transaction.partitions):
            self.timers.cancel(key)
""",
            ),
            Mutation(
                "coordinators.transactions.coordinator",
                """        if transaction is None or transaction.state is not ONGOING:
            return None
""",
                """        if transaction is None or transaction.state.name not in ("ONGOING", "PREPARE_COMMIT"):
            return None
""",
            ),
        ),
    ),
    Planted(
        "truncated-producers",
        "a log that is cut forgets its producers",
        5,
        (
            Mutation(
                "storage.log.log",
                "self._finish_later(self.leader_epochs.persist, self._rebuild_producers)",
                "self._finish_later(self.leader_epochs.persist, self.producers.clear)",
            ),
        ),
    ),
    Planted(
        "untruncated-index",
        "a log that is cut keeps the aborted transactions that were cut off in its index",
        12,
        (
            Mutation(
                "storage.segments.segment",
                "            self.aborted.truncate_to(offset)\n",
                "            pass\n",
            ),
        ),
    ),
    Planted(
        "compacted",
        "compaction does not know which transactions were aborted",
        0,
        (
            Mutation(
                "storage.compaction.rounds",
                "    aborted = read_aborted_transactions(files, job.directory)\n",
                "    aborted = []\n",
            ),
        ),
    ),
    Planted(
        "not-again",
        "a coordinator that takes over does not send the markers of what is prepared",
        0,
        (
            Mutation(
                "coordinators.transactions.coordinator",
                '        self.timers.schedule("markers", now_ms, self._write_markers_again)\n',
                "",
            ),
        ),
    ),
    Planted(
        "untimed",
        "a coordinator that takes over does not watch the timeouts of what is open",
        2,
        (
            Mutation(
                "coordinators.transactions.coordinator",
                """        for transactional_id, transaction in self.transactions.items():
            self._watch(transactional_id, transaction)
""",
                "",
            ),
        ),
    ),
    Planted(
        "retried-commit",
        "a commit that is asked for again is reported as not possible",
        0,
        (
            Mutation(
                "coordinators.transactions.ending",
                """    if is_retry:
        return _ended_so(transaction, request)
""",
                """    if is_retry:
        raise KafkaError(ErrorCode.INVALID_TXN_STATE)
""",
            ),
        ),
    ),
    Planted(
        "epochs",
        "a producer whose epochs are used up goes on with the last one",
        1,
        (
            Mutation(
                "coordinators.transactions.transaction",
                "        return self.producer_epoch >= LAST_EPOCH_OF_A_PRODUCER\n",
                "        return False\n",
            ),
        ),
    ),
    Planted(
        "expired-open",
        "a transactional id is forgotten though a transaction is open",
        6,
        (
            Mutation(
                "coordinators.transactions.coordinator",
                "            if transaction.state in AT_REST and transaction.updated_ms <= oldest_ms\n",
                "            if transaction.updated_ms <= oldest_ms\n",
            ),
        ),
    ),
    Planted(
        "deleted-topic",
        "a transaction does not end while a topic that it wrote to is deleted",
        30,
        (
            Mutation(
                "services.txn_markers",
                "                job.missing.discard(each)  # deleted\n",
                "                by_broker.setdefault(NO_LEADER, []).append(each)\n",
            ),
        ),
    ),
    Planted(
        "zombie",
        "the offsets of whoever is no member any more are taken in a transaction",
        19,
        (
            Mutation(
                "coordinators.offsets",
                """        generation = request.generation_id_or_member_epoch
        group = self._groups.get(request.group_id)
        if group is None:
            if generation < 0:
                return None
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
""",
                """        generation = request.generation_id_or_member_epoch
        group = None
        if group is None:
            return None
""",
            ),
        ),
    ),
]


def search(planted: Planted, first: int) -> int:
    plant(planted.mutations)
    from tests.cluster.run import run_seeds
    from tests.simulation.connection import Violation
    from tests.transactions.run import run_seed

    for outcome in run_seeds(range(first, first + MAX_SEEDS), run_seed):
        if outcome.failure is not None and not isinstance(outcome.failure, Violation):
            raise outcome.failure  # of the simulation itself: nothing was caught
        if outcome.failure is not None:
            print(f"{planted.name}: seed {outcome.seed} catches that {planted.bug}: {outcome.failure}")
            return 0
    print(f"{planted.name}: no seed from {first} on catches that {planted.bug}")
    return 1


def main(arguments: list[str]) -> int:
    if not arguments:
        calls = [[sys.executable, "-m", "tests.transactions.planted", item.name, "0"] for item in PLANTED]
        return max(subprocess.run(call).returncode for call in calls)
    (planted,) = [item for item in PLANTED if item.name == arguments[0]]
    return search(planted, int(arguments[1]) if len(arguments) > 1 else planted.seed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
