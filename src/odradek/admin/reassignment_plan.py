"""Plans where the replicas of partitions go. Pure: from the cluster's layout to the replicas of each partition.

A plan moves as little as possible, because every new replica is copied over the network:

1. Replicas on brokers that may stay, stay. A partition that must lose replicas loses those that share a rack with
   another one, and then those on the fullest brokers.
2. A partition that lacks replicas gets them on the racks where it has the fewest, and there on the emptiest brokers.
3. Only a plan that is to spread the load (`is_even`) moves further replicas, from the fullest brokers to the emptiest,
   until all have the same number, give or take one. No such move puts more of a partition's replicas on one rack.
4. The first replica is the preferred leader. Replicas change their order, which costs nothing, until every broker is
   preferred about equally often.

Load is counted in replicas, and includes the partitions that the plan does not touch. Among equal choices the smaller
id wins, so the same layout gives the same plan.
"""

from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from odradek.admin.places import Place
from odradek.wording import counted

Replicas = tuple[int, ...]


class ImpossiblePlan(Exception):
    """Why there is no such plan, in a sentence."""


@dataclass(frozen=True)
class Layout:
    """The replicas of each partition, their sizes, and the brokers that may have them."""

    racks: Mapping[int, str | None]  # of every broker that can get replicas
    replicas: Mapping[Place, Replicas]
    sizes: Mapping[Place, int]  # bytes; those not named count as 0


@dataclass(frozen=True)
class Wish:
    """The goal of the plan."""

    places: Collection[Place]  # the partitions to look at
    brokers: Collection[int]  # where their replicas may be
    replication_factor: int | None = None  # None: as many as a partition has
    is_even: bool = False  # spread the load
    may_shrink: bool = True  # partitions with more replicas than that lose some


@dataclass(frozen=True)
class Move:
    """One partition that changes."""

    place: Place
    before: Replicas
    after: Replicas

    @property
    def added(self) -> Replicas:
        return tuple(one for one in self.after if one not in self.before)

    @property
    def removed(self) -> Replicas:
        return tuple(one for one in self.before if one not in self.after)


def make_plan(layout: Layout, wish: Wish) -> list[Move]:
    """The partitions that change, in order of their names. Raises ImpossiblePlan."""
    planner = _Planner(layout, wish)
    after = planner.replicas()
    moves = [Move(place, tuple(layout.replicas[place]), after[place]) for place in sorted(after)]
    return [move for move in moves if move.before != move.after]


