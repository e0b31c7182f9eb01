"""`odradek mirror`: topics of one cluster, copied to another, each record exactly once.

`odradek mirror FILE` is `odradek mirror run FILE`.
"""

import contextlib
import logging
import sys
from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from odradek.cli.arguments import JsonOutput
from odradek.cli.failures import CommandError
from odradek.cli.framework import Argument, Exit, Group, Option
from odradek.cli.metrics_server import MetricsHost, MetricsPort, metrics_served
from odradek.cli.output import note, print_columns, print_json, print_json_line, print_line
from odradek.pipeline.file.errors import PipelineError, PipelineErrors

if TYPE_CHECKING:
    from odradek.mirror.file import MirrorSettings
    from odradek.mirror.groups import Sides
    from odradek.mirror.lag import PartitionLag
    from odradek.mirror.positions import Positions

app = Group(
    help="Copy topics to another cluster, each record exactly once. 'odradek mirror FILE' runs the mirror that FILE "
    "describes; several processes with the same file share the work.",
    default="run",
    epilog="docs/MIRROR.md has a file to start from, and says how to fail over and back.",
)

FileArgument = Annotated[Path, Argument(metavar="FILE", help="The mirror's TOML file.")]
MEGABYTE = 1_000_000


@contextlib.contextmanager
def told(as_json: bool = False) -> Iterator[None]:
    """Report what is wrong with the file, the clusters or the user's access, with exit status 1."""
    from odradek.client.cluster import MissingTopic
    from odradek.client.connection import ConnectionLost
    from odradek.client.deadline import TimedOut
    from odradek.errors import KafkaError
    from odradek.mirror.position import UnreadablePosition

    try:
        yield
    except PipelineError as error:
        if not as_json:
            raise CommandError(str(error)) from None
        errors = error.errors if isinstance(error, PipelineErrors) else [error]
        facts = [{"line": one.line, "key": one.key, "problem": one.problem} for one in errors]
        print_json_line({"ok": False, "errors": facts})
        raise Exit(1) from None
    except (ConnectionLost, TimedOut, KafkaError, MissingTopic, UnreadablePosition) as error:
        raise CommandError(str(error)) from None


@app.command()
def run(
    file: FileArgument,
    once: Annotated[bool, Option("--once", help="Copy what is there now, then exit.")] = False,
    accept_loss: Annotated[
        bool,
        Option(
            "--accept-loss",
            help="Go on where the source has deleted records before they were copied, instead of stopping there.",
        ),
    ] = False,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = "127.0.0.1",
    as_json: Annotated[bool, Option("--json", help="Print JSON lines.")] = False,
) -> None:
    """Run a mirror until Ctrl-C. With --once, until everything is copied that is there now.

    The state is on the target, so a process may be killed at any time: the next one goes on where the copy ends, and no
    record is lost or copied twice. Progress is a line every five seconds.
    """
    with told(as_json):
        from odradek.cli.stopping import stopping
        from odradek.descriptors import claim_descriptors
        from odradek.exposition import Numbers
        from odradek.mirror.file import load
        from odradek.mirror.running import MirrorRun

        logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
        settings = load(file)
        claim_descriptors()  # three connections for each partition
        metrics = Numbers(METRICS)
        lines = Lines(as_json, metrics)
        mirror = MirrorRun(settings, lines.tell, once=once, accepts_loss=accept_loss)
        with metrics_served(metrics.text, metrics_port, metrics_host) as url, stopping(mirror.stop):
            if url is not None:
                lines.tell({"event": "metrics", "url": url})
            went_well = mirror.run()
    if not went_well:
        raise Exit(1)


METRICS = {
    "odradek_mirror_records_total": ("counter", "Records copied."),
    "odradek_mirror_bytes_total": ("counter", "Bytes of records copied, as compressed as they are."),
    "odradek_mirror_transactions_total": ("counter", "Transactions committed."),
    "odradek_mirror_lag_offsets": ("gauge", "Offsets of the source that are not copied."),
    "odradek_mirror_behind_seconds": ("gauge", "The age, at most, of the oldest record that is not copied."),
    "odradek_mirror_partitions": ("gauge", "Partitions that this process copies."),
    "odradek_mirror_partitions_not_copying": ("gauge", "Of these, those that wait or have stopped."),
}


