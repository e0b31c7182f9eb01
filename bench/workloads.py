"""Measure running systems: each workload is a function of a system that returns numbers.

Names of numbers end in their unit and are explained in `FIGURES`. Every rate has the server's CPU beside it.
`scale` is 1 for a real run; a sanity run does less of everything. Before a workload begins, what the last one
left to be written is written (`os.sync`), so that no system pays for its neighbour's dirty pages.

A workload says how it is warmed up (`warmth`). The lists at the end are in order: what wants a server that has done
nothing comes first, what leaves one restarted or full of partitions last.
"""

import itertools
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

from bench import kafka_requests, native
from bench.measure import (
    PERCENTILES,
    Cpu,
    Numbers,
    await_rest,
    descriptor_count,
    forget_cached,
    memory_mb,
    metered,
    rate_numbers,
    request_numbers,
)
from bench.systems import SYNCED, KafkaProtocolSystem, System
from bench.warmth import WarmUp

BULK_BYTES = 512_000_000
MAX_MESSAGES = 2_000_000
ONE_MESSAGE_COUNT = 50_000
LATENCY_COUNT = 10_000
TRANSACTION_COUNT = 300  # by one producer; sixteen end four times as many
TRANSACTION_PARTITIONS = 4
BULK_TRANSACTION = 50_000  # messages in each transaction of a bulk load
PRODUCERS: dict[str, dict[str, object]] = {
    "plain": {},
    "idempotent": {"enable.idempotence": "true"},  # which a transactional one always is
    "transactional": {"transaction": BULK_TRANSACTION},
}
TURNS = 2  # of all kinds of producers, in a round
TURN_SHARE = 0.4  # of a bulk load, which is four transactions
END_TO_END_RATE = 1_000
END_TO_END_SECONDS = 5
IDLE_SECONDS = 5
LOOP_SECONDS = 4
IDLE_CONSUMERS = 1_000
CONSUMER_WAIT_MS = 500  # what a consumer asks for if nobody tells it otherwise
HASTY_WAIT_MS = 50
PARKED_MS = 600_000
CONNECTED_CLIENTS = 100
TOPIC_PARTITIONS = 1_000  # Kafka refuses more than 10,000 records, hence partitions, in one request

_numbers = itertools.count(1)


class Figure(NamedTuple):
    """The meaning of a number. `cpu` names the server's user and kernel CPU for the same work. A `paired` number is a
    quotient already, the median of several; `…_low` and `…_high` are beside it."""

    title: str
    unit: str
    more_is_better: bool = False
    cpu: tuple[str, str, str] | None = None
    paired: bool = False


FIGURES = {
    "produce_mb_s": Figure("produce", "MB/s", True, ("produce_user_s_gb", "produce_kernel_s_gb", "s/GB")),
    "consume_mb_s": Figure("consume", "MB/s", True, ("consume_user_s_gb", "consume_kernel_s_gb", "s/GB")),
    "requests_s": Figure("requests", "/s", True, ("request_user_us", "request_kernel_us", "µs each")),
    "transactions_s": Figure(
        "transactions", "/s", True, ("transaction_user_us", "transaction_kernel_us", "µs each")
    ),
    "plain_ratio": Figure("produce ÷ the same without transactions, in turn", "", True, paired=True),
    "idempotent_ratio": Figure(
        "produce ÷ the same by an idempotent producer, in turn", "", True, paired=True
    ),
    "p50_us": Figure("p50", "µs"),
    "p99_us": Figure("p99", "µs"),
    "p999_us": Figure("p99.9", "µs"),
    "create_s": Figure("created", "s"),
    "start_s": Figure("to first accepted message", "s"),
    "memory_mb": Figure("memory", "MB"),
    "descriptors": Figure("open descriptors", ""),
    "idle_cpu_ms_s": Figure("CPU while idle", "ms/s"),
}


def any_single_node(system: System) -> bool:
    return system.node_count == 1


def single_kafka(system: System) -> bool:
    return system.node_count == 1 and system.speaks_kafka


def synced_kafka(system: System) -> bool:
    """True for the system that measures what does not depend on syncing: once is enough."""
    return single_kafka(system) and system.durability == SYNCED


