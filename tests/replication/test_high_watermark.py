"""The high watermark over random ISR changes, syncs and fetches, beside an oracle that is too simple to err."""

from random import Random

import pytest

from odradek.errors import ErrorCode, KafkaError
from odradek.replication.settings import ReplicaSettings
from tests.replication.fakes import NODE, FakeLog, lead, registration

STEPS = 120


class World:
    """A leader, and what everybody else would have to know to say what it may commit."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(seed)
        count = rng.randrange(1, 6)
        self.replicas = tuple(range(1, count + 1))
        self.isr = self.some_isr()
        self.proposed: frozenset[int] = self.isr
        self.minimum = rng.randrange(1, 4)
        self.sync_commit = rng.random() < 0.8
        self.start = rng.randrange(20)
        end = self.start + rng.randrange(20)
        self.log = FakeLog(
            log_start_offset=self.start, end_offset=end, synced_offset=rng.randrange(self.start, end + 1)
        )
        self.stored = dict.fromkeys(
            self.replicas[1:], -1
        )  # what the others have synced, as far as they told us
        self.broker_epochs = dict.fromkeys(self.replicas[1:], 0)
        self.partition_epoch = 0
        checkpoint = rng.randrange(0, 60)
        stored = self.log.synced_offset if self.sync_commit else end
        self.expected = max(min(checkpoint, stored), self.start)
        self.told: list[tuple[int, int]] = []  # what was waited for, and the high watermark when it was told
        self.waiting: list[int] = []
        self.leader = lead(
            self.log,
            settings=self.settings(),
            high_watermark=checkpoint,
            replicas=self.replicas,
            isr=tuple(sorted(self.isr)),
        )
        self.check()

    def some_isr(self) -> frozenset[int]:
        return frozenset({NODE, *(each for each in self.replicas if self.rng.random() < 0.6)})

    def settings(self) -> ReplicaSettings:
        return ReplicaSettings(min_insync_replicas=self.minimum, sync_commit=self.sync_commit)

    # --- what happens ---

    def append(self) -> None:
        self.log.end_offset += self.rng.randrange(1, 4)
        self.leader.maybe_advance_high_watermark()

    def sync(self) -> None:
        self.log.synced_offset = self.rng.randrange(self.log.synced_offset, self.log.end_offset + 1)
        self.leader.maybe_advance_high_watermark()

    def fetch(self) -> None:
        if not self.stored:
            return
        replica = self.rng.choice(self.replicas[1:])
        before = self.stored[replica]
        if self.rng.random() < 0.1:  # it restarts, and may have lost something
            self.broker_epochs[replica] += 1
            before = self.rng.randrange(-1, before + 1)
        self.stored[replica] = self.rng.randrange(max(before, 0), max(before, self.log.end_offset) + 1)
        self.leader.replica_fetched(replica, self.broker_epochs[replica], self.stored[replica], 0)

    def fetch_of_a_dead_process(self) -> None:
        if not self.stored or not any(self.broker_epochs.values()):
            return
        replica = max(self.broker_epochs, key=lambda each: self.broker_epochs[each])
        if self.leader.progress[replica].broker_epoch > 0:
            with pytest.raises(KafkaError):
                self.leader.replica_fetched(replica, 0, self.log.end_offset, 0)

    def propose(self) -> None:
        if self.proposed == self.isr:
            self.proposed = self.some_isr()
            self.leader.propose_isr(self.proposed)

    def refuse_proposal(self) -> None:
        self.proposed = self.isr
        self.leader.withdraw_proposal()

    def change_isr(self) -> None:
        """Let what was proposed come into force, or a change of the controller's own come first."""
        self.isr = self.proposed = self.proposed if self.rng.random() < 0.7 else self.some_isr()
        self.partition_epoch += 1
        registered = registration(
            replicas=self.replicas, isr=tuple(sorted(self.isr)), partition_epoch=self.partition_epoch
        )
        self.leader.adopt(registered, 0)

    def change_settings(self) -> None:
        self.minimum = self.rng.randrange(1, 4)
        self.leader.configure(self.settings())

    def wait(self) -> None:
        offset = self.rng.randrange(self.start, self.log.end_offset + 3)
        self.waiting.append(offset)

        def told(error: ErrorCode) -> None:
            assert error is ErrorCode.NONE
            self.waiting.remove(offset)
            self.told.append((offset, self.leader.high_watermark))

        self.leader.when_committed(offset, told)

    # --- what must be so ---

    def oracle(self) -> int:
        own = self.log.synced_offset if self.sync_commit else self.log.end_offset
        everybody = {NODE: own, **self.stored}
        committed = min(everybody[replica] for replica in self.isr | self.proposed)
        is_enough = len(self.isr) >= min(self.minimum, len(self.replicas))
        return max(self.expected, committed) if is_enough else self.expected

    def check(self) -> None:
        self.expected = self.oracle()
        assert self.leader.high_watermark == self.expected
        assert self.leader.isr <= self.leader.maximal_isr == self.isr | self.proposed
        assert all(offset <= high_watermark for offset, high_watermark in self.told)
        assert all(offset > self.expected for offset in self.waiting)
        assert self.log.log_start_offset <= self.leader.high_watermark <= self.log.end_offset


EVENTS = [
    *[World.append, World.sync, World.fetch] * 4,
    World.fetch_of_a_dead_process,
    World.propose,
    World.propose,
    World.refuse_proposal,
    World.change_isr,
    World.change_settings,
    World.wait,
]


@pytest.mark.parametrize("first_seed", range(0, 400, 100))
def test_is_what_the_oracle_says(first_seed: int) -> None:
    moved = 0
    for seed in range(first_seed, first_seed + 100):
        world = World(seed)
        start = world.expected
        for _ in range(STEPS):
            world.rng.choice(EVENTS)(world)
            world.check()
        moved += world.expected > start
    assert moved > 50, "most worlds commit something"
