"""The ends of logs, and so how fast they grow: one request to each leader, with the leaders that were seen last."""

from array import array

from odradek.admin.access import Access, Address
from odradek.admin.failures import AdminError
from odradek.admin.offsets import LATEST, READ_UNCOMMITTED, list_offsets_on
from odradek.admin.places import Place
from odradek.console.watch.seen import Offsets, TopicSeen

UNKNOWN = -1


def ask_offsets(
    access: Access,
    topics: dict[str, TopicSeen],
    brokers: dict[int, Address],
    before: Offsets | None,
    now_s: float,
) -> Offsets:
    ends = {name: array("q", [UNKNOWN]) * len(topic.leaders) for name, topic in topics.items()}
    led: dict[int, list[Place]] = {}
    for name, topic in topics.items():
        for number, leader in enumerate(topic.leaders):
            if leader is not None:
                led.setdefault(leader, []).append(Place(name, number))
    for leader, places in led.items():
        if leader not in brokers:
            continue
        try:
            found = list_offsets_on(access, brokers[leader], dict.fromkeys(places, LATEST), READ_UNCOMMITTED)
        except AdminError:
            continue  # it has just left; the next look knows better
        for place, outcome in found.items():
            if isinstance(outcome, int):
                ends[place.topic][place.partition] = outcome
    return Offsets(now_s, ends, rates(before, ends, now_s))


def rates(before: Offsets | None, ends: dict[str, "array[int]"], now_s: float) -> dict[str, float]:
    """Records a second of each topic since the last look. A partition that was not known then does not count."""
    if before is None or now_s <= before.seen_s:
        return {}
    found = {}
    for name, now in ends.items():
        then = before.ends.get(name)
        if then is None or then == now:
            continue
        grown = sum(max(b - a, 0) for a, b in zip(then, now, strict=False) if a >= 0 and b >= 0)
        if grown:
            found[name] = grown / (now_s - before.seen_s)
    return found
