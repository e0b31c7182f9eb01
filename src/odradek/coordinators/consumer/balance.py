"""Balance when members subscribe to different topics.

Think of members as points, with a path from `a` to `b` when `a` has a partition of a topic that `b` reads.
If there is a path, however long, from `a` to `b` and `a` has at least two more than `b`, moving one
partition along each step of it improves the balance. If there is none, the load is as even as
the subscriptions allow: that is the optimality condition of a semi-matching, and it minimises the sum of
squares. Kafka looks at paths of one step only and stops after 16 rounds; we follow them to the end.

So: keep the partitions that members had in their target and still read, give the rest to the reader with the
least, then search backwards from the lightest member for one that is heavier by two. If the search fails, everything
it saw can never again be part of an improvement (any member with a path to it was seen too), so it is retired,
and the last, failing searches together cost one walk over the group. Searching by shortest path keeps moves
few, though not provably the fewest.
"""

import heapq
from collections.abc import Mapping
from uuid import UUID

from odradek.coordinators.consumer.assignment import Partitions


def balance_unlike(
    members: Mapping[str, tuple[frozenset[UUID], Partitions]], partition_counts: Mapping[UUID, int]
) -> dict[str, Partitions]:
    """Return a new promise for each member id, given the topics that it reads and the partitions it was promised."""
    balancer = _Balancer(members, partition_counts)
    balancer.hand_out_the_rest()
    balancer.balance()
    return balancer.result()


class _Balancer:
    """Members and topics are numbered; `sizes[m]` is always the number of partitions in `held[m]`."""

    def __init__(
        self,
        members: Mapping[str, tuple[frozenset[UUID], Partitions]],
        partition_counts: Mapping[UUID, int],
    ) -> None:
        self.member_ids = list(members)
        self.promised = [promised for _, promised in members.values()]
        self.reads = [sorted(topics) for topics, _ in members.values()]
        self.readers: dict[UUID, list[int]] = {}
        for member, reads in enumerate(self.reads):
            for topic in reads:
                self.readers.setdefault(topic, []).append(member)
        self.unassigned = {topic: set(range(partition_counts[topic])) for topic in self.readers}
        self.holders: dict[UUID, dict[int, None]] = {topic: {} for topic in self.readers}
        self.held: list[dict[UUID, set[int]]] = [{} for _ in self.reads]
        self.sizes = [0] * len(self.reads)
        for member, (topics, promised) in enumerate(members.values()):
            self._keep(member, topics, promised)

    def _keep(self, member: int, topics: frozenset[UUID], promised: Partitions) -> None:
        for topic, partitions in promised.items():
            still = partitions & self.unassigned[topic] if topic in topics else frozenset[int]()
            if still:
                self.unassigned[topic] -= still
                self.held[member][topic] = set(still)
                self.holders[topic][member] = None
                self.sizes[member] += len(still)

    def hand_out_the_rest(self) -> None:
        """Each unassigned partition to its lightest reader; topics with the least choice of readers first."""
        queues: dict[tuple[int, ...], list[tuple[int, int]]] = {}
        pending = [topic for topic, left in self.unassigned.items() if left]
        for topic in sorted(pending, key=lambda topic: (len(self.readers[topic]), topic)):
            readers = tuple(self.readers[topic])
            if readers not in queues:
                queues[readers] = sorted((self.sizes[member], member) for member in readers)
            for partition in sorted(self.unassigned[topic]):
                member = self._pop_lightest(queues[readers])
                self._give(topic, partition, member)
                heapq.heappush(queues[readers], (self.sizes[member], member))

    def _pop_lightest(self, queue: list[tuple[int, int]]) -> int:
        """Sizes only grow while partitions are handed out, so a stale entry is too low: correct it and look
        again.
        """
        while True:
            size, member = heapq.heappop(queue)
            if size == self.sizes[member]:
                return member
            heapq.heappush(queue, (self.sizes[member], member))

    def _give(self, topic: UUID, partition: int, member: int) -> None:
        self.held[member].setdefault(topic, set()).add(partition)
        self.holders[topic][member] = None
        self.sizes[member] += 1

    def _take(self, topic: UUID, member: int) -> int:
        partitions = self.held[member][topic]
        partition = max(partitions)
        partitions.remove(partition)
        if not partitions:
            del self.held[member][topic]
            del self.holders[topic][member]
        self.sizes[member] -= 1
        return partition

    def balance(self) -> None:
        queue = [(size, member) for member, size in enumerate(self.sizes)]
        heapq.heapify(queue)
        retired: set[int] = set()
        retired_topics: set[UUID] = set()
        while queue:
            size, member = queue[0]
            if member in retired:
                heapq.heappop(queue)
            elif size != self.sizes[member]:
                heapq.heapreplace(queue, (self.sizes[member], member))
            else:
                lightened = self._relieve_for(member, retired, retired_topics)
                if lightened is not None:
                    heapq.heapreplace(queue, (self.sizes[member], member))
                    heapq.heappush(queue, (self.sizes[lightened], lightened))

    def _relieve_for(self, light: int, retired: set[int], retired_topics: set[UUID]) -> int | None:
        """Move one partition towards `light` from the nearest member that has two more; returns that
        member.

        If there is none, everything that the search saw is retired.
        """
        heavy_size = self.sizes[light] + 2
        steps: dict[int, tuple[int, UUID]] = {}
        seen_topics: set[UUID] = set()
        queue = [light]
        for receiver in queue:
            for topic in self.reads[receiver]:
                if topic in seen_topics or topic in retired_topics:
                    continue
                seen_topics.add(topic)
                for giver in self.holders[topic]:
                    if giver in steps or giver == light or giver in retired:
                        continue
                    steps[giver] = (receiver, topic)
                    if self.sizes[giver] >= heavy_size:
                        self._shift(giver, light, steps)
                        return giver
                    queue.append(giver)
        retired.update(queue)
        retired_topics |= seen_topics
        return None

    def _shift(self, giver: int, light: int, steps: dict[int, tuple[int, UUID]]) -> None:
        while giver != light:
            receiver, topic = steps[giver]
            self._give(topic, self._take(topic, giver), receiver)
            giver = receiver

    def result(self) -> dict[str, Partitions]:
        found: dict[str, Partitions] = {}
        for member_id, old, held in zip(self.member_ids, self.promised, self.held, strict=True):
            new = {topic: frozenset(partitions) for topic, partitions in held.items()}
            found[member_id] = old if old == new else new
        return found
