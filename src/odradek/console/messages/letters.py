"""Dead letters of a topic: the newest of them, and all that are new sent again.

Which of them were sent is kept in the cluster, as the offsets of a group of that topic, so that every console and every
colleague goes on where the last one stopped. Offsets are committed after records are acknowledged: if that fails
half-way, some are sent twice, and none is lost.
"""

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from odradek.admin.access import Access
from odradek.admin.dead_letters import WHOLE, Letter, letter_of_record
from odradek.admin.failures import AdminError, BadRequest, Refused
from odradek.admin.librdkafka import failures_told, kafka, make_client
from odradek.admin.metadata import existing_partitions, metadata_of
from odradek.admin.offsets import commit_offsets, committed_offsets, start_offsets
from odradek.admin.places import Place
from odradek.console.messages.reading import Cursor, Kept, RecordsRead, read_forward, read_newest
from odradek.console.messages.showing import Found
from odradek.console.requests import NotFound
from odradek.model import TopicPartition

ROUND = 500
MOST_AT_ONCE = 10_000
TIMEOUT_S = 30

_replaying = threading.Lock()


def progress_group(topic: str) -> str:
    return f"odradek-replayed-{topic}"


@dataclass
class Replayed:
    """`others` are records that are no dead letters; `is_all` is False if more are waiting."""

    sent: dict[str, int] = field(default_factory=dict)
    kept: int = 0
    others: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    is_all: bool = True

    @property
    def count(self) -> int:
        return sum(self.sent.values())


def letter_of(topic: str, found: Found) -> Letter | None:
    try:
        letter = letter_of_record(TopicPartition(topic, found.partition), found.record)
    except ValueError:  # numbers that are none: somebody else's headers
        return None
    return letter if letter.facts["pipeline"] is not None and letter.facts["reason"] is not None else None


def can_be_sent(letter: Letter) -> bool:
    """True if it has a whole record that came from a topic."""
    return letter.facts["content"] == WHOLE and letter.facts["topic"] is not None


def newest_letters(
    access: Access, topic: str, limit: int, keep: Callable[[Found, Letter | None], Kept]
) -> RecordsRead[Kept]:
    """Return what `keep` makes of each record and of the letter that it is, if it is one."""
    return read_newest(access, topic, None, limit, None, lambda one: keep(one, letter_of(topic, one)))


def progress_of(access: Access, topic: str, *, everything: bool = False) -> Cursor:
    """Return the position where the next replay begins."""
    places = [Place(topic, number) for number in existing_partitions(access, topic)]
    starts = start_offsets(access, places)
    done = {} if everything else committed_offsets(access, progress_group(topic))
    return {place.partition: max(start, done.get(place, 0)) for place, start in starts.items()}


def replay(access: Access, topic: str, to: str | None, *, everything: bool, dry: bool) -> Replayed:
    """Send letters with a whole record to the topics they came from, or to another; or only count them."""
    if not _replaying.acquire(blocking=False):
        raise AdminError("dead letters are being sent again just now: wait for the end of that")
    try:
        return _replay(access, topic, to, everything, dry)
    finally:
        _replaying.release()


def _replay(access: Access, topic: str, to: str | None, everything: bool, dry: bool) -> Replayed:
    if to == topic:
        raise BadRequest("sent to the topic of dead letters they would be dead letters again")
    outcome = Replayed()
    reasons: Counter[str] = Counter()
    cursor = progress_of(access, topic, everything=everything)
    seen = 0
    while True:
        found = read_forward(access, topic, None, ROUND, cursor, lambda one: one)
        outgoing = [letter for one in found.records if (letter := _counted(topic, one, outcome, reasons))]
        for letter in outgoing:
            target = to or letter.facts["topic"]
            outcome.sent[target] = outcome.sent.get(target, 0) + 1
        if not dry and found.records:
            _send(access, outgoing, to)
            offsets = {Place(topic, number): offset for number, offset in found.newer.items()}
            commit_offsets(access, progress_group(topic), offsets)
        is_done = all(found.newer[number] >= end for number, end in found.ends.items())
        seen += len(found.records)
        if is_done or found.newer == cursor or seen >= MOST_AT_ONCE:
            outcome.is_all, outcome.reasons = is_done, dict(reasons.most_common())
            return outcome
        cursor = found.newer


def _counted(topic: str, one: Found, outcome: Replayed, reasons: Counter[str]) -> Letter | None:
    """The letter, if it can be sent."""
    letter = letter_of(topic, one)
    if letter is None:
        outcome.others += 1
        return None
    reasons[letter.facts["reason"]] += 1
    if not can_be_sent(letter):
        outcome.kept += 1
        return None
    return letter


def _send(access: Access, letters: list[Letter], to: str | None) -> None:
    if not letters:
        return
    targets = {to or str(letter.facts["topic"]) for letter in letters}
    try:
        metadata_of(access, sorted(targets))  # producing would create topics where that is allowed
    except Refused as error:
        raise NotFound(str(error)) from None
    failures: list[Any] = []
    settings = {"acks": "all", "enable.idempotence": True, "message.timeout.ms": TIMEOUT_S * 1000}
    with failures_told(access, min(targets)):
        producer = make_client(access, kafka.Producer, settings | {"message.max.bytes": 100_000_000})
        for letter in letters:
            producer.produce(
                to or letter.facts["topic"],
                letter.value,
                letter.key,
                headers=letter.replayed_headers,
                timestamp=letter.facts["timestamp"] or 0,
                on_delivery=lambda error, _: failures.append(error) if error is not None else None,
            )
            producer.poll(0)
        left = producer.flush(TIMEOUT_S + 5)
    if failures or left:
        reason = failures[0].str() if failures else "they were not acknowledged in time"
        raise AdminError(
            f"{len(failures) + left} of {len(letters)} could not be sent: {reason}; the next try begins with these"
        )
