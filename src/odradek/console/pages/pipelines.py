"""Pipelines, wherever they run: what they write to the ledger, the groups they commit to, and their dead letters.

Nothing is asked of a pipeline itself. A sink that writes exactly once notes each batch in the ledger of the cluster; a
run tells the cluster what its requirements have counted; each query commits the offsets of its finished batches to a
group; dead letters are records of a topic.
"""

from collections import Counter
from dataclasses import asdict, dataclass

from odradek.admin.dead_letters import Letter
from odradek.admin.failures import AdminError, NoContact
from odradek.admin.places import is_internal
from odradek.console.messages.letters import (
    Replayed,
    can_be_sent,
    newest_letters,
    progress_of,
    replay,
)
from odradek.console.messages.reading import reaching
from odradek.console.messages.showing import Found, printable
from odradek.console.pages.topics import check_ours
from odradek.console.registry import Action, Page
from odradek.console.requests import Ask, NotFound, doc
from odradek.console.users import Role
from odradek.console.watch.ledger import SinkHistory
from odradek.console.watch.seen import GroupSeen, Seen
from odradek.ledger.counts import NAME as COUNTS_TOPIC
from odradek.ledger.counts import CountsTopic, SinkCounts
from odradek.ledger.record import Entry, UnreadableRecord
from odradek.ledger.topic import Ledger
from odradek.wording import count_of

GROUP_PREFIX = "odradek-pipeline-"
LETTERS_SHOWN = 50
LETTERS_COUNTED = 500
TEXT_SHOWN = 300
NAMES_OF_LETTERS = ("dead", "dlq")


@dataclass(frozen=True)
class Phase:
    name: str
    milliseconds: int
    share: float  # of the batch


@dataclass(frozen=True)
class SinkRow:
    sink: str
    name: str
    batch: int
    rows: int
    milliseconds: int
    written_at_ms: int
    topics: list[str]
    phases: list[Phase]
    rows_per_second: float | None  # over the batches that were seen
    batch_rows_per_second: float | None  # of the last batch


@dataclass(frozen=True)
class UnmetRow:
    """Rows on their way to a sink that did not meet a requirement, since the sink's last reset."""

    pipeline: str
    sink: str
    stage: str
    requirement: str
    action: str
    rows: int
    counted_at_ms: int


@dataclass(frozen=True)
class LetterTopic:
    topic: str
    record_count: int | None


@dataclass(frozen=True)
class PipelineList:
    sinks: list[SinkRow]
    problem: str | None  # of the ledger
    unmet: list[UnmetRow]
    unmet_problem: str | None
    queries: list[GroupSeen]
    letter_topics: list[LetterTopic]


def view(ask: Ask) -> PipelineList:
    seen = ask.cluster.seen
    topics = seen.topology.topics if seen.topology is not None else {}
    rows: list[SinkRow] = []
    problem = None
    try:
        _check_contact(seen)
        entries, histories = ask.cluster.ledger.look(lambda: _entries(ask))
        rows = [sink_row(sink, entry, histories.get(sink)) for sink, entry in entries.items()]
    except AdminError as error:
        problem = str(error)
    rows.sort(key=lambda row: -row.written_at_ms)
    unmet, unmet_problem = _unmet(ask, COUNTS_TOPIC in topics)
    queries = [one for name, one in (seen.groups or {}).items() if name.startswith(GROUP_PREFIX)]
    letters = [LetterTopic(name, _count(seen, name)) for name in topics if is_letter_topic(name)]
    return PipelineList(rows, problem, unmet, unmet_problem, queries, letters)


def _unmet(ask: Ask, is_there: bool) -> tuple[list[UnmetRow], str | None]:
    """Return the rows, or the reason why we cannot know them."""
    if not is_there:
        return [], None
    try:
        _check_contact(ask.cluster.seen)
        found = ask.cluster.counts.look(lambda: _counts(ask))
    except AdminError as error:
        return [], str(error)
    return unmet_rows(found), None


def _counts(ask: Ask) -> list[SinkCounts]:
    try:
        with reaching(ask.cluster.access) as cluster:
            return CountsTopic(cluster).entries()
    except UnreadableRecord as error:
        raise AdminError(str(error)) from None


def unmet_rows(found: list[SinkCounts]) -> list[UnmetRow]:
    """Sort by pipeline, sink and stage; within a stage, what most rows did not meet comes first."""
    rows = [
        UnmetRow(each.pipeline, each.sink, **asdict(one), counted_at_ms=each.counted_at_ms)
        for each in found
        for one in each.unmet
    ]
    return sorted(rows, key=lambda row: (row.pipeline, row.sink, row.stage, -row.rows))


def _check_contact(seen: Seen) -> None:
    """Do not let anybody wait for a cluster that is known not to respond."""
    if seen.problem is not None:
        raise NoContact(seen.problem)


def _entries(ask: Ask) -> dict[str, Entry]:
    try:
        with reaching(ask.cluster.access) as cluster:  # all who look share what it says
            return Ledger(cluster).entries()
    except UnreadableRecord as error:
        raise AdminError(str(error)) from None


def sink_row(sink: str, entry: Entry, history: SinkHistory | None) -> SinkRow:
    whole_ms = max(entry.milliseconds, 1)
    phases = sorted(entry.phases.items(), key=lambda one: -one[1])
    return SinkRow(
        sink=sink,
        name=entry.name,
        batch=entry.batch,
        rows=entry.rows,
        milliseconds=entry.milliseconds,
        written_at_ms=entry.written_at_ms,
        topics=list(entry.topics),
        phases=[
            Phase(name, spent_ms, min(spent_ms / whole_ms, 1.0)) for name, spent_ms in phases if spent_ms
        ],
        rows_per_second=history.rows_per_second() if history is not None else None,
        batch_rows_per_second=entry.rows * 1000 / entry.milliseconds if entry.milliseconds else None,
    )


