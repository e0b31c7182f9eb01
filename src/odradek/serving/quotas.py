"""Quotas of clients, applied to their requests: how many bytes they produce and consume, and how much of this node's
time their requests take.

A response leaves at once, and says for how long its client is throttled; then nothing more is read from the connection
for that long (`serving.conversation`). A Fetch over its quota gets an empty response, because what it would have read
was not sent. Limits, rates and times are Kafka's (`odradek.quotas`).

While no quota is set, a request costs one look at `is_active`. While one is, each request of a client that a limit
applies to has a `Metered`, shared by all requests of the same user and client id; all others have none. Requests are
timed only while a `request_percentage` is set for anybody: what counts is the time until a request first waits for
something, in percent of one second. It is counted when it is over, and throttles the next response of the client.

Not measured are requests that only nodes send (those that need access to the cluster, a replica's Fetch), logins,
requests to the listeners of a controller, and a node's requests to itself.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.apis.row import Operation
from odradek.apis.table import APIS
from odradek.config.broker import BrokerConfig
from odradek.host.metrics import Metrics
from odradek.metadata.image import MetadataImage
from odradek.model import Caller

if TYPE_CHECKING:
    from odradek.quotas.meters import Meter, Meters
    from odradek.quotas.windows import Rate
    from odradek.serving.request import Request

PERCENT = 100.0
MOST_FOUND = 10_000  # clients whose limits are remembered
# Requests of nodes, and logins.
EXEMPT = frozenset(
    api.key
    for api in APIS.values()
    if api.name in ("SaslHandshake", "SaslAuthenticate")
    or any(need.operation is Operation.CLUSTER_ACTION for need in api.access.needs)
)


class ClientQuotas:
    """The quotas that apply to the clients of a broker."""

    __slots__ = (
        "_config",
        "_fetched",
        "_found",
        "_metrics",
        "_now_ms",
        "_produced",
        "_spent",
        "is_active",
        "times_requests",
    )

    def __init__(self, config: BrokerConfig, now_ms: Callable[[], int], metrics: Metrics) -> None:
        """`now_ms` is a clock that never goes back."""
        self._config = config
        self._now_ms = now_ms
        self._metrics = metrics
        self._produced: Meters[Rate] | None = None  # until a quota is set
        self._fetched: Meters[Rate] | None = None
        self._spent: Meters[Rate] | None = None
        self._found: dict[tuple[str, str | None], Metered | None] = {}
        self.is_active = False
        self.times_requests = False

    def apply(self, image: MetadataImage) -> None:
        """Follow the quotas of this image."""
        self._found.clear()
        if self._produced is None:
            if not image.quotas:
                return
            self._begin()
        assert self._produced is not None and self._fetched is not None and self._spent is not None
        for meters in (self._produced, self._fetched, self._spent):
            meters.apply(image.quotas)
        self.times_requests = bool(self._spent)
        self.is_active = bool(self._produced or self._fetched or self._spent)

    def _begin(self) -> None:
        """Imported by those who have quotas."""
        from odradek.quotas.keys import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE
        from odradek.quotas.meters import Meters
        from odradek.quotas.windows import Rate

        windows, window_ms = quota_windows(self._config)

        def new_rate() -> Rate:
            return Rate(windows, window_ms)

        self._produced = Meters(PRODUCER_BYTE_RATE, new_rate)
        self._fetched = Meters(CONSUMER_BYTE_RATE, new_rate)
        self._spent = Meters(REQUEST_PERCENTAGE, new_rate)

    def find(self, api_key: int, caller: Caller) -> "Metered | None":
        """The meters of a caller; None if nothing limits it."""
        if api_key in EXEMPT or caller.is_node:
            return None
        key = caller.principal.name, caller.client_id
        try:
            return self._found[key]
        except KeyError:
            return self._look_up(key)

    def _look_up(self, key: tuple[str, str | None]) -> "Metered | None":
        from odradek.quotas.keys import MAX_NAME_LENGTH

        assert self._produced is not None and self._fetched is not None and self._spent is not None
        user, client_id = key[0], key[1] or ""
        produced, fetched = self._produced.find(user, client_id), self._fetched.find(user, client_id)
        spent = self._spent.find(user, client_id)
        metered = None
        if produced or fetched or spent:
            windows, window_ms = quota_windows(self._config)
            metered = Metered(
                self._metrics, self._now_ms, produced, fetched, spent, (windows - 1) * window_ms, window_ms
            )
        if len(user) + len(client_id) <= MAX_NAME_LENGTH:  # whoever has longer ones is looked up each time
            if len(self._found) >= MOST_FOUND:
                self._found.clear()
            self._found[key] = metered
        return metered


class NoQuotas:
    """Nothing limits the clients of a listener."""

    is_active = times_requests = False

    def find(self, api_key: int, caller: Caller) -> None:
        return None


NO_QUOTAS = NoQuotas()


class Metered:
    """One client, by its user and client id, that a quota applies to."""

    __slots__ = ("_burst_ms", "_fetched", "_max_throttle_ms", "_metrics", "_now_ms", "_produced", "_spent")

    def __init__(
        self,
        metrics: Metrics,
        now_ms: Callable[[], int],
        produced: "Meter[Rate] | None",
        fetched: "Meter[Rate] | None",
        spent: "Meter[Rate] | None",
        burst_ms: int,
        max_throttle_ms: int,
    ) -> None:
        """`burst_ms`: whose bytes a single Fetch may read. `max_throttle_ms`: because of the time of its requests."""
        self._metrics = metrics
        self._now_ms = now_ms
        self._produced, self._fetched, self._spent = produced, fetched, spent
        self._burst_ms = burst_ms
        self._max_throttle_ms = max_throttle_ms

    def spend(self, seconds: float) -> None:
        """A request took so much of this node's time."""
        if self._spent is not None:
            self._spent.used.record(seconds * PERCENT, self._now_ms())

    def answered(self, request: "Request") -> None:
        """A response leaves, to any request but Produce and Fetch."""
        self._throttle(request, 0, "", self._time_throttle_ms(self._now_ms()))

    def produced(self, request: "Request", has_response: bool) -> None:
        """The response to a Produce leaves. One with acks=0 has none, and counts by its bytes alone."""
        now_ms, throttle_ms = self._now_ms(), 0
        if self._produced is not None:
            meter = self._produced
            meter.used.record(request.frame_size, now_ms)
            throttle_ms = meter.used.throttle_ms(meter.limit, now_ms)
        because_of_time = self._time_throttle_ms(now_ms) if has_response else 0
        self._throttle(request, throttle_ms, "produce", because_of_time)

    def max_fetched_bytes(self, most: int) -> int:
        """Return how much a Fetch may read: not more than can be sent within the windows that are measured."""
        meter = self._fetched
        return most if meter is None else min(most, int(meter.limit * self._burst_ms / 1000))

    def fetched(self, request: "Request", size: int) -> bool:
        """The response to a Fetch is about to leave, with so many bytes of records. False if it must be empty."""
        now_ms, throttle_ms, meter = self._now_ms(), 0, self._fetched
        if meter is not None:
            meter.used.record(size, now_ms)
            throttle_ms = meter.used.throttle_ms(meter.limit, now_ms)
        self._throttle(request, throttle_ms, "fetch", self._time_throttle_ms(now_ms))
        if request.throttle_ms and meter is not None:
            meter.used.record(-size, now_ms)
        return not request.throttle_ms

    def _time_throttle_ms(self, now_ms: int) -> int:
        meter = self._spent
        if meter is None:
            return 0
        return min(meter.used.throttle_ms(meter.limit, now_ms), self._max_throttle_ms)

    def _throttle(self, request: "Request", because_of_bytes: int, kind: str, because_of_time: int) -> None:
        throttle_ms = max(because_of_bytes, because_of_time)
        if throttle_ms > 0:
            quota = kind if because_of_bytes > because_of_time else "request"
            self._metrics.count_throttle(quota, throttle_ms / 1000)
            request.throttle_ms = max(request.throttle_ms, throttle_ms)


def quota_windows(config: BrokerConfig) -> tuple[int, int]:
    """Return the number of windows, and the length of each in milliseconds."""
    return config["quota.window.num"], config["quota.window.size.seconds"] * 1000
