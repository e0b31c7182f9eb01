"""Pages for monitoring: metrics in Prometheus's text format, and whether the node is alive and ready.

    /metrics    numbers, each explained in docs/METRICS.md
    /healthz    200 while the event loop runs and nothing has made the node stop
    /readyz     200 once the node has started and can serve: the quorum has a leader, and the broker is not fenced

Counters come from `host.metrics`; gauges are looked up for each request. Elections and ISR changes are counted from the
metadata (`apply` is called for every change), so they count no matter which controller decided them.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from odradek import __version__
from odradek.apis.table import api_name
from odradek.controller.reassignment import is_reassigning
from odradek.errors import ErrorCode
from odradek.host.metrics import SECONDS, Histogram, Metrics, Traffic
from odradek.metadata.delta import MetadataDelta, TopicChange
from odradek.metadata.image import NO_LEADER, Partition
from odradek.net.pages import TEXT, Page
from odradek.replication.quota import ReplicationQuota
from odradek.replication.replicas import Replicas
from odradek.services.cluster.metadata import BrokerMetadata
from odradek.services.upkeep.disk_watch import DiskWatch
from odradek.serving.turns import Turns

PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
NOBODY = -1
UNCLEAN = 1  # leader_recovery_state

Labels = Mapping[str, object]


class Parts(NamedTuple):
    """The parts of a node that the numbers come from."""

    node_id: int
    is_broker: bool
    metadata: BrokerMetadata
    replicas: Replicas
    metrics: Metrics
    traffic: Mapping[str, Traffic]  # by who connects: clients to this node, or this node to others
    disk: DiskWatch
    throttled: Mapping[str, ReplicationQuota]  # by what this node is: leader or follower
    connection_count: Callable[[], int]
    group_count: Callable[[], int]
    failure: Callable[[], str]  # why the node stops; empty while it does not
    is_started: Callable[[], bool]


class Monitoring:
    def __init__(self, parts: Parts, turns: Turns) -> None:
        self._of = parts
        self._metrics = parts.metrics
        self._quorum = parts.metadata.quorum
        self._turns = turns

    # --- what changes in the cluster ---

    def apply(self, delta: MetadataDelta) -> None:
        for change in delta.changed_topics:
            self._count_changes(change)

    def _count_changes(self, change: TopicChange) -> None:
        metrics, is_active = self._metrics, self._quorum.is_active
        for index in change.indexes:
            before, after = change.before.partitions.get(index), change.after.partitions[index]
            if before is None:
                continue
            if after.leader == self._of.node_id and before.isr != after.isr:
                metrics.isr_shrinks += not set(before.isr) <= set(after.isr)
                metrics.isr_expands += not set(after.isr) <= set(before.isr)
            if is_active and _is_election(before, after):
                metrics.leader_elections += 1
                metrics.unclean_leader_elections += after.leader_recovery_state == UNCLEAN

    # --- pages ---

    async def page(self, path: str) -> Page:
        if path == "/metrics":
            return Page(200, await self.metrics_text(), PROMETHEUS)
        if path == "/healthz":
            failure = self._of.failure()
            return Page(503, f"stopping: {failure}\n") if failure else Page(200, "alive\n")
        if path == "/readyz":
            reason = self.why_not_ready()
            return Page(503, f"not ready: {reason}\n") if reason else Page(200, "ready\n")
        return Page(404, "/metrics, /healthz and /readyz are here\n", TEXT)

    def why_not_ready(self) -> str:
        """The reason; empty if the node is ready."""
        of = self._of
        if failure := of.failure():
            return f"the node stops: {failure}"
        if not of.is_started():
            return "the node has not started yet"
        if self._quorum.leader is None:
            return "this node knows no leader of the metadata quorum"
        return self._why_broker_is_not_ready() if of.is_broker else ""

    def _why_broker_is_not_ready(self) -> str:
        broker = self._of.metadata.image.brokers.get(self._of.node_id)
        if broker is None:
            return "the broker is not registered"
        if broker.is_fenced:
            return "the broker is fenced"
        return "the broker is shutting down" if broker.in_controlled_shutdown else ""

    async def metrics_text(self) -> str:
        partitions = await self._look_at_partitions()
        offline = await self._count_offline()
        text = Exposition()
        self._write_requests(text)
        self._write_partitions(text, partitions, offline)
        self._write_disk(text)
        self._write_metadata(text)
        text.histogram("event_loop_lag_seconds", self._metrics.event_loop_lag)
        text.histogram("sync_seconds", self._metrics.sync_time)
        text.histogram("metadata_sync_seconds", self._metrics.metadata_sync_time)
        return str(text)

    def _write_requests(self, text: "Exposition") -> None:
        of, metrics = self._of, self._metrics
        text.add("build_info", [({"version": __version__}, 1)])
        text.add("ready", [({}, int(not self.why_not_ready()))])
        text.add(
            "requests_total",
            [({"api": api_name(key)}, one.requests) for key, one in sorted(metrics.apis.items())],
        )
        text.add(
            "request_errors_total",
            [
                ({"api": api_name(key), "error": _error_name(code)}, count)
                for (key, code), count in sorted(metrics.errors.items())
            ],
        )
        sides = list(of.traffic.items())
        text.add("received_bytes_total", [({"side": side}, one.received_bytes) for side, one in sides])
        text.add("sent_bytes_total", [({"side": side}, one.sent_bytes) for side, one in sides])
        text.add("connections_total", [({"side": side}, one.connections) for side, one in sides])
        throttles = sorted(metrics.throttles.items())
        text.add("throttled_responses_total", [({"quota": quota}, one.responses) for quota, one in throttles])
        text.add("throttle_seconds_total", [({"quota": quota}, one.seconds) for quota, one in throttles])
        text.add("throttled_connections_total", [({}, of.traffic["clients"].throttled_connections)])
        text.add("connections", [({}, of.connection_count())])
        text.add("groups", [({}, of.group_count())])

    def _write_partitions(self, text: "Exposition", found: "PartitionCounts", offline: int) -> None:
        metrics = self._metrics
        for name, value in (
            ("replicas", found.replicas),
            ("leaders", found.leaders),
            ("under_replicated_partitions", found.under_replicated),
            ("under_min_isr_partitions", found.under_min_isr),
            ("reassigning_partitions", found.reassigning),
            ("offline_partitions", offline),
            ("log_size_bytes", found.size_bytes),
            ("damaged_logs", found.damaged),
            ("checked_bytes_total", metrics.checked_bytes),
            ("isr_shrinks_total", metrics.isr_shrinks),
            ("isr_expands_total", metrics.isr_expands),
            ("leader_elections_total", metrics.leader_elections),
            ("unclean_leader_elections_total", metrics.unclean_leader_elections),
        ):
            text.add(name, [({}, value)])
        text.add(
            "throttled_replication_bytes_total",
            [({"role": role}, quota.total_bytes) for role, quota in self._of.throttled.items()],
        )

    def _write_disk(self, text: "Exposition") -> None:
        disk = self._of.disk
        total, free = disk.space()
        for name, value in (
            ("disk_total_bytes", total),
            ("disk_free_bytes", free),
            ("disk_full", int(disk.is_full)),
            ("writes_refused_total", disk.refused),
        ):
            text.add(name, [({}, value)])

    def _write_metadata(self, text: "Exposition") -> None:
        quorum, image = self._quorum, self._of.metadata.image
        high_watermark, leader = quorum.log.high_watermark, quorum.leader
        fenced = sum(broker.is_fenced for broker in image.brokers.values()) if quorum.is_active else 0
        for name, value in (
            ("active_controller", int(quorum.is_active)),
            ("fenced_brokers", fenced),
            ("quorum_leader", NOBODY if leader is None else leader[0]),
            ("quorum_epoch", quorum.epoch),
            ("quorum_high_watermark", high_watermark),
            ("metadata_offset", image.offset),
            ("metadata_lag_records", max(high_watermark - 1 - image.offset, 0)),
        ):
            text.add(name, [({}, value)])

    async def _look_at_partitions(self) -> "PartitionCounts":
        counts = PartitionCounts()
        pace = self._turns.pace()
        for replica in list(self._of.replicas):
            await pace.step()
            counts.replicas += 1
            counts.size_bytes += replica.log.size_bytes
            counts.damaged += replica.log.damage is not None
            leader = replica.leader
            if leader is not None:
                counts.leaders += 1
                counts.under_replicated += len(leader.isr) < len(leader.replicas)
                counts.under_min_isr += not leader.has_enough_replicas
                registration = self._of.metadata.image.partition(*replica.topic_partition)
                counts.reassigning += registration is not None and is_reassigning(registration)
        return counts

    async def _count_offline(self) -> int:
        """Only the active controller counts them, so that a sum over all nodes counts each partition once."""
        if not self._quorum.is_active:
            return 0
        pace, count = self._turns.pace(), 0
        for topic in self._of.metadata.image.topics.values():
            await pace.step()
            count += sum(one.leader == NO_LEADER for one in topic.partitions.values())
        return count


class PartitionCounts:
    def __init__(self) -> None:
        self.replicas = self.leaders = self.size_bytes = self.damaged = 0
        self.under_replicated = self.under_min_isr = self.reassigning = 0


def _is_election(before: Partition, after: Partition) -> bool:
    return (
        after.leader != NO_LEADER
        and after.leader_epoch > before.leader_epoch
        and after.leader != before.leader
    )


def _error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


# --- Prometheus's text ---

HELP = {
    "build_info": "The version of Odradek that runs.",
    "ready": "1 if /readyz says that the node is ready.",
    "requests_total": "Requests, by API.",
    "request_errors_total": "Responses, or partitions of them, that carried an error code.",
    "received_bytes_total": "Bytes received from those who connected to this node, or from nodes it connected to.",
    "sent_bytes_total": "Bytes sent, likewise.",
    "connections_total": "Connections made since the start, likewise.",
    "throttled_responses_total": "Responses to clients over a quota, by quota: produce, fetch, request, mutation.",
    "throttle_seconds_total": "For how long these clients were throttled, in all.",
    "throttled_connections_total": "Connections that were not served because of the quota of their address.",
    "connections": "Connections to this node now.",
    "groups": "Groups that this node coordinates.",
    "replicas": "Replicas that this node keeps.",
    "leaders": "Partitions that this node leads.",
    "under_replicated_partitions": "Partitions led here that have replicas out of sync.",
    "under_min_isr_partitions": "Partitions led here that refuse acks=all for want of in-sync replicas.",
    "reassigning_partitions": "Partitions led here that are being moved to other brokers.",
    "offline_partitions": "Partitions without a leader; told by the active controller alone.",
    "log_size_bytes": "Size of all logs.",
    "damaged_logs": "Logs in which damage was found, and that were not copied again yet.",
    "checked_bytes_total": "Bytes of logs whose CRCs were compared by the integrity check.",
    "disk_total_bytes": "Size of the disk of the data directory.",
    "disk_free_bytes": "Free space on it.",
    "disk_full": "1 while this node refuses users' records because its disk is full.",
    "writes_refused_total": "Batches of producers that were refused because the disk was full.",
    "isr_shrinks_total": "Replicas that left the ISR of a partition led here.",
    "isr_expands_total": "Replicas that joined the ISR of a partition led here.",
    "throttled_replication_bytes_total": "Bytes of throttled replicas, sent as leader or fetched as follower (KIP-73).",
    "leader_elections_total": "New leaders of partitions, while this node was the active controller.",
    "unclean_leader_elections_total": "Those of them that may have lost records.",
    "active_controller": "1 if this node is the active controller.",
    "fenced_brokers": "Registered brokers that are fenced; told by the active controller alone.",
    "quorum_leader": "The node that leads the metadata quorum; -1 if none is known.",
    "quorum_epoch": "The epoch of the metadata quorum.",
    "quorum_high_watermark": "How far the metadata is committed, as this node knows.",
    "metadata_offset": "How far this node has applied the metadata.",
    "metadata_lag_records": "Records of committed metadata that this node has not applied yet.",
    "event_loop_lag_seconds": "How late timers fire while requests are handled: all clients wait for that long.",
    "metadata_sync_seconds": "How long syncs of the metadata log take; every change of the metadata waits for them.",
    "sync_seconds": "How long syncs of the disk take; producers with acks=all wait for them.",
}
PREFIX = "odradek_"


class Exposition:
    """Text in version 0.0.4 of Prometheus's format. A name that ends in _total is a counter, others are gauges."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def __str__(self) -> str:
        return "\n".join([*self._lines, ""])

    def add(self, name: str, values: Iterable[tuple[Labels, float]]) -> None:
        self._head(name, "counter" if name.endswith("_total") else "gauge")
        for labels, value in values:
            self._lines.append(f"{PREFIX}{name}{_labelled(labels)} {value}")

    def histogram(self, name: str, found: Histogram) -> None:
        self._head(name, "histogram")
        total = 0
        for bound, count in zip((*SECONDS, "+Inf"), found.counts, strict=True):
            total += count
            self._lines.append(f'{PREFIX}{name}_bucket{{le="{bound}"}} {total}')
        self._lines += [f"{PREFIX}{name}_sum {found.seconds}", f"{PREFIX}{name}_count {total}"]

    def _head(self, name: str, kind: str) -> None:
        self._lines += [f"# HELP {PREFIX}{name} {HELP[name]}", f"# TYPE {PREFIX}{name} {kind}"]


def _labelled(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(str(value))}"' for name, value in labels.items()) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
