"""`odradek mirror` beside MirrorMaker 2, between the same two brokers, in turn in one run.

python -m bench.mirror [--megabytes 400] [--rounds 3] [--partitions 4] [--quick]

Both programs run all the time, each with a topic of its own, and both write exactly once. In a round one is stopped
(SIGSTOP), its topic gets records of 1 KB, and the clock runs from SIGCONT until the copy has all of them. The first two
rounds of each warm it up and do not count, because Java compiles while it runs. The brokers are ours and do not sync.
Must reach: at least twice the MB/s of MirrorMaker 2, and at most half the CPU for a GB.
"""

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from bench.measure import cpu_of, machine_facts, process_tree, spread_of
from bench.native import Unavailable
from bench.systems import KafkaProtocolSystem, UnsyncedOdradek
from odradek.client.cluster import LATEST, Cluster
from odradek.client.settings import ClientSettings
from tools.peer.kafka import LOG_OPTIONS, PeerUnavailable, fetch_jars, free_port

RESULTS = Path(__file__).parent / "results"
SIZE = 1024
WARM_ROUNDS = 2
SETTLED_S = 1.5  # without another record: the copy is complete
LOOK_S = 0.02
TIMEOUT_S = 600.0


class West(UnsyncedOdradek):
    name = "west"


class East(UnsyncedOdradek):
    name = "east"


class Mirror(NamedTuple):
    """A program that mirrors one topic."""

    title: str
    topic: str
    process: "subprocess.Popen[bytes]"


class Pass(NamedTuple):
    megabytes_a_second: float
    cpu_s_a_gigabyte: float  # of the mirror's process
    broker_cpu_s_a_gigabyte: float


def our_settings(west: KafkaProtocolSystem, east: KafkaProtocolSystem, topic: str) -> str:
    return (
        f'[source]\nname = "west"\nkafka = {{ "bootstrap.servers" = "{west.bootstrap}" }}\n'
        f'[target]\nname = "east"\nkafka = {{ "bootstrap.servers" = "{east.bootstrap}" }}\n'
        f'[topics]\nnames = ["{topic}"]\n'
    )