class Lines:
    """The mirror's events, a line each, and as metrics."""

    def __init__(self, as_json: bool, metrics: Any) -> None:
        self._as_json, self._metrics = as_json, metrics
        self._told: dict[str, str] = {}  # why partitions do not copy

    def tell(self, event: dict[str, Any]) -> None:
        if "records" in event:
            self._measure(event)
        if self._as_json:
            print_json_line(event)
        else:
            TOLD[event["event"]]({**event, "news": self._news(event)})
        sys.stdout.flush()

    def _news(self, event: dict[str, Any]) -> dict[str, str]:
        """Why partitions do not copy, each reason once, and all of them at the end."""
        found = event.get("not_copying", self._told)
        news = {name: why for name, why in found.items() if self._told.get(name) != why}
        self._told = dict(found)
        return found if event["event"] == "end" else news

    def _measure(self, event: dict[str, Any]) -> None:
        labels = {"source": event["source"], "target": event["target"]}
        for name in ("records", "bytes", "transactions"):
            self._metrics.set(f"odradek_mirror_{name}_total", event[name], **labels)
        self._metrics.set("odradek_mirror_partitions", event["partitions"], **labels)
        self._metrics.set("odradek_mirror_partitions_not_copying", len(event["not_copying"]), **labels)
        if event["lag"] is not None:
            self._metrics.set("odradek_mirror_lag_offsets", event["lag"], **labels)
        if event["behind_ms"] is not None:
            self._metrics.set("odradek_mirror_behind_seconds", event["behind_ms"] / 1000, **labels)


def _tell_progress(event: dict[str, Any]) -> None:
    lag = "unknown" if event["lag"] is None else event["lag"]
    if event["behind_ms"]:
        lag = f"{lag} ({event['behind_ms'] / 1000:.1f} s)"
    print_line(
        f"{event['source']} to {event['target']}: {event['records']} records, "
        f"{event['bytes'] / MEGABYTE:.1f} MB, {_partitions(event['partitions'])}, lag {lag}"
        + (f", {len(event['not_copying'])} not copying" if event["not_copying"] else "")
    )
    for partition, why in event["news"].items():
        note(f"{partition}: {why}")


def _partitions(count: int) -> str:
    return f"{count} partition{'' if count == 1 else 's'}"


def _tell_end(event: dict[str, Any]) -> None:
    _tell_progress(event)
    print_line("Done." if event["ok"] else "Not everything could be copied.")


def _tell_assigned(event: dict[str, Any]) -> None:
    note(
        f"copying {_partitions(len(event['partitions']))}"
        + (", looking after topics" if event["leads"] else "")
    )


def _tell_problem(event: dict[str, Any]) -> None:
    note(f"warning: {event['text']}")


def _tell_metrics(event: dict[str, Any]) -> None:
    note(f"metrics at {event['url']}")


TOLD = {
    "progress": _tell_progress,
    "end": _tell_end,
    "assigned": _tell_assigned,
    "problem": _tell_problem,
    "metrics": _tell_metrics,
}


@app.command()
def check(
    file: FileArgument,
    offline: Annotated[bool, Option("--offline", help="Do not look at the clusters.")] = False,
    as_json: JsonOutput = False,
) -> None:
    """Check a mirror's file, and show what it would copy and change on the target. Changes nothing."""
    with told(as_json):
        from odradek.mirror.clients import access_to
        from odradek.mirror.file import load
        from odradek.mirror.groups import carried_groups
        from odradek.mirror.upkeep import Upkeep

        settings = load(file)
        if offline:
            print_json({"ok": True}) if as_json else print_line(f"{file} is a mirror's file.")
            return
        upkeep = Upkeep(settings, access_to(settings.source), access_to(settings.target))
        look = upkeep.look()
        missing = upkeep.missing(look.partitions)
        problems = [*upkeep.missing_told(look.partitions), *look.problems]
        groups = carried_groups(settings.groups, access_to(settings.source))
    changes = look.changes.told()
    if as_json:
        facts = {"topics": dict(look.partitions), "changes": changes, "groups": groups, "missing": missing}
        print_json({"ok": not problems, **facts, "problems": problems})
        return
    copy_of = settings.direction.copy_of
    rows = [(name, count, copy_of(name)) for name, count in look.partitions.items()]
    print_columns(("TOPIC", "PARTITIONS", "COPY"), rows)
    for one in changes:
        print_line(f"would {one}")
    for group in groups:
        print_line(f"would carry over the offsets of group {group}")
    for one in problems:
        note(f"warning: {one}")


