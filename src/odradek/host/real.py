"""This machine: its clocks, the event loop, threads and processes."""

import asyncio
import os
import socket
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, TypeVar

from odradek.host.interface import DiskSpace
from odradek.storage.compaction.cleaner import MAX_LINE_BYTES
from odradek.storage.disk.shortage import CannotOpen

Result = TypeVar("Result")

CLEANER_MODULE = "odradek.storage.compaction.worker"


class RealHost:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._steady_offset_ms = self.now_ms() - time.monotonic_ns() // 1_000_000
        self.monotonic = time.monotonic  # uvloop's own time does not advance during a turn of the loop
        self.call_soon = loop.call_soon
        self.call_later = loop.call_later
        self.call_at = loop.call_at
        self.loop_time = loop.time
        self.create_task = loop.create_task
        self.hostname = socket.gethostname

    @staticmethod
    def now_ms() -> int:
        return time.time_ns() // 1_000_000

    def steady_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000 + self._steady_offset_ms

    async def in_thread(self, work: Callable[..., Result], *arguments: Any) -> Result:
        return await self.loop.run_in_executor(None, copy_context().run, work, *arguments)

    def new_thread(self, name: str) -> "RealThread":
        return RealThread(self.loop, name)

    async def start_cleaner(self) -> "CleanerProcess":
        return await start_cleaner()

    @staticmethod
    def disk_space(path: str) -> DiskSpace:
        found = os.statvfs(path)
        return DiskSpace(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)


class RealThread:
    def __init__(self, loop: asyncio.AbstractEventLoop, name: str) -> None:
        self._loop = loop
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)

    async def run(self, work: Callable[..., Result], *arguments: Any) -> Result:
        return await self._loop.run_in_executor(self._executor, copy_context().run, work, *arguments)

    def close(self) -> None:
        self._executor.shutdown()


class CleanerProcess:
    """A child that reads a line and writes lines: see `storage.compaction.worker`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._process = process
        self._input = process.stdin
        self._output = process.stdout

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process.returncode is not None

    async def send(self, line: bytes) -> None:
        self._input.write(line)
        await self._input.drain()

    async def receive(self) -> bytes:
        return await self._output.readline()

    def kill(self) -> None:
        if not self.has_ended:
            self._process.kill()

    async def wait(self) -> int:
        return await self._process.wait()


async def start_cleaner() -> CleanerProcess:
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            CLEANER_MODULE,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=MAX_LINE_BYTES,
        )
    except OSError as error:  # uvloop does not say which: a process needs descriptors and memory
        raise CannotOpen(error.errno, f"the cleaner's process cannot start: {error.strerror}") from error
    return CleanerProcess(process)