class _Planner:
    def __init__(self, layout: Layout, wish: Wish) -> None:
        unknown = sorted(set(wish.brokers) - layout.racks.keys())
        if unknown:
            raise ImpossiblePlan(f"broker {unknown[0]} cannot get replicas: it is not there, or fenced")
        self._layout = layout
        self._wish = wish
        self._places = sorted(wish.places)
        self._brokers = sorted(wish.brokers)
        touched = set(self._places)
        self._load = Counter(dict.fromkeys(self._brokers, 0))
        self._led = Counter(dict.fromkeys(self._brokers, 0))
        for place, replicas in layout.replicas.items():
            if place not in touched:
                self._load.update(one for one in replicas if one in self._load)
                self._led.update(one for one in replicas[:1] if one in self._led)
        self._has_racks = any(rack is not None for rack in layout.racks.values())
        self._after: dict[Place, list[int]] = {}

    def replicas(self) -> dict[Place, Replicas]:
        for place in self._places:
            self._after[place] = self._kept(place)
            self._load.update(self._after[place])
        for place in self._places:
            self._complete(place)
        if self._wish.is_even:
            self._even_out()
        self._balance_leaders()
        return {place: tuple(replicas) for place, replicas in self._after.items()}

    def _count(self, place: Place) -> int:
        has = len(self._layout.replicas[place])
        count = self._wish.replication_factor or has
        if not self._wish.may_shrink:
            count = max(count, has)
        if count > len(self._brokers):
            brokers = counted(len(self._brokers), "broker")
            raise ImpossiblePlan(
                f"{place.topic}-{place.partition} cannot have {counted(count, 'replica')} on {brokers}"
            )
        return count

    # Which replicas

    def _kept(self, place: Place) -> list[int]:
        kept = [one for one in self._layout.replicas[place] if one in self._load]
        while len(kept) > self._count(place):
            racks = self._racks_of(kept)
            kept.remove(
                max(reversed(kept), key=lambda one: (racks[self._layout.racks[one]], self._load[one]))
            )
        return kept

    def _complete(self, place: Place) -> None:
        replicas = self._after[place]
        while len(replicas) < self._count(place):
            racks = self._racks_of(replicas)
            chosen = min(
                (one for one in self._brokers if one not in replicas),
                key=lambda one: (racks[self._layout.racks[one]], self._load[one], one),
            )
            replicas.append(chosen)
            self._load[chosen] += 1

    def _racks_of(self, replicas: Iterable[int]) -> Counter[str | None]:
        """Count the replicas on each rack. Without racks, every broker counts as one of its own."""
        return Counter(self._layout.racks[one] for one in replicas) if self._has_racks else Counter()

    def _even_out(self) -> None:
        by_size = sorted(self._places, key=lambda place: (self._layout.sizes.get(place, 0), place))
        fewest, remainder = divmod(sum(self._load.values()), len(self._brokers))
        most = fewest + (remainder > 0)
        for place in by_size:  # nearly all of it, in one pass
            for source in sorted(self._after[place], key=lambda one: -self._load[one]):
                target = min(self._brokers, key=lambda one: (one in self._after[place], self._load[one]))
                is_wanted = self._load[source] > most or self._load[target] < fewest
                is_less = self._load[source] - self._load[target] >= 2
                if is_wanted and is_less and self._may_move(place, source, target):
                    self._move(place, source, target)
        while move := self._next_move(by_size):
            self._move(*move)

    def _move(self, place: Place, source: int, target: int) -> None:
        replicas = self._after[place]
        replicas[replicas.index(source)] = target
        self._load[source] -= 1
        self._load[target] += 1

    def _next_move(self, places: Sequence[Place]) -> tuple[Place, int, int] | None:
        """A replica from a full broker for an empty one: the smallest that can move without crowding a rack."""
        full_first = sorted(self._brokers, key=lambda one: (-self._load[one], one))
        for source in full_first:
            for target in reversed(full_first):
                if self._load[source] - self._load[target] < 2:
                    break
                for place in places:
                    if self._may_move(place, source, target):
                        return place, source, target
        return None

    def _may_move(self, place: Place, source: int, target: int) -> bool:
        replicas = self._after[place]
        if source not in replicas or target in replicas:
            return False
        racks, rack_of = self._racks_of(replicas), self._layout.racks
        return rack_of[source] == rack_of[target] or racks[rack_of[target]] < max(racks[rack_of[source]], 1)

    # Which of them leads

    def _balance_leaders(self) -> None:
        for replicas in self._after.values():
            self._led[replicas[0]] += 1
        for place in self._places:  # nearly all of it, in one pass
            first, *others = self._after[place]
            fewest = min(others, key=lambda one: self._led[one], default=first)
            if self._led[first] - self._led[fewest] >= 2:
                self._prefer(place, fewest)
        while path := self._path_to_fewer():
            for place, leader in path:
                self._prefer(place, leader)

    def _prefer(self, place: Place, leader: int) -> None:
        replicas = self._after[place]
        self._led[replicas[0]] -= 1
        self._led[leader] += 1
        replicas.remove(leader)
        replicas.insert(0, leader)

    def _path_to_fewer(self) -> list[tuple[Place, int]]:
        """Changes of leaders that take one from a broker with many for one with at least two fewer; the fewest such
        changes, or none where there are none."""
        offers: dict[int, dict[int, Place]] = {}  # from the broker that is preferred to the others
        for place in self._places:
            first, *others = self._after[place]
            for one in others:
                offers.setdefault(first, {}).setdefault(one, place)
        for start in sorted(self._brokers, key=lambda one: (-self._led[one], one)):
            if path := self._search(start, offers):
                return path
        return []

    def _search(self, start: int, offers: Mapping[int, Mapping[int, Place]]) -> list[tuple[Place, int]]:
        came_by: dict[int, tuple[int, Place] | None] = {start: None}
        queue = deque([start])
        while queue:
            broker = queue.popleft()
            for other, place in sorted(offers.get(broker, {}).items()):
                if other in came_by:
                    continue
                came_by[other] = broker, place
                queue.append(other)
                if self._led[start] - self._led[other] >= 2:
                    return _steps(other, came_by)
        return []


def _steps(end: int, came_by: Mapping[int, tuple[int, Place] | None]) -> list[tuple[Place, int]]:
    steps = []
    while (step := came_by[end]) is not None:
        before, place = step
        steps.append((place, end))
        end = before
    return steps[::-1]
