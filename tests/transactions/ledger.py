"""A ledger of what transactional producers sent and were told, and a check whether it can all be true.

- T3 once a producer has been initialized, nothing more of those before it is committed
- T4 a transaction has one fate, in every partition where it has records
- T5 it is committed only if its producer asked for that
- T9 the same for the offsets that it sent; the committed transactions of a group follow each other without a gap
- bug 8: who was told that the transaction is committed, or aborted, was told the truth

A record says in its value which transaction it is of; a committed offset says so in its metadata.
"""

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from odradek.errors import ErrorCode
from tests.simulation.connection import Violation
from tests.transactions.epochs import is_used_up

Place = tuple[str, int]  # a partition, by name
Spot = tuple[UUID, int]  # a partition of one topic id


@dataclass(eq=False)
class Attempt:
    """One transaction of one producer. What it consumes are the numbers from `start` to `end`."""

    number: int
    transactional_id: str
    producer_id: int
    epoch: int
    is_newer_protocol: bool
    group: str  # of which it sends offsets
    sent: dict[Place, list[int]] = field(default_factory=dict)  # the numbers of its records
    acknowledged: dict[Spot, list[int]] = field(default_factory=dict)
    start: int | None = None
    end: int | None = None
    offsets_acknowledged: bool = False
    asked: bool | None = None  # to commit (True), to abort (False), or nothing
    told: bool | None = None  # how it ended
    fate: bool | None = None  # by the first marker that was committed in any partition
    places: dict[Place, bool] = field(default_factory=dict)  # where that is known
    is_over: bool = False  # another producer was initialized since
    count: int = 0

    def __str__(self) -> str:
        return (
            f"transaction {self.number} of {self.transactional_id} (producer {self.producer_id}, epoch {self.epoch}, "
            f"{'newer' if self.is_newer_protocol else 'older'} protocol)"
        )

    def new_records(self, place: Place, count: int) -> list[int]:
        numbers = list(range(self.count, self.count + count))
        self.count += count
        self.sent.setdefault(place, []).extend(numbers)
        return numbers

    def value(self, number: int) -> bytes:
        return b"%d.%d" % (self.number, number)

    @property
    def metadata(self) -> str:
        return str(self.number)


