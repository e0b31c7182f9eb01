"""`odradek replay`: from an archive, or files, back into a topic."""

import time
from typing import TYPE_CHECKING, Annotated

from odradek.admin.access import Access
from odradek.cli.access import on_cluster
from odradek.cli.archive import (
    OUTAGE_S,
    JsonLines,
    NoProgress,
    Storage,
    failures_told,
    retention_ms,
    settings_of,
)
from odradek.cli.arguments import key_value
from odradek.cli.framework import Argument, BadParameter, Option
from odradek.cli.output import note, print_event, print_line, warn
from odradek.wording import counted

if TYPE_CHECKING:
    from odradek.archive.layout import Snapshot
    from odradek.archiving.replay import Progress, Source


@on_cluster
def replay(
    cluster: Access,
    topic: Annotated[str | None, Argument(metavar="[TOPIC]", help="The archived topic.")] = None,
    archive: Annotated[
        str | None,
        Option(
            "--archive", metavar="PATH", help="The archive: a directory, or a URL like s3://bucket/archive."
        ),
    ] = None,
    files: Annotated[
        list[str] | None,
        Option("--files", metavar="GLOB", help="Parquet files instead of an archive; repeatable."),
    ] = None,
    to: Annotated[
        str | None, Option("--to", metavar="TOPIC", help="The topic to write to (default: the same name).")
    ] = None,
    storage: Storage = None,
    quiet: NoProgress = False,
    as_json: JsonLines = False,
) -> None:
    """Write an archived topic, or Parquet files, into a topic, each record exactly once.

    Records keep their partition, order, key, headers and timestamp; offsets are new ones. Records become visible in
    transactions, together with the position in the ledger (see 'odradek ledger'): a replay that was killed goes on
    where it stopped, and one that is run again writes only what has been archived since.

    The target must exist, with at least as many partitions. Consumers need isolation.level=read_committed to see each
    record once.

    Files need a column 'value'; 'key', 'headers', 'timestamp' and 'partition' are used if they are there. Rows without
    a partition get one by their key. Files go in the order of their names; the same files are written once.

    odradek replay orders --archive /data/archive --to orders-of-2025

    odradek replay --files 'export/*.parquet' --to orders
    """
    if bool(files) == bool(archive):
        raise BadParameter("give --archive and a topic, or --files")
    if archive and not topic:
        raise BadParameter("which topic of the archive?")
    if files and (topic or not to):
        raise BadParameter("files have no topic: name the one to write to with --to")
    with failures_told():
        from odradek.archiving.replay import Replay
        from odradek.archiving.replay_sources import ArchivedTopic, ParquetFiles
        from odradek.client.cluster import borrow_cluster

        target = to or topic or ""
        source: Source = ParquetFiles(files) if files else _archived(archive or "", topic or "", storage)
        with borrow_cluster(settings_of(cluster, OUTAGE_S)) as client:
            report = _report_json if as_json else _silent if quiet else _report
            work = Replay(client, source, target, report)
            if isinstance(source, ArchivedTopic):
                _warn_of_retention(cluster, source.snapshot, target)
            rows = work.run()
    if as_json:
        print_event({"event": "end", "topic": target, "records": rows})
    else:
        print_line(f"{counted(rows, 'record')} replayed into {target}")


def _archived(archive: str, topic: str, storage: list[str] | None) -> "Source":
    from odradek.archive.location import Location
    from odradek.archive.tables import Table
    from odradek.archiving.replay_sources import ArchivedTopic

    return ArchivedTopic(Table.open(Location.of(archive, topic, dict(map(key_value, storage or ())))))


def _warn_of_retention(cluster: Access, snapshot: "Snapshot", target: str) -> None:
    from odradek.archiving.replay_sources import retention_warning

    limit_ms = retention_ms(cluster, target)
    warning = retention_warning(snapshot.files, target, limit_ms, int(time.time() * 1000))
    if warning is not None:
        warn(warning)


def _report(done: "Progress") -> None:
    note(f"{done.title}: up to {done.position} of {done.end}")


def _report_json(done: "Progress") -> None:
    facts = {"part": done.title, "position": done.position, "end": done.end, "records": done.rows}
    print_event({"event": "progress", **facts})


def _silent(done: "Progress") -> None:
    """Print nothing, for --quiet."""
