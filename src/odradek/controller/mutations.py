"""Quotas on changes of the metadata (KIP-599): a client may have so many partitions per second created and deleted.

From the version on in which a client understands THROTTLING_QUOTA_EXCEEDED, each topic of a request is refused with it
while the client's token bucket is overdrawn. Requests of older versions are never refused: their response says for how
long the client is throttled, and the connection is silent for that long. Either way the time is in the response,
whoever sends it to the client.

Buckets are known to this controller only: the next one begins with full ones, as in Kafka. A node's own requests are
not limited.
"""

from collections.abc import Callable
from typing import Any

from odradek.apis.table import named
from odradek.config.broker import BrokerConfig
from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.image import MetadataImage
from odradek.model import Caller
from odradek.quotas.bucket import TokenBucket
from odradek.quotas.keys import CONTROLLER_MUTATION_RATE, Quotas
from odradek.quotas.meters import Meter, Meters

# The first version of each API whose clients understand THROTTLING_QUOTA_EXCEEDED, by API key.
STRICT_SINCE = {
    named(name).key: version
    for name, version in (("CreateTopics", 6), ("DeleteTopics", 5), ("CreatePartitions", 3))
}
EXCEEDED = "The throttling quota has been exceeded."

Spend = Callable[[int], None]  # for so many partitions; KafkaError if the quota does not allow them


def unlimited(partitions: int) -> None:
    """Allow any number, for callers without a quota."""


class Mutations:
    """The token buckets of all clients."""

    def __init__(self, config: BrokerConfig) -> None:
        burst = config["controller.quota.window.num"] * config["controller.quota.window.size.seconds"]
        self._meters = Meters(CONTROLLER_MUTATION_RATE, lambda: TokenBucket(burst))
        self._applied: Quotas | None = None

    def purse(
        self, image: MetadataImage, request: Any, version: int, caller: Caller, now_ms: int
    ) -> "Purse | None":
        """Return what this request spends from; None if it needs nothing, or nothing limits its caller."""
        if not image.quotas or request.API_KEY not in STRICT_SINCE or caller.is_node:
            return None
        if self._applied is not image.quotas:
            self._meters.apply(image.quotas)
            self._applied = image.quotas
        meter = self._meters.find(caller.principal.name, caller.client_id or "")
        return None if meter is None else Purse(meter, version >= STRICT_SINCE[request.API_KEY], now_ms)


class Purse:
    """The tokens that one request may spend."""

    def __init__(self, meter: Meter[TokenBucket], is_strict: bool, now_ms: int) -> None:
        self._meter = meter
        self._is_strict = is_strict
        self._now_ms = now_ms
        self.throttle_ms = 0

    def spend(self, partitions: int) -> None:
        bucket, limit = self._meter.used, self._meter.limit
        bucket.refill(limit, self._now_ms)
        if self._is_strict and bucket.tokens < 0:
            self.throttle_ms = bucket.throttle_ms(limit)
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, EXCEEDED)
        bucket.take(partitions)
        if not self._is_strict:
            self.throttle_ms = bucket.throttle_ms(limit)

    def tell(self, response: Any) -> None:
        """Say in the response for how long its client is throttled."""
        response.throttle_time_ms = self.throttle_ms
