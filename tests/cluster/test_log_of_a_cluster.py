"""Tests of what an operator reads in the log when a broker dies, comes back, and stops: a line or two for each event,
however many partitions there are, and nothing that looks like a problem while all is well.
"""

import logging
import re
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from odradek.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from tests.cluster.clusters import Cluster, new_cluster, until
from tests.cluster.test_controller_duties import is_fenced, leaders, partitions

PARTITIONS = 60


class Lines(logging.Handler):
    """The lines from INFO on, by event."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def taken(self) -> list[str]:
        """Return the lines since the last call: level and message."""
        taken, self.records = self.records, []
        return [f"{record.levelname} {record.getMessage()}" for record in taken]


@contextmanager
def listening() -> Iterator[Lines]:
    """All loggers at INFO: a simulated world without a trace asks for less, and so may tests before this one."""
    logger, lines = logging.getLogger("odradek"), Lines()
    named = [
        logging.getLogger(name) for name in logging.root.manager.loggerDict if name.startswith("odradek.")
    ]
    levels = [(one, one.level, one.disabled) for one in (logger, *named)]
    logger.addHandler(lines)
    for one in named:
        one.setLevel(logging.NOTSET)
        one.disabled = False
    logger.setLevel(logging.INFO)
    try:
        yield lines
    finally:
        logger.removeHandler(lines)
        for one, level, is_disabled in levels:
            one.setLevel(level)
            one.disabled = is_disabled


def run(scenario: Callable[[Cluster, Lines], Coroutine[Any, Any, None]]) -> None:
    """Node 4 is the controller. Topic t has 3 replicas, u has 2 and needs both, v has one."""
    world, cluster = new_cluster(7, controllers=(4,), brokers=(1, 2, 3))

    async def main() -> None:
        with listening() as lines:
            await cluster.start()
            both = [CreatableTopicConfig("min.insync.replicas", "2")]
            topics = [
                CreatableTopic("t", PARTITIONS, 3, configs=both),
                CreatableTopic("u", PARTITIONS, 2, configs=both),
                CreatableTopic("v", PARTITIONS, 1),
            ]
            response = await cluster.ask(1, CreateTopicsRequest(topics), 7)
            assert [topic.error_code for topic in response.topics] == [0, 0, 0]
            await until(lambda: everybody_in_sync(cluster))
            await scenario(cluster, lines)

    world.run(main())


def everybody_in_sync(cluster: Cluster) -> bool:
    return all(
        len(item.isr) == len(item.replicas)
        for topic in ("t", "u", "v")
        for item in partitions(cluster, topic)
    )


def led_by(cluster: Cluster, broker_id: int, topic: str) -> int:
    return sum(item.leader == broker_id for item in partitions(cluster, topic))


def the_one(lines: list[str], what: str) -> str:
    (found,) = (line for line in lines if what in line)
    return found


def test_a_normal_start_warns_of_nothing_and_names_no_errno() -> None:
    async def scenario(cluster: Cluster, lines: Lines) -> None:
        told = lines.taken()
        assert [line for line in told if not line.startswith("INFO ")] == []
        assert [line for line in told if "Errno" in line or line.endswith((":", ": "))] == []
        assert not [line for line in told if "cannot" in line or "refused" in line]
        assert len([line for line in told if "created topic" in line]) == 3
        assert sorted(line for line in told if "is active" in line) == [
            f"INFO broker {broker_id} is active" for broker_id in (1, 2, 3)
        ]

    run(scenario)


def test_a_broker_that_dies_comes_back_and_stops_is_told_in_a_few_lines() -> None:
    async def scenario(cluster: Cluster, lines: Lines) -> None:
        led = {topic: led_by(cluster, 3, topic) for topic in ("t", "u", "v")}
        kept = sum(3 in item.replicas for item in partitions(cluster, "u"))
        assert min(led.values()) > 0
        lines.taken()

        cluster.machines[3].cut_power()
        await until(lambda: is_fenced(cluster, 3) and 3 not in leaders(cluster))
        await until(lambda: bool(lines.records))
        died = lines.taken()
        assert len(died) <= 3, died
        departure = the_one(died, "broker 3 left")
        assert departure.startswith(
            f"WARNING broker 3 left: {led['t'] + led['u']} partitions changed leaders, {kept} under min ISR (u-"
        )
        assert re.search(rf"and {kept - 3} more\), {led['v']} without a leader \(v-", departure)

        await cluster.start(3)
        await until(lambda: everybody_in_sync(cluster))
        came_back = lines.taken()
        arrival = the_one(came_back, "broker 3 is active")
        assert f"{led['v']} partitions without a leader got one (v-" in arrival
        assert [line for line in came_back if line.startswith("WARNING") and "cut" not in line] == []
        about_isr = [line for line in came_back if "ISR" in line]
        assert 1 <= len(about_isr) < 2 * PARTITIONS / 5, "partitions are told of together"

        await cluster.machines[3].stop()
        await until(lambda: any("left" in record.getMessage() for record in lines.records))
        stopped = lines.taken()
        assert the_one(stopped, "broker 3 left").startswith("INFO broker 3 left (it is stopping): ")
        assert [line for line in stopped if not line.startswith("INFO ")] == []
        assert len(stopped) <= 5, stopped

    run(scenario)