def reads_from_disk(system: System) -> bool:
    return system.node_count == 1 and not system.keeps_in_memory


def any_cluster(system: System) -> bool:
    return system.node_count >= 3


@dataclass(frozen=True)
class Workload:
    name: str
    title: str
    run: Callable[[Any, float], Numbers]
    applies: Callable[[System], bool] = any_single_node
    warm_up: WarmUp | None = None
    once: bool = False  # in the first round only: long and steady, or not to be repeated on the same server


def scaled(count: float, scale: float, least: int = 100) -> int:
    return max(least, int(count * scale))


@contextmanager
def topic_of(system: System, partitions: int = 1, replication: int = 1) -> Iterator[str]:
    """A topic of its own for one measurement, on a disk that has come to rest."""
    topic = f"bench{next(_numbers)}"
    system.create_topic(topic, partitions, replication)
    os.sync()
    yield topic
    system.delete_topic(topic, partitions)


def produce(system: System, topic: str, count: int, size: int, **settings: object) -> Numbers:
    with metered(system.pids()) as cpu:
        output = system.load("produce", topic=topic, count=count, size=size, **settings)
    return rate_numbers("produce", output, cpu)


def consume(system: System, topic: str, count: int, partitions: int) -> Numbers:
    """The rate from the first message on: librdkafka takes half a second before it asks for it."""
    with metered(system.pids()) as cpu:
        output = system.load("consume", topic=topic, count=count, partitions=partitions)
    return rate_numbers("consume", output, cpu)


def bulk(
    system: System,
    scale: float,
    *,
    size: int = 1024,
    acks: str = "all",
    codec: str = "none",
    partitions: int = 1,
    replication: int = 1,
    producer: Mapping[str, object] = MappingProxyType({}),
    reads: bool = True,
) -> Numbers:
    count, partitions = scaled(min(MAX_MESSAGES, BULK_BYTES / size), scale), scaled(partitions, scale, 1)
    settings = {"acks": acks, "compression.codec": codec, "partitions": partitions, **producer}
    with topic_of(system, partitions, replication) as topic:
        numbers = produce(system, topic, count, size, **settings)
        os.sync()
        return numbers | (consume(system, topic, count, partitions) if reads else {})


def bulk_transactions(system: System, scale: float) -> Numbers:
    """Loads by the three kinds of producers on the same server in turn, forwards and backwards."""
    turns, numbers = [], Numbers()
    for number in range(TURNS):
        is_last = number == TURNS - 1
        loads = {}
        for kind in reversed(PRODUCERS) if number % 2 else PRODUCERS:
            reads = is_last and kind == "transactional"
            loads[kind] = bulk(system, scale * TURN_SHARE, producer=PRODUCERS[kind], reads=reads)
        turns.append(loads)
        numbers |= loads["transactional"]
    rates = {kind: [loads[kind]["produce_mb_s"] for loads in turns] for kind in PRODUCERS}
    for kind in ("plain", "idempotent"):
        ratios = [ours / other for ours, other in zip(rates["transactional"], rates[kind], strict=True)]
        numbers |= {f"{kind}_ratio": statistics.median(ratios)}
        numbers |= {f"{kind}_ratio_low": min(ratios), f"{kind}_ratio_high": max(ratios)}
    return numbers | {
        name: statistics.median(loads["transactional"][name] for loads in turns)
        for name in turns[0]["transactional"]
    }


def one_message(system: System, scale: float, replication: int = 1) -> Numbers:
    """Requests of one message each, pipelined."""
    count = scaled(ONE_MESSAGE_COUNT, scale)
    with topic_of(system, 1, replication) as topic, metered(system.pids()) as cpu:
        output = system.load("produce", topic=topic, count=count, size=100, one=1)
    return request_numbers(count, output["seconds"], cpu)


def latency(system: System, scale: float, replication: int = 1) -> Numbers:
    """One message at a time, each awaited."""
    count = scaled(LATENCY_COUNT, scale)
    with topic_of(system, 1, replication) as topic, metered(system.pids()) as cpu:
        output = system.load("latency", topic=topic, count=count, size=100, **{"linger.ms": 0})
    return pick(output, PERCENTILES) | request_numbers(count * 1.1, output["seconds"], cpu)


