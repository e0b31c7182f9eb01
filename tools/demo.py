"""A bookstore's hour through three brokers and a Spark pipeline, in a minute or two; it ends by itself.

    python tools/demo.py [--directory DIR] [--seed N] [--console]

The store (`bookstore`) plays logins, looks, orders and returns as keyed events and keeps a ledger of them. The
events go to a cluster of the demo's own, of which one broker is killed on the way and brought back.
`examples/bookstore.toml` runs over them on Spark, and everything that comes out is held against the ledger. Every
command shown is the real one. Exit status 0: all agreed. Where Spark cannot run, one line says what is missing, and the
part before it stands by itself.

What was written stays in the directory, to look at; no process does.
"""

import argparse
import fcntl
import json
import os
import shlex
import shutil
import signal
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

from bookstore.audit import Check, check_archives, check_results, check_topic
from bookstore.backends import BOOKS, ORDERS, RETURNS, SECURITY, TOPICS
from bookstore.catalog import BY_ID
from bookstore.drawing import bars, columns, cut, gauge, money, seconds, table
from bookstore.hour import MINUTES, OPENING_MS, Hour, play_hour
from bookstore.ledger import Takings, minute_of
from bookstore.losing import Loss, leaders_of
from bookstore.playing import NotDelivered, send
from bookstore.processes import (
    Brokers,
    CommandFailed,
    broker_again,
    console_of,
    environment,
    follow_command,
    run_command,
    three_brokers,
)
from bookstore.progress import PipelineProgress
from bookstore.results import (
    DEAD_LETTERS,
    REVENUE,
    NotRead,
    Results,
    headers_of,
    read_results,
    read_topic,
    without_delta,
)
from bookstore.screen import BOLD, DIM, RED, Screen

from odradek.spark.environment import missing

ROOT = Path(__file__).resolve().parent.parent
PIPELINE = ROOT / "examples" / "bookstore.toml"
DIRECTORY = ROOT / "build" / "demo"
SEED = 17
CHART_WIDTH, REASON_WIDTH = 92, 63
PARTITIONS = 2
STATUS = "odradek cluster status"
UNHEALTHY = 1  # its exit status
HEAL_TIMEOUT_S, LOOK_S = 60.0, 0.2
# On a busy machine Spark's Python processes may be too late for Spark. The next attempt goes on where it was.
RUN = "odradek pipeline run bookstore.toml --once --retries 20"
SENDERS = {
    SECURITY: "security: login, logout",
    BOOKS: "book information: list, details",
    ORDERS: "order processing: buy, status",
    RETURNS: "order processing: return",
}


ALL_TOPICS = "bookstore-(security|books|orders|returns)"
NEEDED_BY_ARCHIVES = ("deltalake", "duckdb", "numba")


