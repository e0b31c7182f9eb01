"""Faults of the disks of a cluster with data: logs that are cut short while their nodes are down.

A log is cut anywhere, at the end of a batch or in the middle of one, and the segments after that are gone, with or
without their indexes. It happens to one node, or while all are down, after a power cut as well as after a clean stop;
the nodes then start in any order. `damages` says to which logs.
"""

from tests.cluster.committed import read_files
from tests.cluster.leader_faults import LeaderFaults
from tests.cluster.replicated_log import ReplicatedLog
from tests.simulation.machine import DATA_DIR, Machine

SEGMENT_SUFFIXES = (".index", ".timeindex", ".txnindex")


class DamageFaults(LeaderFaults):
    async def _damage(self) -> None:
        """One node goes down, and some of its logs are cut short."""
        node_id = self._leading() if self._rng.random() < 0.5 else self._victim()
        if node_id is None:
            return
        self._busy[node_id] = None
        await self._switch_off(node_id, is_clean=self._rng.random() < 0.3)
        self._cut_logs(node_id)
        await self._wait(0.0, 1.0)
        self._start_soon(node_id)
        del self._busy[node_id]

    async def _damage_all(self) -> None:
        """All nodes go down, some logs are cut short, and all start again, in any order."""
        nodes = [node_id for node_id in self.cluster.machines if self._is_free(node_id)]
        self._count("restarts of all nodes with damaged logs")
        self._busy.update(dict.fromkeys(nodes))
        is_clean = self._rng.random() < 0.2
        stops = [self.world.spawn(self._switch_off(node_id, is_clean)) for node_id in nodes]
        for stop in stops:
            await stop
        self._rng.shuffle(nodes)
        for node_id in nodes:
            self._cut_logs(node_id)
        self._rng.shuffle(nodes)
        for node_id in nodes:
            await self._wait(0.0, 0.4)
            self._start_soon(node_id)
            del self._busy[node_id]

    async def _switch_off(self, node_id: int, is_clean: bool) -> None:
        machine = self.cluster.machines[node_id]
        if is_clean:
            await machine.stop()
        if machine.is_on:
            machine.cut_power(self.world.new_rng(), self._rng.random() < 0.3)

    def _cut_logs(self, node_id: int) -> None:
        if node_id not in self.cluster.brokers:
            return
        damages = self.replicated.damages
        for log in self.replicated.logs.values():
            if self._rng.random() < 0.6 and damages.may_damage(log, node_id):
                self._cut_log(self.cluster.machines[node_id], node_id, log)

    def _cut_log(self, machine: Machine, node_id: int, log: ReplicatedLog) -> None:
        files = machine.files
        directory = f"{DATA_DIR}/{log.name}"
        found = files.durable(directory)
        segments = sorted(name for name in found if name.endswith(".log"))
        left = self._bytes_to_keep({name: found[name] for name in segments})
        if left is None:
            return
        removes_indexes = self._rng.random() < 0.5
        for name in segments:
            size = len(found[name])
            if left >= size and name != segments[-1]:
                left -= size
            elif left >= 0:
                file = files.file(f"{directory}/{name}")
                file.truncate(left)
                file.sync()
                file.close()
                left = -1
            else:
                files.remove(f"{directory}/{name}")
                for suffix in SEGMENT_SUFFIXES if removes_indexes else ():
                    if name.replace(".log", suffix) in found:
                        files.remove(f"{directory}/{name.replace('.log', suffix)}")
        files.sync_directory(directory)
        self.replicated.damages.damaged(log, node_id)
        self._count("logs that were cut short")
        self.world.note(machine.name, f"has lost the end of {log.name}")

    def _bytes_to_keep(self, segments: dict[str, bytes]) -> int | None:
        """Cut a log; None if there is nothing to cut."""
        total = sum(map(len, segments.values()))
        if not total:
            return None
        if self._rng.random() < 0.5:
            return self._rng.randrange(total)
        sizes = [len(item.data) for item in read_files(segments)]
        return sum(sizes[: self._rng.randrange(len(sizes))]) if sizes else None
