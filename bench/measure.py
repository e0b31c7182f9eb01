"""Measure CPU seconds and memory of a server's processes, and compute medians, spreads and ratios of runs.

CPU is read from /proc before and after, over all processes and threads of a system. On loopback the kernel's
work for one end of a connection is in part counted to the other; that holds for every system alike.
A ratio is the quotient of two medians; its spread is that of the quotients round by round.
"""

import os
import platform
import statistics
import sysconfig
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from bench import native

PYTHON_FLAGS = ("--enable-optimizations", "--with-lto")
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")
MB = 1_000_000
GB = 1_000_000_000
REST_INTERVAL_S = 0.5
REST_SHARE = 0.2  # of a core: a JVM is never quite at rest
REST_TIMEOUT_S = 120
PERCENTILES = ("p50_us", "p99_us", "p999_us")

Numbers = dict[str, float]


class Spread(NamedTuple):
    median: float
    low: float
    high: float

    @property
    def percent(self) -> float:
        """Half the distance from lowest to highest, as a share of the median."""
        return 50 * (self.high - self.low) / self.median if self.median else 0.0


def spread_of(values: Sequence[float]) -> Spread:
    return Spread(statistics.median(values), min(values), max(values))


def ratio_of(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Spread:
    """Ours divided by theirs, from values by round."""
    rounds = ours.keys() & theirs.keys()
    each = [ours[number] / theirs[number] for number in rounds]
    return Spread(statistics.median(ours.values()) / statistics.median(theirs.values()), min(each), max(each))


@dataclass
class Cpu:
    user_s: float = 0.0
    kernel_s: float = 0.0


def process_tree(roots: Sequence[int]) -> list[int]:
    """List these processes and all that they have started."""
    found, waiting = [], list(roots)
    while waiting:
        pid = waiting.pop()
        try:
            children = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
        except OSError:
            continue
        found.append(pid)
        waiting += [int(child) for text in children for child in text.split()]
    return found


def cpu_of(pids: Sequence[int]) -> Cpu:
    """Return the CPU time so far, with the children that have ended; a process that is gone counts nothing."""
    total = Cpu()
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        user, kernel, children_user, children_kernel = map(int, fields[11:15])
        total.user_s += (user + children_user) / TICKS_A_SECOND
        total.kernel_s += (kernel + children_kernel) / TICKS_A_SECOND
    return total


@contextmanager
def metered(pids: Sequence[int]) -> Iterator[Cpu]:
    """CPU that the processes use while the block runs; filled in at its end."""
    used, before = Cpu(), cpu_of(pids)
    yield used
    after = cpu_of(pids)
    used.user_s, used.kernel_s = after.user_s - before.user_s, after.kernel_s - before.kernel_s


def await_rest(pids: Sequence[int], timeout_s: float = REST_TIMEOUT_S) -> None:
    """Wait until the processes have next to nothing to do: work for earlier responses may still be going on."""
    for _ in range(int(timeout_s / REST_INTERVAL_S)):
        with metered(pids) as cpu:
            time.sleep(REST_INTERVAL_S)
        if cpu.user_s + cpu.kernel_s < REST_SHARE * REST_INTERVAL_S:
            return


def memory_mb(pids: Sequence[int]) -> float:
    """Resident memory, as `ps` shows it."""
    return sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids) * PAGE_SIZE / MB


def descriptor_count(pids: Sequence[int]) -> int:
    return sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in pids)


def forget_cached(directory: Path) -> None:
    """Write everything to disk, then let the kernel drop what it keeps of these files in memory."""
    os.sync()
    for parent, _, names in os.walk(directory):  # unlike rglob, it passes over what is deleted meanwhile
        for name in names:
            with suppress(FileNotFoundError):
                _forget_file(Path(parent, name))


def _forget_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def bulk_limit(directory: Path, scale: float) -> dict[str, Numbers]:
    file, size = directory / "limit", max(16 * 1024 * 1024, int(GB * scale))
    received = native.run("limit", "receive", {"file": file, "bytes": size})
    sent = native.run("limit", "send", {"file": file, "bytes": size})
    file.unlink()
    return {"bulk-1k": rate_numbers("produce", received) | rate_numbers("consume", sent)}


def latency_limit(directory: Path, scale: float) -> dict[str, Numbers]:
    file, count = directory / "limit", max(100, int(20_000 * scale))
    echo = native.run("limit", "echo", {"count": count})
    sync = native.run("limit", "sync", {"file": file, "count": max(100, count // 10), "size": 1024})
    file.unlink()
    return {
        "latency": {name: echo[name] for name in PERCENTILES},
        "fdatasync": {name: sync[name] for name in PERCENTILES},
    }


# The work of a workload in a bare loop: what a server would reach that did nothing else. Measured in the same rounds.
LIMITS: dict[str, Callable[[Path, float], dict[str, Numbers]]] = {
    "bulk-1k": bulk_limit,
    "latency": latency_limit,
    "replicated-latency": latency_limit,
}


def rate_numbers(verb: str, output: Mapping[str, float], cpu: Cpu | None = None) -> Numbers:
    """MB a second, and CPU seconds a GB, from what a load generator printed."""
    cpu = cpu or Cpu(output["user_s"], output["kernel_s"])
    seconds = output["seconds"] - output.get("first_seconds", 0.0)
    return {
        f"{verb}_mb_s": output["bytes"] / MB / seconds,
        f"{verb}_user_s_gb": cpu.user_s * GB / output["bytes"],
        f"{verb}_kernel_s_gb": cpu.kernel_s * GB / output["bytes"],
    }


def request_numbers(requests: float, seconds: float, cpu: Cpu) -> Numbers:
    return {
        "requests_s": requests / seconds,
        "request_user_us": cpu.user_s * 1e6 / requests,
        "request_kernel_us": cpu.kernel_s * 1e6 / requests,
    }


def machine_facts(directory: Path) -> dict[str, str]:
    """Describe the machine, as far as a reader needs it to place the numbers."""
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * PAGE_SIZE
    models = [line for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cpu": models[0].partition(":")[2].strip() if models else platform.machine(),
        "cores": str(os.cpu_count()),
        "memory": f"{memory_bytes / GB:.0f} GB",
        "kernel": platform.release(),
        "filesystem": _filesystem_of(directory),
        "python": python_build(),
        "load_before": f"{os.getloadavg()[0]:.2f}",
    }


def python_build() -> str:
    """Version, compiler, and whether it was built to be fast, which can be a sixth of the CPU."""
    arguments = str(sysconfig.get_config_var("CONFIG_ARGS") or "")
    level = next((flag for flag in str(sysconfig.get_config_var("OPT")).split() if flag.startswith("-O")), "")
    built = [f"{'with' if flag in arguments else 'without'} {flag}" for flag in PYTHON_FLAGS]
    parts = (platform.python_compiler(), level, "configured " + " and ".join(built))
    return f"{platform.python_version()} ({', '.join(part for part in parts if part)})"


def _filesystem_of(directory: Path) -> str:
    """Type of the file system that holds it: the longest mount point on its path."""
    mounts = [line.split() for line in _lines("/proc/mounts")]
    holding = [mount for mount in mounts if directory.resolve().is_relative_to(mount[1])]
    return max(holding, key=lambda mount: len(mount[1]))[2] if holding else "unknown"


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
