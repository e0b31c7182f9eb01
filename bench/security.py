"""TLS and logins beside a warm Apache Kafka: both with ECDSA on P-256, TLS 1.3 and SCRAM-SHA-256, in one run.

python -m bench.security [--quick] [--rounds 3] [--seconds 6] [--only beside-kafka | acls | quotas]

    bulk produce, consume    1 KB records over SASL_SSL
    one message a request    100-byte records, one in each Produce request
    new connections          a TLS handshake and a SCRAM login each, at a fixed rate, by a client with precomputed keys:
                             the server's CPU for each, and another client's p99 beside them and without them

Neither system syncs (Kafka's default). Every workload is warmed on each system first, until it is equally fast five
times in a row or a bound is reached; then the systems are measured in turn.

Then what only Odradek is measured for: the CPU that 10,000 ACLs cost a request (`bench.guarded`), and how well byte
quotas are kept, and at whose cost (`bench.quotas`). `--only beside-kafka`, `acls` or `quotas` leaves out the rest.
"""

import argparse
import json
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import guarded, quotas
from bench.measure import cpu_of, machine_facts
from bench.native import Unavailable
from bench.secure_systems import (
    PASSWORD,
    SMALL_QUEUE,
    TOPIC,
    USER,
    Secure,
    SecureKafka,
    SecureOdradek,
)
from bench.warmth import Warming, is_settled
from odradek.cli.certificates import issue, new_authority
from odradek.security.credentials import SHA_256
from odradek.security.scram import (
    attributes,
    client_key,
    combine,
    decode_base64,
    encode_base64,
    salt_password,
    sign,
    stored_key,
)
from odradek.wire.codec import read_message
from odradek.wire.frame import encode_request, skip_response_header
from odradek.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest

Workload = Callable[["Secure", float], dict[str, float]]

RESULTS = Path(__file__).parent / "results"
PARTITIONS = 1
RATE = 100  # new connections a second
LATENCY_TOPIC = "beside"
WARM_SECONDS = 20.0  # at most, for each workload
LEAST_PIECES = 2  # of a warm-up, where nothing is compiled
PARTS = ("beside-kafka", "acls", "quotas")
QUOTA_SECONDS = 3.0  # of each run beside throttled clients

# The figures, and what they should be in relation to Kafka's.
PRODUCED, CONSUMED, ONE = "bulk produce, MB/s", "bulk consume, MB/s", "one message a request, requests/s"
CONNECTED = "a new connection, server CPU ms"
ALONE, BESIDE = "p99 of another client, ms", f"the same beside {RATE} connections/s, ms"
AIMS = {PRODUCED: "≥ 1.0", CONSUMED: "≥ 1.0", ONE: "≥ 3", CONNECTED: "≤ 1.0"}


# --- new connections ---


class Connector:
    """Connects with TLS and logs in; its salted password is computed once."""

    def __init__(self, port: int, certificates: Path) -> None:
        self._port = port
        self._context = ssl.create_default_context(cafile=certificates / "ca.pem")
        self._salted: dict[tuple[bytes, int], bytes] = {}

    def connect(self) -> None:
        sock = socket.create_connection(("127.0.0.1", self._port), 30)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._context.wrap_socket(sock, server_hostname="127.0.0.1") as connection:
            handshake = SaslHandshakeRequest("SCRAM-SHA-256")
            _exchange(connection, encode_request(handshake, handshake.API_KEY, 1, 1, "bench"))
            bare = f"n={USER},r=clientnonce"
            server_first = self._authenticate(connection, f"n,,{bare}").decode()
            challenge = attributes(server_first)
            salted = self._salt(decode_base64(challenge["s"]), int(challenge["i"]))
            without_proof = f"c=biws,r={challenge['r']}"
            everything = f"{bare},{server_first},{without_proof}"
            key = client_key(SHA_256, salted)
            proof = combine(key, sign(SHA_256, stored_key(SHA_256, key), everything))
            self._authenticate(connection, f"{without_proof},p={encode_base64(proof)}")

    def _salt(self, salt: bytes, iterations: int) -> bytes:
        if (salt, iterations) not in self._salted:
            self._salted[salt, iterations] = salt_password(SHA_256, PASSWORD, salt, iterations)
        return self._salted[salt, iterations]

    def _authenticate(self, connection: ssl.SSLSocket, message: str) -> bytes:
        request = SaslAuthenticateRequest(message.encode())
        frame = _exchange(connection, encode_request(request, request.API_KEY, 2, 2, "bench"))
        position = skip_response_header(frame, request.API_KEY, 2)
        response: Any = read_message(SaslAuthenticateResponse, 2, frame, position)[0]
        assert not response.error_code, response.error_message
        return bytes(response.auth_bytes)