class Demo:
    def __init__(self, screen: Screen, directory: Path, seed: int, with_console: bool = False) -> None:
        self.screen, self.directory = screen, directory
        self.with_console = with_console
        self.hour: Hour = play_hour(seed)
        self.brokers = Brokers("", [], directory)
        self.bootstrap = ""
        self.log = directory / "broker.log"
        self.checks: list[Check] = []

    def run(self) -> int:
        began_s = time.monotonic()
        self.say_hello()
        with ExitStack() as running:
            self.brokers = running.enter_context(three_brokers(self.directory / "data", self.log))
            self.bootstrap = self.brokers.bootstrap
            self.show_messages()
            loss = self.play_store()
            self.show_loss(loss, running)
            self.read_back()
            reason = missing()
            if reason is None:
                self.run_pipeline()
                results = read_results(self.bootstrap, self.directory)
                self.draw(results)
                self.checks += check_results(self.hour.ledger, results)
            if all(find_spec(package) for package in NEEDED_BY_ARCHIVES):
                self.archive_topics("10" if reason is None else "4")
            if self.with_console:
                self.leave_console_open()
        self.show_checks()
        if reason is not None:
            self.screen.line()
            self.screen.line(f"No pipeline: {reason}")
        self.say_where_to_look(with_spark=reason is None)
        self.screen.line()
        agreed = all(check.agrees for check in self.checks)
        status = 0 if agreed else 1
        took = f"{time.monotonic() - began_s:.0f} seconds, exit status {status}"
        verdict = "Every figure agrees" if agreed else "The figures above differ"
        self.screen.line(f"{verdict}: {took}. The brokers are stopped, nothing is left running.", BOLD)
        return status

    def leave_console_open(self) -> None:
        self.screen.line()
        with console_of(self.bootstrap, self.log) as address:
            self.screen.line(f"The console is open on the bookstore: {address}", BOLD)
            self.screen.line("Stop it with Ctrl-C; then the figures are compared, and the brokers stopped.")
            with suppress(KeyboardInterrupt):
                signal.pause()

    def say_hello(self) -> None:
        self.screen.line("Odradek: a bookstore's evening through three brokers and a Spark pipeline", BOLD)
        ledger = self.hour.ledger
        self.screen.line(
            f"An hour is simulated: {len(self.hour.events):,} events of {ledger.actions['login']:,} logins, "
            f"{ledger.total.orders:,} orders, {len(ledger.returns)} returns."
        )
        self.screen.line("The store keeps a ledger; at the end every figure is checked against it.")
        self.screen.line("This takes a minute or two and ends by itself; Ctrl-C ends it at any time.", DIM)

    def command(self, command: str, text: str = "") -> None:
        self.screen.command(f"echo '{text}' | {command}" if text else command)
        output = run_command(command, environment(self.bootstrap), f"{text}\n" if text else "")
        self.screen.lines(output.splitlines())

    # Brokers

    def show_messages(self) -> None:
        self.screen.heading("1  Three brokers, a message in, a message out")
        self.screen.command("odradek up --brokers 3 --port 0")
        self.screen.lines(
            [
                f"listening on {self.bootstrap}",
                f"data in {shown(self.directory / 'data')}, three copies of all",
            ]
        )
        self.command("odradek topic create hello --partitions 1")
        self.command("odradek produce hello --key-separator :", "reader:Welcome to the bookstore")
        self.command(r"odradek consume hello --from-beginning --exit-at-end --format '%k: %v\n'")

    def play_store(self) -> Loss:
        """The store opens. In the middle of it a broker dies."""
        self.screen.heading("2  The store: three backends, four topics, keyed events")
        names = ",".join(topic.removeprefix("bookstore-") for topic in TOPICS)
        self.screen.command(f"odradek topic create bookstore-{{{names}}} --partitions {PARTITIONS}")
        run_command(
            f"odradek topic create {' '.join(TOPICS)} --partitions {PARTITIONS}", environment(self.bootstrap)
        )
        total = len(self.hour.events)
        loss = Loss(total, leaders_of(self.brokers, TOPICS), self.brokers.kill)

        def show(count: int) -> None:
            if loss.acknowledged(count):
                self.screen.line(
                    f"  kill -9 of broker {loss.broker}, after {count:,} events; the store goes on", RED
                )
            self.screen.progress(f"{gauge(count, total, 40)} {count:,} of {total:,} events")

        began_s = time.monotonic()
        send(self.bootstrap, self.hour.events, show)
        took_s = time.monotonic() - began_s
        self.screen.line(
            f"  {total:,} events sent and acknowledged, on two disks or three, in {seconds(took_s)}"
        )
        records = self.hour.ledger.records
        self.screen.lines(
            bars([(f"{topic:<18}  {SENDERS[topic]}", records[topic]) for topic in TOPICS], CHART_WIDTH)
        )
        self.command(
            rf"odradek consume {ORDERS} --from-beginning --max-messages 3 --format '%p/%o  %k  %v\n'"
        )
        return loss

    def show_loss(self, loss: Loss, running: ExitStack) -> None:
        self.screen.heading(f"3  Meanwhile broker {loss.broker} has died, and nobody noticed")
        total = len(self.hour.events)
        self.screen.lines(
            [
                f"It was killed with -9 when {loss.acknowledged_before:,} of {total:,} events were acknowledged.",
                f"It led {loss.led} of their {loss.partitions} partitions. The others took these over, the producer",
                f"went on by itself, and its longest wait for an acknowledgement was {seconds(loss.longest_wait_s)}.",
            ]
        )
        self.screen.command(STATUS)
        status = self.status_once("not healthy", "the cluster notices")
        about_brokers = status.partition("\nmetadata quorum")[0].splitlines()
        self.screen.lines([line for line in about_brokers if not line.lstrip().startswith("controller ")])
        settings = self.brokers.settings_of(loss.broker)
        self.screen.command(f"odradek broker --config {shown(settings)}")
        began_s = time.monotonic()
        running.enter_context(broker_again(settings, self.log))
        self.status_once("healthy", "the broker copies what it missed")
        took_s = time.monotonic() - began_s
        self.screen.lines(
            [f"Broker {loss.broker} is back, has copied what it missed, and counts again: {seconds(took_s)}"]
        )

    def status_once(self, verdict: str, meanwhile: str) -> str:
        """Return what the command says, once this is its verdict on the cluster."""
        deadline_s = time.monotonic() + HEAL_TIMEOUT_S
        while f": {verdict}\n" not in (
            said := run_command(STATUS, environment(self.bootstrap), statuses=(0, UNHEALTHY))
        ):
            if time.monotonic() > deadline_s:
                raise CommandFailed(
                    f"after {HEAL_TIMEOUT_S:.0f} seconds the cluster is still not {verdict}:\n{said}"
                )
            self.screen.progress(meanwhile)
            time.sleep(LOOK_S)
        self.screen.clear_progress()
        return said

    def read_back(self) -> None:
        for topic in TOPICS:
            self.screen.progress(f"reading {topic} back")
            read = [
                (message.key().decode(), message.value()) for message in read_topic(self.bootstrap, topic)
            ]
            self.checks.append(check_topic(self.hour.ledger, topic, self.hour.events, read))
        self.screen.clear_progress()

    # Pipeline

    def run_pipeline(self) -> None:
        text = PIPELINE.read_text()
        if find_spec("deltalake") is None:
            text = without_delta(text)
        (self.directory / PIPELINE.name).write_text(text)
        self.screen.heading("4  The pipeline: one file, Spark SQL over the topics")
        self.screen.lines([f"{shown(PIPELINE)}, for example:"])
        definition = tomllib.loads(PIPELINE.read_text())
        sql = definition["transforms"]["suspicious_logins"]["sql"].strip()
        self.screen.lines([f"    {line}" for line in sql.splitlines()], DIM)
        self.screen.command(RUN)
        progress = PipelineProgress(self.screen, definition)
        environ = environment(self.bootstrap)
        log = self.directory / "pipeline.log"
        follow_command(RUN, environ, self.directory, log, progress.take, progress.tick)
        self.screen.clear_progress()

    def draw(self, results: Results) -> None:
        self.draw_revenue(results)
        self.draw_suspicions(results)
        self.draw_returns(results)
        self.draw_looks(results)
        self.draw_dead_letters()

    def draw_revenue(self, results: Results) -> None:
        self.screen.heading(f"5  Revenue by the minute, from topic {REVENUE}")
        minutes = [minute_of(OPENING_MS + number * 60_000) for number in range(MINUTES)]
        takings = [results.takings.get(minute, Takings()) for minute in minutes]
        chart = columns([one.cents / 100 for one in takings], height=7)
        self.screen.lines(chart)
        gutter = " " * (chart[0].index("┤") + 1)
        self.screen.lines([gutter + "".join(f"{minute[-5:]:<10}" for minute in minutes[::10])], DIM)

    def draw_suspicions(self, results: Results) -> None:
        self.screen.heading("6  Suspicious logins: five wrong passwords or more for an account in a minute")
        rows = []
        for one in sorted(results.suspicions, key=lambda one: (one.minute, one.customer)):
            got_in = "yes" if one.got_in else "no"
            address = results.addresses[one.customer, one.minute]
            rows.append((one.minute[-5:], one.customer, address, str(one.failures), got_in))
        self.screen.lines(table(("minute", "account", "from", "failures", "got in"), rows, right=(3,)))

    def draw_returns(self, results: Results) -> None:
        self.screen.heading("7  Returned orders, joined from two topics into a table, by reason")
        reasons = Counter(one.reason for one in results.returns)
        self.screen.lines(bars(reasons.most_common(), CHART_WIDTH))
        refunded = sum(one.cents for one in results.returns)
        self.screen.lines([f"{money(refunded)} given back for {len(results.returns)} orders"], DIM)

    def draw_looks(self, results: Results) -> None:
        self.screen.heading("8  What people look at")
        looks = Counter(results.looks).most_common()
        self.screen.lines(bars([(BY_ID[book].title, count) for book, count in looks], CHART_WIDTH))

    def draw_dead_letters(self) -> None:
        self.screen.heading(f"9  Dead letters, from topic {DEAD_LETTERS}: what could not be used, and why")
        rows = []
        for message in read_topic(self.bootstrap, DEAD_LETTERS):
            facts = headers_of(message)
            where = f"{facts['odradek.topic']} {facts['odradek.partition']}/{facts['odradek.offset']}"
            met = "not met: " if facts["odradek.stage"] == "transform" else ""
            reason = cut(f"{met}{facts['odradek.reason']}", REASON_WIDTH)
            rows.append((where, facts["odradek.stage"], reason))
        self.screen.lines(table(("record", "stage", "reason"), sorted(rows)))

    # Archive

    def archive_topics(self, number: str) -> None:
        """The topics become tables, and are read as one table with what comes after."""
        self.screen.heading(f"{number}  The topics outlive their retention, as Delta tables")
        archive = self.directory / "archive"
        command = f"odradek archive --pattern '{ALL_TOPICS}' --to"
        self.screen.command(f"{command} archive")
        output = run_command(f"{command} '{archive}' --quiet", environment(self.bootstrap))
        self.screen.lines(output.splitlines())
        counts = " UNION ALL ".join(
            f"SELECT '{topic}' AS topic, count(*) AS n, count(DISTINCT (_partition, _offset)) AS once FROM \"{topic}\""
            for topic in TOPICS
        )
        self.screen.command(f"odradek sql 'SELECT count(*) … FROM \"{ORDERS}\" …' --archive archive")
        query = f"odradek sql {shlex.quote(counts)} --archive '{archive}' --format json"
        output = run_command(query, environment(self.bootstrap))
        found = {row["topic"]: (row["n"], row["once"]) for row in map(json.loads, output.splitlines())}
        rows = [(topic, f"{found[topic][0]:,}") for topic in TOPICS]
        self.screen.lines(table(("topic", "records"), rows, right=(1,)))
        self.checks += check_archives(self.hour.ledger, found)

    # The end

    def show_checks(self) -> None:
        self.screen.heading("The ledger against what was read back")
        rows = [(check.what, check.expected, check.found) for check in self.checks]
        lines = table(("", "the ledger", "read back"), rows, right=(1, 2))
        self.screen.lines(lines[:2])
        for line, check in zip(lines[2:], self.checks, strict=True):
            self.screen.line(f"  {line}  {self.screen.verdict(check.agrees)}")

    def say_where_to_look(self, with_spark: bool) -> None:
        where, odradek = shown(self.directory), shown(Path(sys.executable).with_name("odradek"))
        self.screen.heading("Look further")
        self.screen.lines([f"Everything is in {where} until the next demo. Start the brokers over it again:"])
        self.screen.command(f"{odradek} up --brokers 3 --data-dir {where}/data")
        self.screen.lines(["and in another terminal:"])
        self.screen.command(f"{odradek} consume {ORDERS} --from-beginning --exit-at-end")
        if with_spark:
            self.screen.command("export ODRADEK_BOOTSTRAP_SERVER=localhost:9092")
            self.screen.command(f"{odradek} pipeline status {where}/bookstore.toml")
            self.screen.command(f"{odradek} pipeline dead-letters {where}/bookstore.toml")
        self.screen.lines(
            [
                "docs/PIPELINES.md describes pipelines, docs/SPARK.md the source and sink, docs/CLI.md commands."
            ]
        )