def their_settings(west: KafkaProtocolSystem, east: KafkaProtocolSystem, topic: str) -> str:
    settings = {
        "clusters": "west, east",
        "west.bootstrap.servers": west.bootstrap,
        "east.bootstrap.servers": east.bootstrap,
        "west->east.enabled": "true",
        "west->east.topics": topic,
        "east->west.enabled": "false",
        "emit.heartbeats.enabled": "false",
        "emit.checkpoints.enabled": "false",
        "tasks.max": "2",
        "replication.factor": "1",
        "east.exactly.once.source.support": "enabled",
        "dedicated.mode.enable.internal.rest": "true",
        "listeners": f"http://127.0.0.1:{free_port()}",
        **{f"east.{kind}.storage.replication.factor": "1" for kind in ("config", "offset", "status")},
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


@contextmanager
def mirrors(west: KafkaProtocolSystem, east: KafkaProtocolSystem, scratch: Path) -> Iterator[list[Mirror]]:
    ours, theirs = scratch / "ours.toml", scratch / "theirs.properties"
    ours.write_text(our_settings(west, east, "ours"))
    theirs.write_text(their_settings(west, east, "theirs"))
    java = ["java", "-Xmx1g", *LOG_OPTIONS, "-cp", f"{fetch_jars()}/*"]
    commands = {
        ("odradek mirror", "ours"): [sys.executable, "-m", "odradek", "mirror", str(ours)],
        ("MirrorMaker 2", "theirs"): [
            *java,
            "org.apache.kafka.connect.mirror.MirrorMaker",
            str(theirs),
        ],
    }
    found: list[Mirror] = []
    try:
        for (title, topic), command in commands.items():
            with (scratch / f"{topic}.log").open("wb") as log:
                found.append(Mirror(title, topic, subprocess.Popen(command, stdout=log, stderr=log)))
        yield found
    finally:
        for one in found:
            one.process.send_signal(signal.SIGCONT)
            one.process.kill()
            one.process.wait()


def client_of(system: KafkaProtocolSystem) -> Cluster:
    return Cluster(ClientSettings((("127.0.0.1", system.ports[0]),)))


def end_of(cluster: Cluster, topic: str) -> int:
    """Offsets that readers of committed data see; markers among them."""
    if topic not in cluster.topic_names():
        return 0
    partitions = cluster.partitions_of([topic])
    return sum(cluster.list_offsets(dict.fromkeys(partitions, LATEST), read_committed=True).values())


def await_copy(mirror: Mirror, east: Cluster, least: int) -> float:
    """The time of the last record's arrival."""
    copy, deadline_s = f"west.{mirror.topic}", time.monotonic() + TIMEOUT_S
    seen, since_s = -1, time.monotonic()
    while True:
        end, now_s = end_of(east, copy), time.monotonic()
        if end != seen:
            seen, since_s = end, now_s
        elif end >= least and now_s - since_s > SETTLED_S:
            return since_s
        if mirror.process.poll() is not None or now_s > deadline_s:
            raise Unavailable(f"{mirror.title} copied {end} of {least} records and {mirror.process.poll()}")
        time.sleep(LOOK_S)


def mirror_pass(
    mirror: Mirror, west: KafkaProtocolSystem, east: KafkaProtocolSystem, megabytes: float
) -> Pass:
    count, target = int(megabytes * 1_000_000 / SIZE), client_of(east)
    before = end_of(target, f"west.{mirror.topic}")
    mirror.process.send_signal(signal.SIGSTOP)
    west.load("produce", topic=mirror.topic, count=count, size=SIZE)
    pids, brokers = process_tree([mirror.process.pid]), [*west.pids(), *east.pids()]
    cpu, broker_cpu = cpu_of(pids), cpu_of(brokers)
    mirror.process.send_signal(signal.SIGCONT)
    began_s = time.monotonic()
    seconds = await_copy(mirror, target, before + count) - began_s
    used, broker_used = cpu_of(pids), cpu_of(brokers)
    target.close()
    gigabytes = count * SIZE / 1e9
    return Pass(
        count * SIZE / 1e6 / seconds,
        (used.user_s + used.kernel_s - cpu.user_s - cpu.kernel_s) / gigabytes,
        (broker_used.user_s + broker_used.kernel_s - broker_cpu.user_s - broker_cpu.kernel_s) / gigabytes,
    )


def measure(scratch: Path, megabytes: float, rounds: int, partitions: int) -> dict[str, list[Pass]]:
    systems: list[KafkaProtocolSystem] = [West(scratch), East(scratch)]
    found: dict[str, list[Pass]] = {}
    try:
        for system in systems:
            system.start()
        for topic in ("ours", "theirs"):
            systems[0].create_topic(topic, partitions)
        with mirrors(systems[0], systems[1], scratch) as programs:
            for one in programs:  # both are at work before anything is measured
                systems[0].load("produce", topic=one.topic, count=1000, size=SIZE)
                east = client_of(systems[1])
                await_copy(one, east, 1000)
                east.close()
            for number in range(-WARM_ROUNDS, rounds):
                for one in programs if number % 2 == 0 else reversed(programs):
                    figures = mirror_pass(one, *systems, megabytes)
                    print(
                        f"{number + 1:3}  {one.title:15} {figures.megabytes_a_second:8.1f} MB/s", flush=True
                    )
                    if number >= 0:
                        found.setdefault(one.title, []).append(figures)
    finally:
        for system in systems:
            system.discard()
    return found


def table(found: dict[str, list[Pass]]) -> str:
    ours, theirs = found["odradek mirror"], found["MirrorMaker 2"]
    lines = ["| | odradek mirror | MirrorMaker 2 | odradek / MirrorMaker |", "|---|---|---|---|"]
    for at, title in enumerate(("↑ MB/s", "↓ CPU s a GB", "↓ CPU s a GB, both brokers")):
        mine, other = ([one[at] for one in passes] for passes in (ours, theirs))
        ratios = spread_of([one / two for one, two in zip(mine, other, strict=True) if two])
        lines.append(
            f"| {title} | {spread_of(mine).median:.1f} | {spread_of(other).median:.1f} | "
            f"{ratios.median:.2f} ({ratios.low:.2f}-{ratios.high:.2f}) |"
        )
    return "\n".join(lines)


def store(found: dict[str, list[Pass]], options: argparse.Namespace, facts: dict[str, str]) -> None:
    about = {"at": datetime.now(UTC).isoformat(timespec="seconds"), "machine": facts, **vars(options)}
    passes: dict[str, Any] = {title: [one._asdict() for one in those] for title, those in found.items()}
    (RESULTS / "mirror.json").write_text(json.dumps({**about, "passes": passes}, indent=1) + "\n")
    (RESULTS / "mirror.md").write_text(f"{table(found)}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=float, default=400.0, help="of each pass")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--quick", action="store_true", help="one round of 20 MB, which stores nothing")
    options = parser.parse_args(arguments)
    megabytes, rounds = (20.0, 1) if options.quick else (options.megabytes, options.rounds)
    with tempfile.TemporaryDirectory() as scratch:
        try:
            found = measure(Path(scratch), megabytes, rounds, options.partitions)
        except (Unavailable, PeerUnavailable) as reason:
            print(reason)
            return 1
        facts = machine_facts(Path(scratch))
    print(table(found))
    if not options.quick:
        store(found, options, facts)
    return 0


if __name__ == "__main__":
    sys.exit(main())
