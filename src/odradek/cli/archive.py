"""`odradek archive`: topics into Delta tables, once or for ever."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from odradek.admin.access import Access
from odradek.cli.access import on_cluster
from odradek.cli.arguments import key_value
from odradek.cli.completion import complete_topics
from odradek.cli.failures import CommandError
from odradek.cli.framework import Argument, BadParameter, Option
from odradek.cli.metrics_server import MetricsPort, metrics_served
from odradek.cli.output import note, print_event, print_line, warn
from odradek.wording import counted, readable_size

if TYPE_CHECKING:
    from odradek.archiving.archiver import Archiver, Order
    from odradek.archiving.rounds import Round
    from odradek.client.settings import ClientSettings

START_ONE = ": start one with 'odradek up', or name another with --bootstrap-server"  # as all commands say
OUTAGE_S = 600.0  # how long a cluster that was reached before is waited for

Storage = Annotated[
    list[str] | None,
    Option(
        "--storage",
        metavar="NAME=VALUE",
        help="A setting of object storage, like AWS_REGION=eu-west-1; repeatable. The environment counts, too.",
    ),
]
Pattern = Annotated[
    str | None,
    Option("--pattern", metavar="REGEX", help="Archive the topics whose whole name matches, new ones too."),
]
Once = Annotated[
    bool, Option("--once", help="End once everything that is there now is archived (the default).")
]
Interval = Annotated[
    float, Option("--interval", metavar="SECONDS", min=0.1, help="With --watch: how often to look.")
]
SkipLost = Annotated[
    bool, Option("--skip-lost", help="Go on where a topic has deleted records before they were archived.")
]
NoProgress = Annotated[bool, Option("--quiet", "-q", help="Do not report progress.")]
JsonLines = Annotated[bool, Option("--json", help="Print progress as JSON, an object a line.")]


@on_cluster
def archive(
    cluster: Access,
    to: Annotated[
        str, Option("--to", metavar="PATH", help="A directory, or a URL like s3://bucket/archive.")
    ],
    topics: Annotated[
        list[str] | None, Argument(metavar="TOPIC...", help="Topics to archive.", complete=complete_topics)
    ] = None,
    pattern: Pattern = None,
    once: Once = False,
    watch: Annotated[bool, Option("--watch", help="Go on, until Ctrl-C.")] = False,
    interval: Interval = 60.0,
    skip_lost: SkipLost = False,
    storage: Storage = None,
    metrics_port: MetricsPort = None,
    quiet: NoProgress = False,
    as_json: JsonLines = False,
) -> None:
    """Archive topics into Delta tables, one for each topic, that outlive the topics' retention.

    The table of a topic is PATH/TOPIC. It says by itself up to where each partition is archived, so an archiver that
    was killed goes on where it stopped, and each record is in the table once. Committed records alone are archived.
    Small files are merged as the table grows.

    Any tool that reads Delta or Parquet reads the tables; 'odradek sql --archive PATH' and Spark read history and the
    rest of the topic as one.

    odradek archive orders --to /data/archive

    odradek archive --pattern 'shop\\..*' --to s3://bucket/archive --watch --interval 300
    """
    if not topics and pattern is None:
        raise BadParameter("which topics? Name them, or give a --pattern")
    if once and watch:
        raise BadParameter("--once ends, --watch goes on: give one of them")
    with failures_told():
        from odradek.archiving.archiver import Order

        settings = settings_of(cluster, OUTAGE_S if watch else None)
        order = Order(
            settings,
            to,
            tuple(topics or ()),
            pattern,
            dict(map(key_value, storage or ())),
            skip_lost,
            lambda topic: retention_ms(cluster, topic),
        )
        _run(order, interval if watch else None, metrics_port, is_quiet=quiet, as_json=as_json)


def _run(
    order: "Order", interval_s: float | None, port: int | None, *, is_quiet: bool, as_json: bool
) -> None:
    from odradek.archiving.archiver import Archiver
    from odradek.archiving.metrics import Metrics

    report = _report_json if as_json else _silent if is_quiet else _report
    metrics = Metrics()
    with metrics_served(metrics.text, port) as url:
        if url is not None:
            note(f"metrics at {url}")
        archiver = Archiver(order, report, warn, metrics)
        if interval_s is None:
            rows = archiver.run_once()
            if as_json:
                print_event({"event": "end", "records": rows})
            else:
                print_line(f"{counted(rows, 'record')} archived")
        else:
            _watch(archiver, interval_s)


def _watch(archiver: "Archiver", interval_s: float) -> None:
    from odradek.cli.stopping import stopping

    with stopping(archiver.stop):
        archiver.run(lambda: archiver.pause(interval_s))


def _report(done: "Round") -> None:
    if done.rows or done.lag:
        behind = f"{counted(done.lag, 'offset')} to go" if done.lag else "up to date"
        note(f"{done.topic}: {counted(done.rows, 'record')} archived ({readable_size(done.size)}), {behind}")


def _report_json(done: "Round") -> None:
    """Print a line for each round."""
    facts = {"records": done.rows, "bytes": done.size, "lag": done.lag}
    partitions = [
        {"partition": number, "end_offset": end, "lag": done.lags.get(number, 0)}
        for number, end in sorted(done.ends.items())
    ]
    print_event({"event": "progress", "topic": done.topic, **facts, "partitions": partitions})


def _silent(done: "Round") -> None:
    """Print nothing, for --quiet."""


def settings_of(cluster: Access, outage_s: float | None = None) -> "ClientSettings":
    """Settings of our own client for a cluster."""
    from odradek.admin.requests import client_settings

    addresses = cluster.servers()
    settings = replace(client_settings(cluster, addresses[0]), bootstrap=tuple(addresses))
    return settings if outage_s is None else replace(settings, api_timeout_s=outage_s)


def retention_ms(cluster: Access, topic: str) -> int | None:
    """After which time the topic deletes records; None if it does not, or will not say."""
    from odradek.admin.failures import AdminError
    from odradek.admin.resources import Kind
    from odradek.admin.settings import view_settings

    try:
        views = view_settings(cluster, Kind.TOPIC, topic, ["cleanup.policy", "retention.ms"])
    except AdminError:
        return None
    values = {view.key: view.value for view in views}
    deletes = "delete" in (values.get("cleanup.policy") or "delete")
    limit = int(values.get("retention.ms") or -1)
    return limit if deletes and limit >= 0 else None


@contextmanager
def failures_told() -> Iterator[None]:
    """Failures of archives and of the cluster in one line."""
    try:
        from odradek.archive.failures import ArchiveError
        from odradek.client.cluster import NOBODY_REACHED, MissingTopic
        from odradek.client.connection import ConnectionLost
        from odradek.client.deadline import TimedOut
        from odradek.client.properties import InvalidProperty
        from odradek.errors import KafkaError

        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("odradek"):
            raise
        raise CommandError(
            f"this command needs more packages ({error.name}): install them with pip install '.[archive,sql]' in a "
            "clone of Odradek"
        ) from None
    except (
        ArchiveError,
        ConnectionLost,
        TimedOut,
        KafkaError,
        MissingTopic,
        InvalidProperty,
        ValueError,
        OSError,
    ) as error:
        raise CommandError(str(error).replace(NOBODY_REACHED, START_ONE)) from None