@app.command()
def status(file: FileArgument, as_json: JsonOutput = False) -> None:
    """Show how far each copy has come, and how far it is behind. While the source is away: what the target knows."""
    with told(as_json):
        from odradek.mirror.file import load

        found = lags_now(load(file))
    if as_json:
        print_json([asdict(one) for one in found])
        return
    header = ("TOPIC", "PARTITION", "COPY", "COPIED-TO", "SOURCE-END", "LAG", "RECORDS", "COPIED-AT")
    print_columns(header, [(*tuple(asdict(one).values())[:-1], _time(one.copied_at_ms)) for one in found])


def lags_now(settings: "MirrorSettings") -> "list[PartitionLag]":
    from odradek.admin.failures import NoContact
    from odradek.mirror.clients import access_to, cluster_of
    from odradek.mirror.lag import lags, last_known
    from odradek.mirror.upkeep import Upkeep, all_partitions

    source, target = settings.source, settings.target
    positions = _positions(settings)
    try:
        topics = Upkeep(settings, access_to(source), access_to(target)).topics()
    except NoContact as error:
        note(f"warning: {error}. This is what {target.name} knows of {source.name}")
        return last_known(settings.direction, positions, cluster_of(target).topic_names())
    return lags(settings.direction, cluster_of(source), positions, all_partitions(topics))


def _time(milliseconds: int | None) -> str | None:
    if milliseconds is None:
        return None
    return datetime.fromtimestamp(milliseconds / 1000).isoformat(" ", "seconds")


@app.command()
def offsets(
    file: FileArgument,
    group: Annotated[str, Option("--group", metavar="GROUP", help="The group whose offsets are translated.")],
    back: Annotated[
        bool, Option("--back", help="From the copies on the target to the source's topics, for failing back.")
    ] = False,
    execute: Annotated[
        bool, Option("--execute", help="Commit them, which needs a group without members.")
    ] = False,
    as_json: JsonOutput = False,
) -> None:
    """Translate a group's offsets from the source to the copies. Shows them; --execute commits them.

    The group does not skip a record. It may read a few a second time: docs/MIRROR.md says how many at most.
    """
    with told(as_json):
        from odradek.mirror.file import load
        from odradek.mirror.groups import commit, translated

        settings = load(file)
        sides = _sides(settings, back)
        found = translated(sides, group)
        if not found:
            raise CommandError(
                f"group {group} has committed no offsets of topics that are mirrored: check the group's name, and "
                "[topics] in the file"
            )
        if execute:
            commit(sides, group, found)
    if as_json:
        print_json({"group": group, "executed": execute, "partitions": [asdict(one) for one in found]})
        return
    header = ("TOPIC", "PARTITION", "OFFSET", "TO-TOPIC", "TO-OFFSET", "CURRENT-OFFSET")
    print_columns(header, [tuple(asdict(one).values()) for one in found])


def _positions(settings: "MirrorSettings") -> "Positions":
    from odradek.mirror.clients import cluster_of
    from odradek.mirror.positions import NAME, Positions

    target = cluster_of(settings.target)
    if NAME not in target.topic_names():
        raise CommandError(f"{settings.target.name} has no positions: this mirror has never run")
    positions = Positions(target)
    positions.prepare()
    return positions


def _sides(settings: "MirrorSettings", back: bool) -> "Sides":
    from odradek.mirror.clients import access_to
    from odradek.mirror.groups import Sides

    source, target = access_to(settings.source), access_to(settings.target)
    return Sides(source, target, settings.direction, _positions(settings), back)