def transactions(system: System, scale: float, producers: int = 1) -> Numbers:
    """Transactions of 100 messages, each begun, filled and committed before its producer begins the next."""
    count = scaled(TRANSACTION_COUNT * producers**0.5, scale)
    with topic_of(system, TRANSACTION_PARTITIONS) as topic, metered(system.pids()) as cpu:
        settings = {"messages": 100, "producers": producers, "linger.ms": 0}
        output = system.load("transactions", topic=topic, count=count, size=100, **settings)
    rate = request_numbers(output["messages"] * 1.1, output["seconds"], cpu)
    named = {f"transaction{name.removeprefix('request')}": number for name, number in rate.items()}
    return pick(output, PERCENTILES) | named


def end_to_end(system: System, scale: float) -> Numbers:
    """Measure the time from produce to consume, at a rate that nobody finds hard."""
    count = scaled(END_TO_END_RATE * END_TO_END_SECONDS, scale)
    with topic_of(system) as topic:
        settings = {"linger.ms": 0, "rate": END_TO_END_RATE}
        output = system.load("endtoend", topic=topic, count=count, size=100, **settings)
    return pick(output, PERCENTILES)


def pick(output: dict[str, float], names: tuple[str, ...]) -> Numbers:
    return {name: output[name] for name in names}


def cold_read(system: System, scale: float) -> Numbers:
    """Catching up from disk: nothing of the data is in memory."""
    count = scaled(2 * BULK_BYTES / 1024, scale)
    with topic_of(system) as topic:
        produce(system, topic, count, 1024)
        forget_cached(system.home)
        return consume(system, topic, count, 1)


def start(system: System, scale: float) -> Numbers:
    """Measure a start on a data directory that was closed cleanly and holds one small topic."""
    system.stop()
    system.start()
    return {"start_s": system.start_seconds}


def memory(system: System, scale: float) -> Numbers:
    await_rest(system.pids())
    return {"memory_mb": memory_mb(system.pids())}


def idle(system: KafkaProtocolSystem, scale: float, partitions: int = 0) -> Numbers:
    """CPU of a server on which clients wait for a message that does not come, for all its partitions."""
    if partitions:
        add_partitions(system, scaled(partitions, scale, 1))
        await_rest(system.pids())
    seconds = scaled(IDLE_SECONDS, scale, 1)
    with connected(system, CONNECTED_CLIENTS, PARKED_MS, seconds), metered(system.pids()) as cpu:
        time.sleep(seconds)
        numbers = occupancy(system)
    return numbers | {"idle_cpu_ms_s": milliseconds_a_second(cpu, seconds)}


def occupancy(system: System) -> Numbers:
    return {"memory_mb": memory_mb(system.pids()), "descriptors": descriptor_count(system.pids())}


def milliseconds_a_second(cpu: Cpu, seconds: float) -> float:
    return (cpu.user_s + cpu.kernel_s) * 1000 / seconds


def add_partitions(system: System, total: int) -> str:
    """A topic of that many partitions, or several of them; the name of the first."""
    name = f"idle{next(_numbers)}"
    for part in range(0, total, TOPIC_PARTITIONS):
        system.create_topic(f"{name}-{part}", min(TOPIC_PARTITIONS, total - part))
    return f"{name}-0"


@contextmanager
def connected(
    system: KafkaProtocolSystem, connections: int, max_wait_ms: int, seconds: int
) -> Iterator[dict[str, Any]]:
    """Let so many consumers wait at the end of an empty topic, for about as long as the block runs."""
    with topic_of(system) as topic:
        request = kafka_requests.fetch_request(topic, max_wait_ms, offset=0)
        with looping(system, request, connections, seconds) as output:
            yield output


@contextmanager
def looping(
    system: KafkaProtocolSystem, request: bytes, connections: int, seconds: int
) -> Iterator[dict[str, Any]]:
    with tempfile.NamedTemporaryFile() as file:
        file.write(request)
        file.flush()
        arguments = {"port": system.ports[0], "request": file.name}
        arguments |= {"connections": connections, "seconds": seconds}
        with native.running("replay", "run", arguments) as output:
            yield output