def _exchange(connection: ssl.SSLSocket, request: bytes) -> memoryview:
    connection.sendall(request)
    size, data = None, b""
    while size is None or len(data) < size + 4:
        piece = connection.recv(65536)
        assert piece, "the server closed the connection"
        data += piece
        size = int.from_bytes(data[:4], "big") if len(data) >= 4 else None
    return memoryview(data)[4:]


def connect_for(connector: Connector, seconds: float) -> int:
    """Connect at the fixed rate, or as fast as it goes, and return how often."""
    begin, count = time.monotonic(), 0
    while (now := time.monotonic()) < begin + seconds:
        due = begin + count / RATE
        if due > now:
            time.sleep(due - now)
        connector.connect()
        count += 1
    return count


@contextmanager
def connecting(system: Secure) -> Iterator[None]:
    """Connect again and again in another process, so that it does not slow down the one that measures."""
    command = [
        sys.executable,
        "-m",
        "bench.security",
        "--connect",
        str(system.secure_port),
        str(system.certificates),
    ]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        time.sleep(0.5)
        yield
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(30)


def keep_connecting(port: int, certificates: Path) -> None:
    """Connect again and again until the input ends."""
    connector = Connector(port, certificates)
    is_over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), is_over.set()), daemon=True).start()
    while not is_over.is_set():
        connect_for(connector, 0.2)


# --- workloads ---


def bulk_produce(system: Secure, seconds: float) -> dict[str, float]:
    done = system.secure_load(
        "produce", topic=TOPIC, count=100_000_000, size=1024, seconds=seconds, **SMALL_QUEUE
    )
    return {PRODUCED: done["bytes"] / done["seconds"] / 1e6}


def bulk_consume(system: Secure, seconds: float) -> dict[str, float]:
    count = int(seconds * 100_000)
    done = system.secure_load("consume", topic="filled", count=count, partitions=PARTITIONS)
    return {CONSUMED: done["bytes"] / done["seconds"] / 1e6}


def one_message(system: Secure, seconds: float) -> dict[str, float]:
    done = system.secure_load(
        "produce", topic=TOPIC, count=100_000_000, size=100, one=1, seconds=seconds, **SMALL_QUEUE
    )
    return {ONE: done["messages"] / done["seconds"]}


def connections(system: Secure, seconds: float) -> dict[str, float]:
    pids = system.pids()
    connector = Connector(system.secure_port, system.certificates)
    before = cpu_of(pids)
    count = connect_for(connector, seconds)
    after = cpu_of(pids)
    return {CONNECTED: 1000 * (_seconds(after) - _seconds(before)) / count}


def beside(system: Secure, seconds: float) -> dict[str, float]:
    count = int(seconds * 400)
    alone = system.secure_load("latency", topic=LATENCY_TOPIC, count=count, size=100)
    with connecting(system):
        loaded = system.secure_load("latency", topic=LATENCY_TOPIC, count=count, size=100)
    return {
        ALONE: alone["p99_us"] / 1000,
        BESIDE: loaded["p99_us"] / 1000,
    }


def _seconds(cpu: Any) -> float:
    return float(cpu.user_s + cpu.kernel_s)


WORKLOADS: tuple[Workload, ...] = (
    bulk_produce,
    bulk_consume,
    one_message,
    connections,
    beside,
)


def measure(scratch: Path, rounds: int, seconds: float, warm_seconds: float) -> dict[str, Any]:
    certificates = scratch / "certificates"
    certificates.mkdir()
    new_authority(certificates)
    issue(certificates, "broker", ["localhost", "127.0.0.1"])
    systems: list[Secure] = [SecureOdradek(scratch), SecureKafka(scratch)]
    results: dict[str, dict[str, list[float]]] = {system.title: {} for system in systems}
    warmings: list[dict[str, Any]] = []
    try:
        for system in systems:
            system.start()
            for topic in (TOPIC, "filled", LATENCY_TOPIC):
                system.create_topic(topic, PARTITIONS)
            system.secure_load("produce", topic="filled", count=int(seconds * 100_000) + 1000, size=1024)
        for workload in WORKLOADS:
            for system in systems:
                warmings.append(_warm(system, workload, warm_seconds, seconds))
            for number in range(rounds):
                for system in systems if number % 2 == 0 else reversed(systems):
                    for name, value in workload(system, seconds).items():
                        results[system.title].setdefault(name, []).append(value)
                        print(f"{number + 1}  {system.title:13} {name}: {value:.4g}", flush=True)
    finally:
        for system in systems:
            system.discard()
    return {"results": results, "warm-ups": warmings}


