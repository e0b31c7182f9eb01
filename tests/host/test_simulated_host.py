"""The simulated host: virtual time, threads that finish later, a cleaner, and no chance but the seed's."""

import asyncio
import logging
from random import Random

import pytest

from odradek.host.interface import Host
from odradek.host.log_lines import NodeIdFilter, node_id
from odradek.host.simulated import NothingWillHappen, SimulatedHost, TimeStandsStill, VirtualLoop
from odradek.net.deadlines import Deadlines
from odradek.storage.disk.simulated import SimulatedFiles


def new_host(seed: int = 1, loop: VirtualLoop | None = None) -> SimulatedHost:
    return SimulatedHost(loop or VirtualLoop(), Random(seed), SimulatedFiles())


def test_it_is_a_host() -> None:
    host: Host = new_host()
    assert host.hostname() == "localhost"


def test_time_passes_only_when_everybody_waits() -> None:
    host = new_host()
    began = host.now_ms()
    host.run(asyncio.sleep(3_600))
    assert host.now_ms() - began == 3_600_000
    assert host.monotonic() == 3_600


def test_who_waits_for_nothing_is_told() -> None:
    async def wait_forever() -> None:
        await asyncio.Event().wait()

    with pytest.raises(NothingWillHappen):
        new_host().run(wait_forever())


def test_a_timer_that_sets_itself_again_at_once_is_found_out() -> None:
    host = new_host()

    def spin() -> None:
        host.call_later(0, spin)

    host.call_later(1, spin)
    with pytest.raises(TimeStandsStill, match=r"at 1\.000000 s.*spin"):
        host.run(asyncio.sleep(2))


def test_timers_that_fall_due_together_run_in_the_order_they_were_set() -> None:
    host, ran = new_host(), list[int]()
    for number in range(50):
        host.call_at(1.0, ran.append, number)
    host.run(asyncio.sleep(2))
    assert ran == list(range(50))


def test_the_time_of_day_jumps_and_steady_time_does_not() -> None:
    host = new_host()
    day, steady, seconds = host.now_ms(), host.steady_ms(), host.monotonic()
    host.jump(-60_000)
    assert (host.now_ms() - day, host.steady_ms() - steady, host.monotonic() - seconds) == (-60_000, 0, 0)


def test_a_threads_work_is_done_later_and_never_at_once() -> None:
    host, events = new_host(), list[str]()

    async def main() -> None:
        work = host.create_task(host.in_thread(events.append, "done"))
        for _ in range(10):
            await asyncio.sleep(0)
        events.append("meanwhile")
        await work

    host.run(main())
    assert events == ["meanwhile", "done"]


def test_one_thread_does_one_thing_after_the_other() -> None:
    host, done = new_host(), list[int]()

    async def main() -> None:
        thread = host.new_thread("sync")
        await asyncio.gather(*(thread.run(done.append, number) for number in range(30)))

    host.run(main())
    assert done == list(range(30))


def test_the_seed_says_when_work_is_done() -> None:
    async def race(host: SimulatedHost) -> list[int]:
        done: list[int] = []
        await asyncio.gather(*(host.in_thread(done.append, number) for number in range(20)))
        return done

    orders = [host.run(race(host)) for host in (new_host(1), new_host(1), new_host(2))]
    assert orders[0] == orders[1] != orders[2]


def test_what_a_thread_raises_is_raised() -> None:
    def fail() -> None:
        raise OSError("no disk")

    host = new_host()
    with pytest.raises(OSError, match="no disk"):
        host.run(host.in_thread(fail))


def test_a_killed_cleaner_says_nothing_more() -> None:
    host = new_host()

    async def main() -> None:
        cleaner = await host.start_cleaner()
        cleaner.kill()
        assert await cleaner.receive() == b""
        assert cleaner.has_ended and await cleaner.wait() != 0
        with pytest.raises(ConnectionError):
            await cleaner.send(b"{}\n")

    host.run(main())


def test_free_space_is_the_simulated_disks() -> None:
    files = SimulatedFiles()
    host = SimulatedHost(VirtualLoop(), Random(1), files)
    files.free_bytes = 12_345
    assert host.disk_space("/data").usable == 12_345


def test_deadlines_keep_their_order_and_come_to_an_end_on_virtual_time() -> None:
    host, fired = new_host(), list[int]()
    deadlines = Deadlines(host)
    for number in range(200):
        deadlines.add(number // 20 * 7.3, lambda number=number: fired.append(number))
    host.run(asyncio.sleep(1))
    assert fired == list(range(200))


def test_log_lines_carry_the_id_of_the_node_that_writes_them(caplog: pytest.LogCaptureFixture) -> None:
    loop = VirtualLoop()
    hosts = [new_host(number, loop) for number in (1, 2)]
    caplog.handler.addFilter(identity := NodeIdFilter())
    caplog.set_level(logging.INFO)
    log = logging.getLogger("odradek.test")

    async def work(host: SimulatedHost) -> None:
        await asyncio.sleep(0.001)
        log.info("task")
        await host.in_thread(log.info, "thread")
        host.call_soon(log.info, "callback")
        await asyncio.sleep(0.001)

    async def main() -> None:
        await asyncio.gather(*(host.create_task(work(host)) for host in hosts))
        log.info("outside")

    before = node_id.set(None)  # a test in this process may have run a node outside of any loop
    try:
        for number, host in enumerate(hosts, 1):
            host.context.run(node_id.set, number)
        loop.run_until_complete(main())
    finally:
        node_id.reset(before)
        caplog.handler.removeFilter(identity)
    lines = sorted(f"{record.node}{record.message}" for record in caplog.records)  # type: ignore[attr-defined]
    of_nodes = [f"[node {number}] {what}" for number in (1, 2) for what in ("callback", "task", "thread")]
    assert lines == [*of_nodes, "outside"]


def test_without_power_nothing_of_a_host_goes_on_and_all_others_do() -> None:
    loop = VirtualLoop()
    off, on = new_host(loop=loop), new_host(loop=loop)
    heard: list[str] = []

    async def tick(name: str) -> None:
        try:
            while True:
                await asyncio.sleep(1)
                heard.append(name)
        finally:
            heard.append(f"{name} ends")

    async def play() -> None:
        off.create_task(tick("off"))
        ticking = on.create_task(tick("on"))
        off.call_later(3, heard.append, "off, later")
        await asyncio.sleep(1.5)
        off.cut_power()
        off.call_soon(heard.append, "off, soon")
        await asyncio.sleep(2)
        ticking.cancel()

    loop.run_until_complete(play())
    assert heard == ["off", "on", "on", "on", "on ends"]
    assert len(off.abandoned) == 3  # the task, the timer, and what came after
    for task in asyncio.all_tasks(loop):
        task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()
