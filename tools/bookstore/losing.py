"""A broker that is killed while events are sent: what happened, from the producer's point of view."""

import time
from collections.abc import Callable, Mapping

from confluent_kafka.admin import AdminClient

from .processes import Brokers

QUESTION_TIMEOUT_S = 30.0


class Loss:
    """Kills a broker with -9 once half of all events are acknowledged, and notes how long the next ones took."""

    def __init__(
        self,
        total: int,
        leaders: Mapping[tuple[str, int], int],
        kill: Callable[[int], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`leaders`: of each partition that is written to."""
        self.broker = busiest(leaders)
        self.led = sum(leader == self.broker for leader in leaders.values())
        self.partitions = len(leaders)
        self.acknowledged_before = 0
        self.longest_wait_s = 0.0
        self._total, self._kill, self._clock = total, kill, clock
        self._last_s = 0.0

    def acknowledged(self, count: int) -> bool:
        """Take note of how many events are acknowledged. Returns True when the broker is killed, which happens once."""
        now_s = self._clock()
        if self.acknowledged_before:
            self.longest_wait_s = max(self.longest_wait_s, now_s - self._last_s)
        is_time = not self.acknowledged_before and count >= self._total / 2
        if is_time:
            self.acknowledged_before = count
            self._kill(self.broker)
        self._last_s = now_s
        return is_time


def busiest(leaders: Mapping[tuple[str, int], int]) -> int:
    """The broker that leads most of these partitions; of several, the one with the lowest id."""
    led = list(leaders.values())
    return min(set(led), key=lambda broker: (-led.count(broker), broker))


def leaders_of(brokers: Brokers, topics: tuple[str, ...]) -> dict[tuple[str, int], int]:
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap, "log_level": 0})
    found = admin.list_topics(timeout=QUESTION_TIMEOUT_S).topics
    return {
        (topic, partition.id): partition.leader
        for topic in topics
        for partition in found[topic].partitions.values()
    }