def _warm(system: Secure, workload: Workload, bound: float, seconds: float) -> dict[str, Any]:
    """Pieces of a second until they are equally fast, where the server compiles while it runs."""
    warming = Warming(system.title, workload.__name__, "a second", has_to_settle=system.compiles_as_it_runs)
    began = time.monotonic()
    while warming.seconds < bound and not warming.settled:
        for figure, value in workload(system, min(1.0, seconds)).items():
            warming.values.setdefault(figure, []).append(value)
        warming.seconds = round(time.monotonic() - began, 1)
        warming.settled = all(map(is_settled, warming.values.values()))
        if not warming.has_to_settle and warming.pieces == LEAST_PIECES:
            break
    return warming.as_stored()


def beside_kafka(found: dict[str, dict[str, list[float]]]) -> list[str]:
    ours, theirs = found["Odradek"], found["Apache Kafka"]
    lines = ["| | Odradek | Apache Kafka | Odradek / Kafka | aim |", "|---|---|---|---|---|"]
    for name, values in ours.items():
        lines.append(
            f"| {name} | {statistics.median(values):.4g} | {statistics.median(theirs[name]):.4g} "
            f"| {_ratio(values, theirs[name])} | {AIMS.get(name, '')} |"
        )
    worse = [_ratio(one[BESIDE], one[ALONE]) for one in (ours, theirs)]
    return [
        *lines,
        f"| p99 of another client, beside connections / without | {worse[0]} | {worse[1]} | | ours ≤ 2 |",
    ]


def _ratio(values: list[float], others: list[float]) -> str:
    ratios = [one / other for one, other in zip(values, others, strict=True) if other]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})" if ratios else ""


def of_acls(found: dict[str, list[float]]) -> list[str]:
    lines = ["| one message a request, server CPU | µs |", "|---|---|"]
    lines += [f"| {title} | {statistics.median(values):.2f} |" for title, values in found.items()]
    median, least, most = guarded.difference(found)
    return [*lines, f"| more with ACLs (aim: ≤ 2) | {median:+.2f} ({least:+.2f} to {most:+.2f}) |"]


def of_quotas(figures: list[quotas.Figure]) -> list[str]:
    lines = ["| byte quotas | quota | measured | difference | aim |", "|---|---|---|---|---|"]
    return lines + [
        f"| {one.what} | {one.quota} | {one.measured} | {one.difference:+.1%} | {one.aim} |"
        for one in figures
    ]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one short round, which stores nothing")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=6.0, help="of each workload in a round")
    parser.add_argument("--only", choices=PARTS, action="append", help="may be repeated")
    parser.add_argument("--connect", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.connect:
        keep_connecting(int(options.connect[0]), Path(options.connect[1]))
        return 0
    if options.quick:
        options.rounds, options.seconds = 1, 2.0
    began = datetime.now(UTC)
    found: dict[str, Any] = {"machine": machine_facts(Path(tempfile.gettempdir()))}
    try:
        lines = run(options.only or PARTS, options.rounds, options.seconds, options.quick, found)
    except Unavailable as reason:
        print(reason)
        return 1
    print("\n".join(lines))
    if not options.quick and not options.only:
        store(found, lines, began, options.rounds)
    return 0


def run(
    parts: Sequence[str], rounds: int, seconds: float, is_quick: bool, found: dict[str, Any]
) -> list[str]:
    """The report; `found` gets the figures."""
    lines: list[str] = []
    with tempfile.TemporaryDirectory() as scratch:
        if "beside-kafka" in parts:
            found |= measure(Path(scratch), rounds, seconds, 6.0 if is_quick else WARM_SECONDS)
            lines += [*beside_kafka(found["results"]), ""]
        if "acls" in parts:
            found["acls"] = guarded.measure(Path(scratch), rounds, seconds)
            lines += [*of_acls(found["acls"]), ""]
    if "quotas" in parts:
        figures = quotas.measure(rounds, QUOTA_SECONDS)
        found["quotas"] = {one.what: [one.measured, one.difference] for one in figures}
        lines += of_quotas(figures)
    return lines


def store(found: dict[str, Any], lines: list[str], began: datetime, rounds: int) -> None:
    took = (datetime.now(UTC) - began).total_seconds() / 60
    found["began"], found["minutes"] = began.isoformat(timespec="seconds"), round(took, 1)
    (RESULTS / "security.json").write_text(json.dumps(found, indent=1) + "\n")
    facts = ", ".join(f"{name} {value}" for name, value in found["machine"].items())
    about = f"{found['began']}, {found['minutes']} minutes; {facts}. Medians of {rounds} rounds."
    text = "\n".join(lines)
    (RESULTS / "security.md").write_text(f"# TLS, logins, ACLs and quotas\n\n{about}\n\n{text}\n")


if __name__ == "__main__":
    raise SystemExit(main())