class Ledger:
    def __init__(self) -> None:
        self.attempts: list[Attempt] = []
        self.initialized: dict[str, tuple[int, int]] = {}  # the newest producer id and epoch of each id
        self.epochs: dict[
            int, int
        ] = {}  # the newest of each producer id that a client was given, in that order
        self._owners: dict[int, str] = {}  # the transactional id of each
        self.initializing: dict[str, int] = {}  # how many are about to
        self.counts = dict.fromkeys(("commits", "aborts", "timeouts", "fenced producers"), 0)

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def begin(
        self, transactional_id: str, producer_id: int, epoch: int, is_newer_protocol: bool, group: str
    ) -> Attempt:
        attempt = Attempt(len(self.attempts), transactional_id, producer_id, epoch, is_newer_protocol, group)
        self.attempts.append(attempt)
        return attempt

    def of(self, transactional_id: str) -> list[Attempt]:
        return [attempt for attempt in self.attempts if attempt.transactional_id == transactional_id]

    def find(self, text: bytes | str) -> tuple[Attempt, int]:
        """Find the attempt by what a record says."""
        if isinstance(text, bytes):
            text = text.decode("ascii", "replace")
        number, _, record = text.partition(".")
        if not number.isdigit() or int(number) >= len(self.attempts):
            raise Violation(f"P12: a record that nobody sent: {text!r}")
        return self.attempts[int(number)], int(record or -1)

    # --- what producers were told ---

    def take_init(self, transactional_id: str, response: Any) -> None:
        """T3: the epoch is above all that others were given."""
        producer_id, epoch = response.producer_id, response.producer_epoch
        known = self.epochs.get(producer_id, -1)
        if epoch <= known:
            raise Violation(
                f"T3: {transactional_id} was initialized with epoch {epoch} of producer {producer_id}, which had "
                f"epoch {known} before"
            )
        self._take_producer(transactional_id, producer_id, epoch)
        self.initialized[transactional_id] = producer_id, epoch
        for attempt in self.of(transactional_id):
            attempt.is_over = True

    def take_end(self, attempt: Attempt, is_commit: bool, response: Any) -> tuple[int, int]:
        """It was answered without an error. The producer id and the epoch that come next."""
        attempt.told = is_commit
        self.count("commits" if is_commit else "aborts")
        if attempt.fate is not None and attempt.fate is not is_commit:
            raise Violation(f"T7: {attempt} was answered with NONE, and its fate is {_fate(attempt.fate)}")
        if not attempt.is_newer_protocol:
            return attempt.producer_id, attempt.epoch
        after = response.producer_id, response.producer_epoch
        is_new = after[0] != attempt.producer_id and after[1] == 0
        is_right = is_new if is_used_up(attempt.epoch) else after == (attempt.producer_id, attempt.epoch + 1)
        if not is_right:
            raise Violation(f"T6: {attempt} ended, and its producer goes on with {after}")
        if is_new:
            self.count("epochs used up")
        self._take_producer(attempt.transactional_id, *after)
        return after

    def _take_producer(self, transactional_id: str, producer_id: int, epoch: int) -> None:
        owner = self._owners.setdefault(producer_id, transactional_id)
        if owner != transactional_id:
            raise Violation(f"T3: producer {producer_id} was given to {owner} and to {transactional_id}")
        self.epochs[producer_id] = max(self.epochs.get(producer_id, -1), epoch)

    def take_refusal(self, attempt: Attempt, is_commit: bool, code: int) -> None:
        """It will not be asked again."""
        if is_commit and code == ErrorCode.INVALID_TXN_STATE and attempt.fate:
            raise Violation(
                f"bug 8: {attempt} is committed, and its commit is answered with INVALID_TXN_STATE"
            )

    def check_accepted(self, attempt: Attempt, newest: tuple[int, int] | None, what: str) -> None:
        """`newest` was initialized when the request was sent."""
        given = list(self.epochs)
        if newest is not None and (given.index(newest[0]), newest[1]) > (
            given.index(attempt.producer_id),
            attempt.epoch,
        ):
            raise Violation(f"T3: {what} of {attempt} was taken, after {newest} was initialized")

    # --- what the logs say ---

    def ended(self, attempt: Attempt, place: Place, is_commit: bool) -> None:
        """A marker that is committed."""
        if attempt.fate is not None and attempt.fate is not is_commit:
            raise Violation(
                f"T4: {attempt} is {_fate(is_commit)} in {place}, and {_fate(attempt.fate)} elsewhere: "
                f"{attempt.places}"
            )
        if is_commit and attempt.asked is not True:
            raise Violation(f"T5: {attempt} is committed in {place}, and nobody asked for that")
        if is_commit and attempt.is_over and place not in attempt.places and attempt.fate is None:
            raise Violation(f"T3: {attempt} is committed in {place}, after another producer was initialized")
        if attempt.told is not None and attempt.told is not is_commit:
            raise Violation(
                f"T7: {attempt} is {_fate(is_commit)} in {place}, and was answered as {_fate(attempt.told)}"
            )
        attempt.fate = is_commit
        attempt.places[place] = is_commit

    # --- the end ---

    def check_end(
        self, stored: dict[Spot, dict[int, set[int]]], offsets: Place, names: dict[Spot, Place]
    ) -> None:
        """`stored` are the records of each attempt that are in each partition, `names` the partitions that are there;
        all transactions have ended."""
        for attempt in self.attempts:
            is_left = attempt.offsets_acknowledged or not attempt.acknowledged.keys().isdisjoint(names)
            if attempt.told is True and is_left and attempt.fate is not True:
                raise Violation(f"T4: {attempt} was answered as committed, and is not")
            if attempt.fate is not True:
                continue
            for spot, numbers in attempt.acknowledged.items():
                if spot not in names:
                    continue  # its topic was deleted
                place, found = names[spot], stored.get(spot, {}).get(attempt.number, set())
                if not found >= set(numbers) or attempt.places.get(place) is not True:
                    raise Violation(
                        f"T4: {attempt} is committed, but {place} has {found} of its records {numbers}: "
                        f"{attempt.places}"
                    )
            if attempt.offsets_acknowledged and attempt.places.get(offsets) is not True:
                raise Violation(f"T9: {attempt} is committed, but its offsets are not: {attempt.places}")
        for group in dict.fromkeys(attempt.group for attempt in self.attempts):
            self._check_chain(group)

    def _check_chain(self, group: str) -> None:
        """Every number was consumed once, whoever did it."""
        position = 0
        consumed = [
            (attempt.start, attempt.end, attempt)
            for attempt in self.attempts
            if attempt.group == group
            and attempt.fate
            and attempt.start is not None
            and attempt.end is not None
        ]
        for start, end, attempt in sorted(consumed, key=lambda each: each[0]):
            if start != position:
                raise Violation(
                    f"T9: {attempt} consumed {start} to {end}, after {position}: "
                    "some were consumed twice, or not at all"
                )
            position = end


def _fate(is_commit: bool) -> str:
    return "committed" if is_commit else "aborted"
