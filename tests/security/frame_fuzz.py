"""Handshakes and frames that nobody would send, against one broker process: TLS and SASL before authentication.

    python -m tests.security.frame_fuzz --count 100000

Each connection begins like a real one and goes wrong somewhere: bytes of a TLS handshake are changed, cut off or
repeated; frames inside a good handshake have any API key, version and body; messages of a mechanism are damaged; a peer
says nothing. Meanwhile another client writes and reads records. At the end the broker has neither more memory nor more
sockets than after the first tenth.
"""

import argparse
import os
import random
import socket
import ssl
import struct
import threading
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition

from odradek.apis.table import APIS
from odradek.security.plain import client_message
from odradek.testing import Broker, broker
from odradek.wire.frame import encode_request
from odradek.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest

THREADS = 16
HEARING_S = 0.2  # how long a peer waits for more
PACE_S = 0.02  # of the healthy client
TIMEOUT_S = 20
MAX_GROWTH_KB = 20_000  # of the broker's memory between the first tenth and the end
KEYS = sorted(APIS)
FIRST_MESSAGES = {
    "PLAIN": client_message("admin", "wrong"),
    "SCRAM-SHA-512": b"n,,n=admin,r=abcdefgh",
}


class Target(NamedTuple):
    address: tuple[str, int]
    context: ssl.SSLContext


class Outcome(NamedTuple):
    connections: int
    kinds: Counter[str]
    records: int  # that the healthy client wrote and read back
    memory_kb: tuple[int, int]  # after the first tenth, and at the end
    sockets: tuple[int, int]


# --- one connection ---


def damaged(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(changed) + 1)
        choice = rng.random()
        if choice < 0.5 and changed:
            changed[place % len(changed)] = rng.randrange(256)
        elif choice < 0.7:
            changed[place:place] = rng.randbytes(rng.randint(1, 40))
        elif choice < 0.85:
            del changed[place : place + rng.randint(1, 40)]
        else:
            del changed[place:]
    return bytes(changed)


def client_hello(target: Target) -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    session = target.context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    try:
        session.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()


def send_and_hear(sock: socket.socket, data: bytes) -> None:
    """The broker may close the connection whenever it likes."""
    try:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        sock.settimeout(HEARING_S)
        while sock.recv(65536):
            pass
    except (ConnectionError, TimeoutError):
        pass


def break_handshake(rng: random.Random, target: Target) -> None:
    hello = client_hello(target)
    parts = [damaged(rng, hello)] if rng.random() < 0.8 else [hello, rng.randbytes(rng.randint(1, 300))]
    with socket.create_connection(target.address, TIMEOUT_S) as sock:
        send_and_hear(sock, b"".join(parts))


def send_noise(rng: random.Random, target: Target) -> None:
    with socket.create_connection(target.address, TIMEOUT_S) as sock:
        send_and_hear(sock, rng.randbytes(rng.randint(0, 500)))


def leave(rng: random.Random, target: Target) -> None:
    with socket.create_connection(target.address, TIMEOUT_S) as sock:
        sock.sendall(client_hello(target)[: rng.randint(0, 300)])
        if rng.random() < 0.5:  # a reset instead of an end
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def send_frames(rng: random.Random, target: Target) -> None:
    with socket.create_connection(target.address, TIMEOUT_S) as sock:
        try:
            with target.context.wrap_socket(sock, server_hostname="localhost") as connection:
                connection.sendall(b"".join(frame(rng) for _ in range(rng.randint(1, 3))))
                connection.settimeout(HEARING_S)
                while rng.random() < 0.7 and connection.recv(65536):
                    pass
        except (ConnectionError, TimeoutError, ssl.SSLError):
            pass


def frame(rng: random.Random) -> bytes:
    choice = rng.random()
    if choice < 0.4:
        version = rng.choice((-1, 0, 1, 2, 3, 9, 32767))
        body = struct.pack(">hhi", rng.choice((*KEYS, -1, 999)), version, 7) + rng.randbytes(
            rng.randint(0, 60)
        )
        return struct.pack(">i", len(body)) + body
    if choice < 0.5:
        return struct.pack(">i", rng.choice((-1, 0, 1, 65_537, 1 << 30))) + rng.randbytes(8)
    mechanism, message = rng.choice(list(FIRST_MESSAGES.items()))
    version = rng.choice((0, 1))
    handshake = SaslHandshakeRequest(mechanism if rng.random() < 0.9 else "GSSAPI")
    begin = encode_request(handshake, handshake.API_KEY, version, 1, "fuzz")
    sent = damaged(rng, message) if rng.random() < 0.8 else message
    if version == 0:
        return begin + struct.pack(">i", len(sent)) + sent
    request = SaslAuthenticateRequest(sent)
    following = encode_request(request, request.API_KEY, 2, 2, "fuzz")
    return begin + (damaged(rng, following) if rng.random() < 0.3 else following)


