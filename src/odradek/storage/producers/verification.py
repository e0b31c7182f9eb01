"""A transaction that is about to begin in a log: its coordinator is asked before the first batch is appended.

Between the coordinator's response and the append, a marker may end the transaction. A batch that is appended after it
would open a transaction that nobody ends, or join the producer's next one. So a verification is an object of its own:
the log forgets it when a marker or the first batch of the transaction is appended, and takes a first batch only with
the very object that it remembers. The marker of the transaction before it does not count
(`Producers._forget_ended`).

It also remembers the lowest sequence that was to be verified. If the verification of the first batch fails and a later
one's succeeds, the later one must not be appended: the retry of the first would be out of order for ever.
"""


class Verification:
    __slots__ = ("expects_sequence_zero", "lowest_sequence", "producer_epoch", "producer_id", "started_ms")

    def __init__(
        self,
        producer_id: int,
        producer_epoch: int,
        sequence: int,
        started_ms: int,
        expects_sequence_zero: bool = False,
    ) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.lowest_sequence = sequence
        self.started_ms = started_ms
        # With an epoch for each transaction (KIP-890) every transaction begins at sequence 0, also in a partition
        # that does not remember its producer.
        self.expects_sequence_zero = expects_sequence_zero


NOT_REQUIRED = Verification(-1, -1, -1, 0)  # where `transaction.partition.verification.enable` is off