def is_letter_topic(name: str) -> bool:
    """Judge by the name alone: to look into every topic would be too much work."""
    return not is_internal(name) and any(part in name.lower() for part in NAMES_OF_LETTERS)


def _count(seen: Seen, topic: str) -> int | None:
    ends = seen.offsets.ends.get(topic) if seen.offsets is not None else None
    return None if ends is None else sum(max(end, 0) for end in ends)


# Dead letters


@dataclass(frozen=True)
class LettersQuery:
    topic: str = doc("The topic of dead letters.")


@dataclass(frozen=True)
class LetterRow:
    partition: int
    offset: int
    timestamp_ms: int
    pipeline: str
    stage: str
    name: str
    reason: str
    origin: str
    text: str
    can_be_sent: bool


@dataclass(frozen=True)
class LettersPage:
    topic: str
    letters: list[LetterRow]
    reasons: list[tuple[str, int]]  # of the newest ones
    counted: int
    others: int  # records that are no dead letters
    waiting: int  # of these, not sent again from here
    is_more_waiting: bool  # perhaps: there are older ones


def letters_view(ask: Ask) -> LettersPage:
    topic, access = ask.query.topic, ask.access()
    if is_internal(topic):
        raise NotFound(f"{topic} has no dead letters")
    _check_contact(ask.cluster.seen)
    found = newest_letters(access, topic, LETTERS_COUNTED, letter_row)
    letters = [one for one in found.records if one is not None]
    begins = progress_of(access, topic)
    waiting = sum(one.offset >= begins.get(one.partition, 0) for one in letters)
    is_more = any(begins.get(number, 0) < offset for number, offset in found.older.items())
    return LettersPage(
        topic,
        letters[:LETTERS_SHOWN],
        Counter(one.reason for one in letters).most_common(20),
        len(letters),
        len(found.records) - len(letters),
        waiting,
        is_more,
    )


def letter_row(found: Found, letter: Letter | None) -> LetterRow | None:
    if letter is None:
        return None
    facts = {name: "" if value is None else printable(str(value)) for name, value in letter.facts.items()}
    origin = f"{facts['topic']}-{facts['partition']} at {facts['offset']}"
    return LetterRow(
        partition=found.partition,
        offset=found.record.offset,
        timestamp_ms=found.record.timestamp,
        pipeline=facts["pipeline"],
        stage=facts["stage"],
        name=facts["name"],
        reason=facts["reason"],
        origin=origin if facts["topic"] else facts["file"] or "unknown",
        text=text_of(letter.value),
        can_be_sent=can_be_sent(letter),
    )


def text_of(value: bytes | None) -> str:
    if value is None:
        return "null"
    text = printable(value[: 4 * TEXT_SHOWN].decode(errors="replace"))
    return text[:TEXT_SHOWN] + ("…" if len(text) > TEXT_SHOWN else "")


@dataclass(frozen=True)
class ReplayBody:
    topic: str = doc("The topic of dead letters.")
    to: str | None = doc("Send them to this topic instead of the one they came from.", None)
    everything: bool = doc("Include those that were sent again before.", False)
    dry_run: bool = doc("Only say what would be sent.", False)


@dataclass(frozen=True)
class ReplayOutcome:
    sent: dict[str, int]
    kept: int
    reasons: dict[str, int]
    is_all: bool
    said: str


def replay_letters(ask: Ask) -> ReplayOutcome:
    body: ReplayBody = ask.body
    for name in (body.topic, body.to):
        check_ours(name or "")
    found = replay(ask.access(), body.topic, body.to, everything=body.everything, dry=body.dry_run)
    return ReplayOutcome(found.sent, found.kept, found.reasons, found.is_all, told(found, body.dry_run))


def told(found: Replayed, is_dry: bool) -> str:
    """The words of `odradek pipeline replay-dead-letters`."""
    verb = "Would send" if is_dry else "Sent"
    parts = [f"{verb} {count_of(count, 'record')} to {topic}." for topic, count in found.sent.items()]
    if not parts:
        parts.append("There is nothing to replay.")
    if found.kept:
        parts.append(f"{count_of(found.kept, 'dead letter')} without a whole record not sent.")
    if not found.is_all:
        parts.append("More are waiting: do it again.")
    return " ".join(parts)


PAGES = [
    Page(
        path="pipelines",
        title="Pipelines",
        view=view,
        template="pipelines.html",
        summary="List what pipelines write, how far they are behind, and their topics of dead letters.",
        nav="Pipelines",
        live_template="pipelines_live.html",
        parts=("groups", "offsets"),
    ),
    Page(
        path="dead-letters",
        title="Dead letters",
        view=letters_view,
        template="dead_letters.html",
        summary="Show the newest dead letters of a topic, and why they are dead.",
        query=LettersQuery,
    ),
]
ACTIONS = [
    Action(
        *("POST", "dead-letters/replay", "Send dead letters again.", replay_letters, Role.EDITOR),
        body=ReplayBody,
        target=lambda ask: ask.body.topic + (" (dry run)" if ask.body.dry_run else ""),
        refreshes=("offsets", "groups"),
    )
]