# --- the whole run ---


def fuzz(kafka: Broker, count: int, seed: int) -> Outcome:
    host, port = kafka.bootstrap.rsplit(":", 1)
    target = Target((host, int(port)), ssl.create_default_context(cafile=kafka.login.ca_file))
    kinds: Counter[str] = Counter()
    failures: list[BaseException] = []
    numbers = iter(range(count))
    taking = threading.Lock()
    measured: list[tuple[int, int]] = []

    def work(rng: random.Random) -> None:
        while not failures:
            with taking:
                number = next(numbers, None)
                if number is None:
                    return
                if number == count // 10:
                    measured.append(size_of(kafka.pid))
            kind = rng.choices([break_handshake, send_noise, leave, send_frames], weights=[4, 2, 1, 5])[0]
            kinds[kind.__name__] += 1
            try:
                kind(rng, target)
            except BaseException as failure:
                failures.append(failure)

    healthy = Healthy(kafka)
    threads = [threading.Thread(target=work, args=(random.Random(seed + one),)) for one in range(THREADS)]
    for thread in (healthy, *threads):
        thread.start()
    for thread in threads:
        thread.join()
    healthy.stop()
    if failures:
        raise failures[0]
    deadline = time.monotonic() + 60
    while (after := size_of(kafka.pid))[1] > measured[0][1] + 5 and time.monotonic() < deadline:
        time.sleep(0.2)  # connections that are being refused
    return Outcome(count, kinds, healthy.count, (measured[0][0], after[0]), (measured[0][1], after[1]))


def size_of(pid: int) -> tuple[int, int]:
    """Its memory in kB, and how many sockets it has open."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024, sum(map(_is_socket, Path(f"/proc/{pid}/fd").iterdir()))


def _is_socket(descriptor: Path) -> bool:
    try:
        return os.readlink(descriptor).startswith("socket:")
    except OSError:
        return False  # it was closed meanwhile


class Healthy(threading.Thread):
    """A client that writes a record and reads it, again and again."""

    def __init__(self, kafka: Broker) -> None:
        super().__init__()
        self._topic = kafka.create_topic()
        self._settings = {"bootstrap.servers": kafka.bootstrap, **kafka.login.librdkafka}
        self._is_over = threading.Event()
        self._failure: BaseException | None = None
        self.count = 0

    def run(self) -> None:
        try:
            self._work()
        except BaseException as failure:
            self._failure = failure

    def _work(self) -> None:
        producer = Producer(self._settings)
        consumer = Consumer({**self._settings, "group.id": "healthy"})
        consumer.assign([TopicPartition(self._topic, 0, 0)])
        while not self._is_over.wait(PACE_S):
            producer.produce(self._topic, str(self.count))
            assert producer.flush(60) == 0, "a record was not accepted"
            message = consumer.poll(60)
            assert message is not None and message.value() == str(self.count).encode()
            self.count += 1
        consumer.close()

    def stop(self) -> None:
        self._is_over.set()
        self.join()
        if self._failure is not None:
            raise self._failure


def check(kafka: Broker, found: Outcome) -> None:
    assert kafka.is_running
    assert "Traceback" not in kafka.log, kafka.log[kafka.log.index("Traceback") - 500 :][:4000]
    assert found.records > 0
    before, after = found.memory_kb
    assert after - before < MAX_GROWTH_KB, found
    assert found.sockets[1] <= found.sockets[0] + 5, found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    began = time.monotonic()
    with broker(security="SASL_SSL") as kafka:
        found = fuzz(kafka, options.count, options.seed)
        print(found, f"{time.monotonic() - began:.0f} s", f"log of {len(kafka.log)} characters", flush=True)
        check(kafka, found)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
