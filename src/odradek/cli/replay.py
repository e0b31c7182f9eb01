"""`odradek replay`: from an archive back into a topic."""

import time
from typing import TYPE_CHECKING, Annotated

from odradek.admin.access import Access
from odradek.cli.access import on_cluster
from odradek.cli.archive import OUTAGE_S, NoProgress, Storage, failures_told, retention_ms, settings_of
from odradek.cli.arguments import key_value
from odradek.cli.framework import Argument, Option
from odradek.cli.output import note, print_line, warn

if TYPE_CHECKING:
    from odradek.archive.layout import Snapshot
    from odradek.archiving.replay import Progress


@on_cluster
def replay(
    cluster: Access,
    topic: Annotated[str, Argument(metavar="TOPIC", help="The archived topic.")],
    archive: Annotated[
        str,
        Option(
            "--archive", metavar="PATH", help="The archive: a directory, or a URL like s3://bucket/archive."
        ),
    ],
    to: Annotated[
        str | None, Option("--to", metavar="TOPIC", help="The topic to write to (default: the same name).")
    ] = None,
    storage: Storage = None,
    quiet: NoProgress = False,
) -> None:
    """Write an archived topic into a topic, each record exactly once.

    Records keep their partition, order, key, headers and timestamp; offsets are new ones. Records become visible in
    transactions, together with the position in the ledger (see 'odradek ledger'): a replay that was killed goes on
    where it stopped, and one that is run again writes only what has been archived since.

    The target must exist, with at least as many partitions. Consumers need isolation.level=read_committed to see each
    record once.

    odradek replay orders --archive /data/archive --to orders-of-2025
    """
    with failures_told():
        from odradek.archive.location import Location
        from odradek.archive.tables import Table
        from odradek.archiving.replay import Replay
        from odradek.client.cluster import borrow_cluster

        target = to or topic
        table = Table.open(Location.of(archive, topic, dict(map(key_value, storage or ()))))
        with borrow_cluster(settings_of(cluster, OUTAGE_S)) as client:
            work = Replay(client, table, target, _silent if quiet else _report)
            _warn_of_retention(cluster, work.snapshot, target)
            rows = work.run()
    print_line(f"{rows} records replayed into {target}")


def _warn_of_retention(cluster: Access, snapshot: "Snapshot", target: str) -> None:
    from odradek.archiving.replay import retention_warning

    limit_ms = retention_ms(cluster, target)
    warning = retention_warning(snapshot.files, target, limit_ms, int(time.time() * 1000))
    if warning is not None:
        warn(warning)


def _report(done: "Progress") -> None:
    note(f"partition {done.partition}: up to offset {done.position} of {done.end}")


def _silent(done: "Progress") -> None:
    """For --quiet."""
