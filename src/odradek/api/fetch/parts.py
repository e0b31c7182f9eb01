"""The parts of a node that every Fetch works with, and how a Fetch refuses a partition."""

from odradek.config.broker_definitions import RACK_AWARE_SELECTOR
from odradek.errors import ErrorCode, KafkaError
from odradek.fetching.sessions import Wanted
from odradek.fetching.shared_reads import SharedReads
from odradek.fetching.sources import Sources
from odradek.replication.source import Fetched
from odradek.serving.leader_hints import HINTED, leader_hint
from odradek.serving.refused import log_unreadable
from odradek.serving.request import Request
from odradek.serving.services import Services
from odradek.storage.disk.shortage import CannotOpen
from odradek.wire.fetch_response import FetchedPartition
from odradek.wording import shown

HINTS_SINCE = 16
UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class FetchParts:
    """The parts of a node that every Fetch works with, looked up once."""

    __slots__ = (
        "cluster",
        "deadlines",
        "follower_reads",
        "leader_quota",
        "max_bytes",
        "replica_fetched",
        "selects_by_rack",
        "sources",
        "steady_ms",
    )

    def __init__(self, services: Services) -> None:
        config = services.node.config
        self.cluster = services.cluster
        self.sources = Sources(services)
        self.replica_fetched = services.partitions.replica_fetched
        self.follower_reads = SharedReads()
        self.leader_quota = services.partitions.leader_quota
        self.deadlines = services.node.deadlines
        self.steady_ms = services.node.host.steady_ms
        self.max_bytes: int = config["fetch.max.bytes"]
        # Consumers are sent to replicas in their racks.
        self.selects_by_rack: bool = config["replica.selector.class"] == RACK_AWARE_SELECTOR

    def refuse(
        self, request: Request, wanted: Wanted, error: KafkaError | OSError, *, is_follower: bool = False
    ) -> Fetched:
        """Answer for a partition that cannot be read. A follower may know a new topic before we do: it tries again, and
        says itself if that lasts."""
        index = wanted.asked.partition
        if isinstance(error, OSError):
            if not isinstance(
                error, CannotOpen
            ):  # logged where files are opened, once and not for each request
                log_unreadable(wanted.topic or str(wanted.topic_id), index, error)
            return FetchedPartition(index, ErrorCode.KAFKA_STORAGE_ERROR)
        topic = wanted.topic or self.cluster.topic_name(wanted.topic_id) or str(wanted.topic_id)
        is_routine = is_follower and error.code in UNKNOWN
        request.refused(
            f"{shown(topic)}, partition {index}", error.code, error.message, is_routine=is_routine
        )
        aborted: list[tuple[int, int]] | None = [] if error.code in UNKNOWN else None
        hint = None
        if error.code in HINTED and request.version >= HINTS_SINCE:
            hint = leader_hint(self.cluster, request, topic, index)
        return FetchedPartition(index, error.code, aborted=aborted, leader=hint)