def shown(path: Path) -> str:
    """Write a path as short as it can be written here."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


@contextmanager
def own_directory(directory: Path) -> Iterator[Path]:
    """The directory for this demo alone, emptied of the one before. One that holds anything else is left alone."""
    directory.mkdir(parents=True, exist_ok=True)
    handle = os.open(directory, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CommandFailed(f"another demo is running in {directory}") from None
        found = list(directory.iterdir())
        if found and not (directory / "broker.log").exists():
            raise CommandFailed(f"{directory} holds something else than a demo: name an empty --directory")
        for path in found:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        yield directory
    finally:
        os.close(handle)


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Play a bookstore through three brokers and a Spark pipeline."
    )
    parser.add_argument("--directory", type=Path, default=DIRECTORY, help="where data and results go")
    parser.add_argument("--seed", type=int, default=SEED, help="another seed is another hour")
    parser.add_argument(
        "--console", action="store_true", help="leave the web console open on the bookstore at the end"
    )
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    screen = Screen()
    try:
        with own_directory(options.directory.resolve()) as directory:
            return Demo(screen, directory, options.seed, options.console).run()
    except (CommandFailed, NotDelivered, NotRead) as error:
        screen.line(f"The demo could not go on: {error}", RED)
        return 1
    except KeyboardInterrupt:
        screen.line("Stopped; nothing is left running.")
        return 130


if __name__ == "__main__":
    sys.exit(main())