def idle_consumers(system: KafkaProtocolSystem, scale: float) -> Numbers:
    """A thousand consumers ask every half second for what is not there; one producer works beside them."""
    seconds, count = scaled(IDLE_SECONDS, scale, 1), scaled(LATENCY_COUNT / 5, scale)
    with connected(system, scaled(IDLE_CONSUMERS, scale, 10), CONSUMER_WAIT_MS, 2 * seconds):
        with metered(system.pids()) as cpu:
            time.sleep(seconds)
        numbers = occupancy(system) | {"idle_cpu_ms_s": milliseconds_a_second(cpu, seconds)}
        with topic_of(system) as topic:
            output = system.load("latency", topic=topic, count=count, size=100, **{"linger.ms": 0})
    return numbers | pick(output, PERCENTILES)


def hasty_consumers(system: KafkaProtocolSystem, scale: float) -> Numbers:
    """The same consumers, which ask far more often: what an hour of waiting would have made of the server."""
    connections, seconds = scaled(IDLE_CONSUMERS, scale, 10), scaled(2, scale, 1)
    with connected(system, connections, HASTY_WAIT_MS, seconds) as output:
        pass
    return {"requests_s": output["requests"] / output["seconds"]}


def reopen(system: KafkaProtocolSystem, scale: float) -> Numbers:
    """Create a thousand partitions, write to them, and start again once they were closed cleanly."""
    partitions = scaled(TOPIC_PARTITIONS, scale, 10)
    begin = time.monotonic()
    topic = add_partitions(system, partitions)
    numbers = {"create_s": time.monotonic() - begin}
    produce(system, topic, partitions * 20, 100)
    return numbers | start(system, scale)


def connections(system: KafkaProtocolSystem, scale: float, count: int) -> Numbers:
    """Measure so many connections at once, each with one small Produce in flight."""
    seconds, count = scaled(LOOP_SECONDS, scale, 1), scaled(count, scale, 1)
    with topic_of(system) as topic:
        request = kafka_requests.produce_request(topic)
        with looping(system, request, count, seconds) as output, metered(system.pids()) as cpu:
            time.sleep(seconds)
            numbers = occupancy(system)
    per_request = request_numbers(output["requests"], output["seconds"], cpu)
    return numbers | pick(output, PERCENTILES) | per_request


def partitions(system: KafkaProtocolSystem, scale: float, count: int) -> Numbers:
    """All figures on a server that holds so many partitions; bulk goes over up to a thousand of them."""
    count = scaled(count, scale, 1)
    topic, used = add_partitions(system, count), min(count, TOPIC_PARTITIONS)
    messages = scaled(BULK_BYTES / 4 / 1024, scale)
    await_rest(system.pids())
    os.sync()
    numbers = produce(system, topic, messages, 1024) | consume(system, topic, messages, used)
    numbers |= one_message(system, scale)
    numbers |= pick(latency(system, scale / 5), PERCENTILES) | idle(system, scale)
    return numbers | start(system, scale)


BULK_WARM_UP = WarmUp("half the load", 0.5, ("produce_mb_s", "consume_mb_s"))
SMALL_BULK_WARM_UP = replace(BULK_WARM_UP, piece="a fifth of the load", share=0.2)
ONE_WARM_UP = WarmUp("30,000 requests", 0.6, ("requests_s",), least=10)
LATENCY_WARM_UP = WarmUp("10,000 requests", 1.0, ("p50_us",), after="one-message")
TRANSACTIONS_16_WARM_UP = WarmUp("600 transactions", 0.5, ("transactions_s",), least=8)
TRANSACTIONS_WARM_UP = WarmUp("100 transactions", 1 / 3, ("transactions_s",), after="transactions-16")
BULK_TRANSACTIONS_WARM_UP = WarmUp(
    "200,000 messages",
    TURN_SHARE,
    ("produce_mb_s",),
    after="bulk-1k",
    run=partial(bulk, producer=PRODUCERS["transactional"], reads=False),
)
END_TO_END_WARM_UP = WarmUp("1,000 messages", 0.2, ("p50_us",), after="one-message")
COLD_READ_WARM_UP = WarmUp("a tenth of it", 0.1, ("consume_mb_s",))
CONSUMERS_WARM_UP = WarmUp("2 s of 1,000 hasty consumers", 1.0, ("requests_s",), run=hasty_consumers)


