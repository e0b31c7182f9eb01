"""The counters of a running node. `services.upkeep.monitoring` serves them.

Counting must cost next to nothing: code that counts often keeps the counter object, and adds to an attribute of it.
Nothing is looked up by name, no clock is read just for a metric, and sums are computed only when metrics are read.

Errors are rare, and the code that refuses a request does not know its node. So it works as for log lines: a node enters
its `Metrics` into the context that it is built in (`enter`), and `count_error` finds it there.
"""

from bisect import bisect_left
from contextvars import ContextVar

# Upper bounds in seconds. A disk syncs in 0.1 to 10 ms; a sync of a second is an outage.
SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class ApiCount:
    """Requests of one API."""

    __slots__ = ("requests",)

    def __init__(self) -> None:
        self.requests = 0


class Traffic:
    """Traffic over the connections of one side of a node."""

    __slots__ = ("connections", "received_bytes", "sent_bytes", "throttled_connections")

    def __init__(self) -> None:
        self.connections = 0  # since the start
        self.received_bytes = 0
        self.sent_bytes = 0
        self.throttled_connections = 0  # not served, because of the quota of their address


class Histogram:
    """A distribution of how long something took."""

    __slots__ = ("counts", "seconds")

    def __init__(self) -> None:
        # Values up to each bound and above the previous one; the last counts those above all bounds.
        self.counts = [0] * (len(SECONDS) + 1)
        self.seconds = 0.0  # the sum

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(SECONDS, seconds)] += 1
        self.seconds += seconds


class Throttles:
    """Responses that told their clients to be silent because of one quota, and for how long in all."""

    __slots__ = ("responses", "seconds")

    def __init__(self) -> None:
        self.responses = 0
        self.seconds = 0.0


class Metrics:
    __slots__ = (
        "apis",
        "checked_bytes",
        "errors",
        "event_loop_lag",
        "isr_expands",
        "isr_shrinks",
        "leader_elections",
        "metadata_sync_time",
        "sync_time",
        "throttles",
        "unclean_leader_elections",
    )

    def __init__(self) -> None:
        self.apis: dict[int, ApiCount] = {}  # by API key
        self.errors: dict[tuple[int, int], int] = {}  # by API key and error code
        self.event_loop_lag = Histogram()
        self.sync_time = Histogram()  # of partitions
        self.metadata_sync_time = Histogram()
        self.isr_shrinks = 0  # of partitions that this node leads
        self.isr_expands = 0
        self.leader_elections = 0  # decided by this node as the active controller
        self.unclean_leader_elections = 0
        self.throttles: dict[str, Throttles] = {}  # by quota: produce, fetch, request
        self.checked_bytes = 0  # by the integrity check

    def of_api(self, api_key: int) -> ApiCount:
        """Keep it to count requests of this API."""
        return self.apis.setdefault(api_key, ApiCount())

    def count_throttle(self, quota: str, seconds: float) -> None:
        throttles = self.throttles.setdefault(quota, Throttles())
        throttles.responses += 1
        throttles.seconds += seconds

    def count_error(self, api_key: int, code: int) -> None:
        self.errors[api_key, code] = self.errors.get((api_key, code), 0) + 1


_current: ContextVar[Metrics | None] = ContextVar("metrics", default=None)


def enter(metrics: Metrics) -> None:
    """Count errors in this context for this node from now on."""
    _current.set(metrics)


def count_error(api_key: int, code: int) -> None:
    """A response, or a part of one, that carries an error code."""
    metrics = _current.get()
    if metrics is not None:
        metrics.count_error(api_key, code)


def count_throttle(quota: str, seconds: float) -> None:
    """A response that tells its client to be silent for so long."""
    metrics = _current.get()
    if metrics is not None:
        metrics.count_throttle(quota, seconds)
