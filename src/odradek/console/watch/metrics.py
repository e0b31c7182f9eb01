"""Load of brokers that serve `/metrics`: bytes, requests and how long disks take, since the console started.

A broker says by its setting `metrics.listener` where that is. Only its own host is asked, whatever the setting names.
"""

import re
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass

from odradek.admin.access import Access, Address
from odradek.admin.failures import AdminError
from odradek.admin.resources import RESOURCE_CODES, Kind
from odradek.admin.settings import describe_configs

SETTING = "metrics.listener"
TIMEOUT_S = 2.0
MAX_BYTES = 4 * 1024 * 1024
LOOK_AGAIN_S = 60.0
LINE = re.compile(r"odradek_(\w+)(?:\{([^}]*)\})? ([\d.e+-]+|NaN)")
HISTOGRAMS = {"sync_seconds_bucket": "sync", "event_loop_lag_seconds_bucket": "lag"}

Numbers = dict[str, float]


@dataclass(frozen=True)
class Load:
    """A second, of all brokers that report it."""

    received_bytes: float
    sent_bytes: float
    requests: float
    sync_p99_s: float | None  # None: no sync since the console started
    lag_p99_s: float | None  # how long requests wait for their turn
    brokers: int


class MetricsTask:
    """Asks brokers for their metrics; remembers where they are, and what they said first and last."""

    def __init__(self) -> None:
        self._ports: dict[int, int] = {}
        self._asked_s = -LOOK_AGAIN_S
        self._first: dict[int, Numbers] = {}
        self._last: dict[int, tuple[float, Numbers]] = {}

    def ask(self, access: Access, brokers: Mapping[int, Address], now_s: float) -> Load | None:
        if now_s - self._asked_s >= LOOK_AGAIN_S:
            self._ports, self._asked_s = _ports(access, brokers), now_s
        rates: list[Numbers] = []
        grown: Numbers = {}
        for broker, port in self._ports.items():
            if broker not in brokers:
                continue
            try:
                numbers = read_numbers(_page(brokers[broker].host, port))
            except (OSError, ValueError):
                continue
            first = self._first.get(broker, numbers)
            if any(numbers.get(name, 0.0) < value for name, value in first.items()):
                first = numbers  # it was started again
                self._last.pop(broker, None)
            self._first[broker] = first
            for name, value in numbers.items():
                grown[name] = grown.get(name, 0.0) + value - first.get(name, 0.0)
            if broker in self._last:
                then_s, before = self._last[broker]
                rates.append(
                    {
                        name: (value - before.get(name, 0.0)) / (now_s - then_s)
                        for name, value in numbers.items()
                    }
                )
            self._last[broker] = (now_s, numbers)
        if not rates:
            return None
        total = {name: sum(one.get(name, 0.0) for one in rates) for name in ("received", "sent", "requests")}
        sync_p99_s, lag_p99_s = (percentile(grown, name, 0.99) for name in HISTOGRAMS.values())
        return Load(total["received"], total["sent"], total["requests"], sync_p99_s, lag_p99_s, len(rates))


def _ports(access: Access, brokers: Mapping[int, Address]) -> dict[int, int]:
    found = {}
    for broker, address in brokers.items():
        try:
            results = describe_configs(access, address, RESOURCE_CODES[Kind.BROKER], [str(broker)], [SETTING])
        except AdminError:
            continue
        for one in (one for result in results for one in result.configs if one.name == SETTING and one.value):
            port = (one.value or "").rpartition(":")[2]
            if port.isdecimal() and int(port):
                found[broker] = int(port)
    return found


def _page(host: str, port: int) -> str:
    shown = f"[{host}]" if ":" in host else host
    with urllib.request.urlopen(f"http://{shown}:{port}/metrics", timeout=TIMEOUT_S) as response:
        page: bytes = response.read(MAX_BYTES)
        return page.decode(errors="replace")


def read_numbers(page: str) -> Numbers:
    """The counters that matter here: bytes of clients, requests, and the buckets of histograms."""
    numbers: Numbers = {}
    for line in page.splitlines():
        found = LINE.fullmatch(line)
        if found is None:
            continue
        name, labels, value = found[1], found[2] or "", float(found[3])
        if name in ("received_bytes_total", "sent_bytes_total") and 'side="clients"' in labels:
            numbers[name.partition("_")[0]] = value
        elif name == "requests_total":
            numbers["requests"] = numbers.get("requests", 0.0) + value
        elif name in HISTOGRAMS:
            numbers[f"{HISTOGRAMS[name]} le {labels.partition('=')[2].strip(chr(34))}"] = value
    return numbers


def percentile(grown: Numbers, histogram: str, share: float) -> float | None:
    """The upper bound of the bucket that has it."""
    prefix = f"{histogram} le "
    buckets = sorted(
        (float(name.removeprefix(prefix)), count) for name, count in grown.items() if name.startswith(prefix)
    )
    if not buckets or not buckets[-1][1]:
        return None
    wanted = share * buckets[-1][1]
    bounds = [bound for bound, count in buckets if count >= wanted]
    return next(
        (bound for bound in bounds if bound != float("inf")), buckets[-2][0] if len(buckets) > 1 else None
    )