def bulk_workload(
    name: str, title: str, applies: Callable[[System], bool] = single_kafka, **changes: Any
) -> Workload:
    return Workload(name, title, partial(bulk, **changes), applies, SMALL_BULK_WARM_UP)


WORKLOADS = [
    Workload("start", "Start", start),
    Workload("memory", "Idle", memory, once=True),
    Workload("bulk-1k", "1 KB", bulk, warm_up=BULK_WARM_UP),
    bulk_workload("bulk-100b", "100 B", any_single_node, size=100),
    bulk_workload("bulk-10k", "10 KB", any_single_node, size=10_240),
    bulk_workload("bulk-acks1", "1 KB, acks=1", acks="1"),
    bulk_workload("bulk-lz4", "1 KB, lz4", codec="lz4"),
    bulk_workload("bulk-zstd", "1 KB, zstd", codec="zstd"),
    bulk_workload("bulk-16p", "1 KB, 16 partitions", any_single_node, partitions=16),
    bulk_workload("bulk-1000p", "1 KB, 1,000 partitions", partitions=1000),
    Workload("one-message", "One message a request", one_message, warm_up=ONE_WARM_UP),
    Workload("latency", "Synchronous", latency, warm_up=LATENCY_WARM_UP),
    Workload(
        "transactions-16",
        "Transactions of 100 messages, 16 producers",
        partial(transactions, producers=16),
        single_kafka,
        TRANSACTIONS_16_WARM_UP,
    ),
    Workload(
        "transactions", "Transactions of 100 messages", transactions, single_kafka, TRANSACTIONS_WARM_UP
    ),
    Workload(
        "bulk-transactions",
        "1 KB, in transactions",
        bulk_transactions,
        single_kafka,
        BULK_TRANSACTIONS_WARM_UP,
    ),
    Workload("end-to-end", "End to end, 1,000/s", end_to_end, warm_up=END_TO_END_WARM_UP),
    Workload("cold-read", "Catch-up from disk", cold_read, reads_from_disk, COLD_READ_WARM_UP),
    Workload("idle-consumers", "1,000 idle consumers", idle_consumers, single_kafka, CONSUMERS_WARM_UP),
    Workload("loaded-memory", "After all this", memory, once=True),
    Workload("reopen-1000", "1,000 partitions", reopen, single_kafka, once=True),
]
CLUSTER = [
    Workload(
        "replicated", "1 KB, replication 3", partial(bulk, replication=3), any_cluster, SMALL_BULK_WARM_UP
    ),
    Workload(
        "replicated-one",
        "One message, replication 3",
        partial(one_message, replication=3),
        any_cluster,
        ONE_WARM_UP,
    ),
    Workload(
        "replicated-latency",
        "Synchronous, replication 3",
        partial(latency, replication=3),
        any_cluster,
        replace(LATENCY_WARM_UP, after="replicated-one"),
    ),
]


def named(*names: str) -> list[Workload]:
    return [each for each in WORKLOADS if each.name in names]


BESIDE_KAFKA = named(
    *("bulk-1k", "one-message", "latency", "transactions", "transactions-16", "bulk-transactions")
)
OWN = [
    *named("start", "memory", "bulk-1k", "one-message", "latency", "end-to-end"),
    Workload("idle-1", "1 partition, 100 clients", partial(idle, partitions=1), synced_kafka),
    *named("reopen-1000"),
    Workload(
        *("idle-10000", "10,000 partitions, 100 clients", partial(idle, partitions=10_000), synced_kafka),
        once=True,
    ),
]
GROWTH = [
    Workload(
        f"{kind.__name__}-{count}",
        f"{count:,} {kind.__name__}",
        partial(kind, count=count),
        single_kafka,
        once=kind is partitions,  # which stay
    )
    for kind, counts in ((connections, (1, 10, 100, 1_000)), (partitions, (1, 10, 100, 1_000, 10_000)))
    for count in counts
]
