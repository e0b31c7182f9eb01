"""Storms in which consumers read from followers too (KIP-392): the same promises hold wherever they read.

- P5  what a follower serves is what the leader committed at that offset
- P6  no follower shows a high watermark that no leader has reached
- P7  what followers have shown as committed, later leaders do not take back

A follower may lack what others have, so an offset that is out of its range says nothing.
"""

from odradek.errors import ErrorCode
from tests.cluster.storm import Storm
from tests.cluster.traffic import FETCH_VERSION, ClusterPlay, Reader, check_read_code
from tests.simulation.log_history import PartitionHistory
from tests.simulation.reader import by_topic, fetch_request
from tests.simulation.trace import Trace

SELECTOR = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}
FROM_FOLLOWERS = "reads from followers"


class FollowerReader(Reader):
    """Asks any broker that has a replica."""

    def __init__(self, play: ClusterPlay, name: str) -> None:
        super().__init__(play, name, 0.03)

    async def _fetch(self, partition: PartitionHistory, offset: int, max_wait_ms: int) -> int | None:
        machines = self.play.cluster.machines
        node_id = self.rng.choice(self.play.cluster.brokers)
        leader, epoch = self.router.leader_of(partition.topic.id, partition.index)
        if not machines[node_id].is_on or leader < 0:
            return None
        connection = await self.router.connection_to(node_id)
        view = partition.view()._replace(high_watermark=0)
        request = fetch_request(by_topic([(partition, offset, view)]), True, max_wait_ms, 1 << 20)
        request.topics[0].partitions[0].current_leader_epoch = epoch
        found = (await connection.ask(request, FETCH_VERSION)).responses[0].partitions[0]
        if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return None
        if found.error_code:
            check_read_code(found.error_code, partition)
            return None
        log = self.play.replicated.logs[partition.topic.id, partition.index]
        if found.high_watermark > log.high_watermark:
            self.play.replicated.fail(
                log, f"P6: broker {node_id} shows a high watermark of {found.high_watermark}"
            )
        self.play.show(partition, epoch, found.high_watermark)
        if found.records and node_id != leader:
            self.play.count(FROM_FOLLOWERS)
        return partition.check_fetch(view, offset, found, True)


class FollowerStorm(Storm):
    def __init__(self, seed: int, trace: Trace | None = None) -> None:
        super().__init__(seed, trace)
        for machine in self.cluster.machines.values():
            machine.configure(SELECTOR)
        self._clients += [FollowerReader(self.play, f"follower-reader{number}") for number in (1, 2)]
