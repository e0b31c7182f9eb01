"""`odradek ledger`: what was written exactly once, by which sink, up to which batch.

The ledger is a topic of the cluster (docs/decisions/0008), so this also shows pipelines and programs that run
elsewhere.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

from odradek.admin.access import Access
from odradek.cli.access import on_cluster
from odradek.cli.arguments import JsonOutput
from odradek.cli.danger import Yes, confirm
from odradek.cli.failures import CommandError
from odradek.cli.framework import Argument, Group, Option
from odradek.cli.output import MISSING, print_columns, print_json, print_line

if TYPE_CHECKING:
    from odradek.ledger.record import Entry
    from odradek.ledger.topic import Ledger

app = Group(help="Show what Spark has written exactly once, and correct it.")

HEADER = ("SINK", "NAME", "BATCH", "ROWS", "MS", "WRITTEN", "TOPICS")
SinkArgument = Annotated[str, Argument(metavar="SINK")]


@contextmanager
def ledger_of(access: Access) -> "Iterator[Ledger]":
    from odradek.admin.requests import client_settings
    from odradek.client.cluster import Cluster, MissingTopic
    from odradek.client.connection import ConnectionLost
    from odradek.client.deadline import TimedOut
    from odradek.client.properties import InvalidProperty
    from odradek.errors import KafkaError
    from odradek.ledger.record import UnreadableRecord
    from odradek.ledger.topic import Ledger

    try:
        addresses = access.servers()
        cluster = Cluster(replace(client_settings(access, addresses[0]), bootstrap=tuple(addresses)))
        try:
            yield Ledger(cluster)
        finally:
            cluster.close()
    except (
        ConnectionLost,
        TimedOut,
        KafkaError,
        MissingTopic,
        InvalidProperty,
        UnreadableRecord,
        OSError,
    ) as error:
        raise CommandError(str(error)) from None


@app.command("list")
@on_cluster
def list_(cluster: Access, as_json: JsonOutput = False) -> None:
    """List the sinks that write exactly once, with the last batch of each."""
    with ledger_of(cluster) as ledger:
        found = ledger.entries()
    if as_json:
        print_json([as_facts(sink, entry) for sink, entry in sorted(found.items())])
        return
    rows = [_row(sink, entry) for sink, entry in sorted(found.items())]
    print_columns(HEADER, rows)


@app.command()
@on_cluster
def show(cluster: Access, sink: SinkArgument, as_json: JsonOutput = False) -> None:
    """Show the last batch of a sink, with what it took."""
    with ledger_of(cluster) as ledger:
        entry = ledger.entries().get(sink)
    if entry is None:
        raise CommandError(_unknown(sink))
    if as_json:
        print_json(as_facts(sink, entry))
        return
    for name, value in _described(sink, entry):
        print_line(f"{name}: {value}")


@app.command()
@on_cluster
def reset(
    cluster: Access,
    sink: SinkArgument,
    to: Annotated[
        int | None,
        Option("--to", metavar="BATCH", min=-1, help="The last batch that counts as written."),
    ] = None,
    yes: Yes = False,
) -> None:
    """Say which batch of a sink was written last. Without --to, forget the sink.

    The process that writes for the sink is fenced. A batch that counts as written and was not is lost; one that was
    written and does not count is written a second time. A query whose sink was forgotten stops at its next batch; a
    batch of write_once is written again.
    """
    with ledger_of(cluster) as ledger:
        last = _last_of(ledger, sink)
        if to is None and last is None:
            raise CommandError(_unknown(sink))
        confirm(
            f"Forget {sink}? Its last batch is {last}."
            if to is None
            else f"Let batch {to} of {sink} count as its last? That is {last or 'unknown'} now.",
            yes,
        )
        ledger.reset(sink, to)
    print_line(
        f"The ledger has forgotten {sink}."
        if to is None
        else f"{sink} continues after batch {to}, with its next run."
    )


def _last_of(ledger: "Ledger", sink: str) -> str | None:
    """A record that cannot be read does not keep its operator from replacing it."""
    from odradek.ledger.record import UnreadableRecord

    try:
        entry = ledger.entries().get(sink)
    except UnreadableRecord:
        return "unreadable"
    return None if entry is None else str(entry.batch)


def as_facts(sink: str, entry: "Entry") -> dict[str, Any]:
    return {"sink": sink, **asdict(entry), "topics": list(entry.topics)}


def _row(sink: str, entry: "Entry") -> tuple[object, ...]:
    topics = ", ".join(entry.topics)
    return sink, entry.name, entry.batch, entry.rows, entry.milliseconds, _written_at(entry), topics


def _described(sink: str, entry: "Entry") -> Iterator[tuple[str, object]]:
    phases = ", ".join(f"{name} {ms} ms" for name, ms in entry.phases.items())
    yield "sink", sink
    yield "name", entry.name or MISSING
    yield "batch", entry.batch
    yield "rows", entry.rows
    yield "topics", ", ".join(entry.topics) or MISSING
    yield "written", _written_at(entry)
    yield "took", f"{entry.milliseconds} ms" + (f": {phases}" if phases else "")
    yield "fingerprint of what it read", entry.fingerprint


def _written_at(entry: "Entry") -> str:
    return datetime.fromtimestamp(entry.written_at_ms / 1000, UTC).isoformat(timespec="seconds")


def _unknown(sink: str) -> str:
    return f"the ledger has no sink {sink}; 'odradek ledger list' shows those it has"
