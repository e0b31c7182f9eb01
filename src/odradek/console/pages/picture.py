"""The picture: servers, partitions, replicas and consumers, drawn, and what changed told in sentences."""

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from odradek.admin.places import is_internal
from odradek.admin.topics import NewTopic, create_topics
from odradek.console.picture.asking import ask_scene
from odradek.console.picture.exercise import GROUP_SIZE, PARTITIONS, PRODUCER, TOPIC, group_of
from odradek.console.picture.layout import DEFAULT_WIDTH, Drawing, Spot, clamped, draw, mosaic, tiles
from odradek.console.picture.scene import Scene
from odradek.console.registry import Action, Page
from odradek.console.requests import Ask, NotFound, doc
from odradek.console.users import Role
from odradek.console.watch.seen import Event, Seen, TopicSeen
from odradek.wording import count_of

ROWS = 12  # partitions on a screen
TOPICS_SHOWN = 60
MOSAIC_MOST = 1992  # squares; whole screens of partitions
EVENTS_SHOWN = 8
REPLICAS = 3
SEEN_WITHIN_S = 5.0


@dataclass(frozen=True)
class PictureQuery:
    topic: str | None = doc("The topic to draw; without one, servers and topics.", None)
    first: int = doc(f"The first of {ROWS} partitions.", 0)
    width: int = doc("How wide the picture is.", DEFAULT_WIDTH)
    whole: bool = doc("Servers and topics, even if there is only one topic.", False)


@dataclass(frozen=True)
class Tile:
    """A server or a topic, with counts of its replicas."""

    spot: Spot
    id: str
    name: str
    about: str
    problem: str | None
    good: int
    plain: int
    bad: int
    is_away: bool = False


@dataclass(frozen=True)
class Square:
    spot: Spot
    partition: int
    state: str  # well, lacking, offline


@dataclass(frozen=True)
class PictureView:
    """Servers and topics, or one topic with its scene and drawing."""

    topic: str | None
    width: int
    events: list[Event]
    brokers: list[Tile] = field(default_factory=list)
    brokers_height: int = 0
    topics: list[Tile] = field(default_factory=list)
    topics_height: int = 0
    topic_count: int = 0
    scene: Scene | None = None
    drawing: Drawing | None = None
    squares: list[Square] = field(default_factory=list)
    squares_height: int = 0
    partition_count: int = 0
    first: int = 0
    running: list[str] = field(default_factory=list)  # consumers and the producer of the exercise
    exercise_topic: str = TOPIC
    producer: str = PRODUCER
    rows: int = ROWS

    @property
    def consumers(self) -> list[str]:
        return [one for one in self.running if one != PRODUCER]

    @property
    def last(self) -> int:
        return min(self.first + ROWS, self.partition_count) - 1


def view(ask: Ask) -> PictureView:
    seen, query = ask.cluster.seen, ask.query
    if seen.topology is None:  # soon it is, and the page refreshes
        return cluster_picture(ask, seen, [])
    topics = seen.topology.topics
    own = [one for one in topics.values() if not one.is_internal and not is_internal(one.name)]
    topic = query.topic
    if topic is None and len(own) == 1 and not query.whole:
        topic = own[0].name
    return topic_picture(ask, seen, topic) if topic is not None else cluster_picture(ask, seen, own)


# Servers and topics


def cluster_picture(ask: Ask, seen: Seen, own: list[TopicSeen]) -> PictureView:
    width = clamped(ask.query.width)
    shown = sorted(own, key=lambda one: (-one.offline, -one.not_in_sync, one.name))[:TOPICS_SHOWN]
    brokers, brokers_height = broker_tiles(seen, width)
    topics, topics_height = topic_tiles(shown, width)
    return PictureView(
        topic=None,
        width=width,
        events=list(seen.events)[:EVENTS_SHOWN],
        brokers=brokers,
        brokers_height=brokers_height,
        topics=topics,
        topics_height=topics_height,
        topic_count=len(own),
    )


def broker_tiles(seen: Seen, width: int) -> tuple[list[Tile], int]:
    if seen.topology is None:
        return [], 0
    leads, follows, lacks = replicas_of(seen.topology.topics.values())
    alive = {one.broker: not one.is_fenced for one in seen.topology.status.brokers}
    numbers = sorted({*alive, *leads, *follows, *lacks})
    placed = tiles(len(numbers), width)
    found = []
    for number, spot in zip(numbers, placed.spots, strict=True):
        is_away = not alive.get(number, False)
        problem = "away" if is_away else f"{lacks[number]:,} not in sync" if lacks[number] else None
        about = "controller" if number == seen.topology.controller else ""
        counts = (leads[number], follows[number], lacks[number])
        found.append(Tile(spot, f"broker-{number}", f"broker {number}", about, problem, *counts, is_away))
    return found, placed.height


def replicas_of(topics: Iterable[TopicSeen]) -> tuple[Counter[int], Counter[int], Counter[int]]:
    """Replicas that lead, that follow, and that are not in sync, by server."""
    leads: Counter[int] = Counter()
    follows: Counter[int] = Counter()
    lacks: Counter[int] = Counter()
    for topic in topics:
        leads.update(one for one in topic.leaders if one is not None)
        for leader, replicas, isr in zip(topic.leaders, topic.replicas, topic.isr, strict=True):
            for broker in replicas:
                if broker not in isr:
                    lacks[broker] += 1
                elif broker != leader:
                    follows[broker] += 1
    return leads, follows, lacks


def topic_tiles(topics: list[TopicSeen], width: int) -> tuple[list[Tile], int]:
    placed = tiles(len(topics), width)
    found = []
    for number, (topic, spot) in enumerate(zip(topics, placed.spots, strict=True)):
        count = len(topic.leaders)
        problem = None
        if topic.offline:
            problem = f"{topic.offline:,} without a leader"
        elif topic.not_in_sync:
            problem = f"{topic.not_in_sync:,} not in sync"
        about = f"{count_of(count, 'partition')} × {topic.replication_factor}"
        counts = (count - topic.not_in_sync, 0, topic.not_in_sync)
        found.append(Tile(spot, f"topic-{number}", topic.name, about, problem, *counts))
    return found, placed.height


# One topic


def topic_picture(ask: Ask, seen: Seen, topic: str) -> PictureView:
    found = seen.topology.topics.get(topic) if seen.topology is not None else None
    if found is None:
        raise NotFound(f"{topic}: no such topic")
    count, width = len(found.leaders), clamped(ask.query.width)
    first = min(max(ask.query.first, 0), max(count - 1, 0)) // ROWS * ROWS
    glance = ask.cluster.glance
    scene, events = ask.cluster.album.look(
        (topic, first), lambda before: ask_scene(glance, ask.cluster.seen, topic, first, ROWS, before)
    )
    squares, squares_height = squares_of(found, first, width) if count > ROWS else ([], 0)
    return PictureView(
        topic=topic,
        width=width,
        events=events[:EVENTS_SHOWN],
        scene=scene,
        drawing=draw(scene, width),
        squares=squares,
        squares_height=squares_height,
        partition_count=count,
        first=first,
        running=ask.console.exercises.running(ask.cluster.name, topic),
    )


def squares_of(topic: TopicSeen, first: int, width: int) -> tuple[list[Square], int]:
    """Returns a square for each partition, or for those around the wanted one if a screen cannot hold all."""
    begin = first // MOSAIC_MOST * MOSAIC_MOST
    placed = mosaic(min(len(topic.leaders) - begin, MOSAIC_MOST), width)
    return [
        Square(spot, number, state_of(topic, number)) for number, spot in enumerate(placed.spots, begin)
    ], placed.height


def state_of(topic: TopicSeen, number: int) -> str:
    if topic.leaders[number] is None:
        return "offline"
    return "lacking" if len(topic.isr[number]) < len(topic.replicas[number]) else "well"


# The exercise


@dataclass(frozen=True)
class ExerciseBody:
    topic: str = doc("The topic that is read.")
    producer: bool = doc(f"Start or stop the producer instead, which writes to {TOPIC} alone.", False)
    consumer: str | None = doc("Stop only this one.", None)


def create_topic(ask: Ask) -> dict[str, str]:
    topology = ask.cluster.seen.topology
    alive = sum(not one.is_fenced for one in topology.status.brokers) if topology is not None else 1
    replicas = max(1, min(REPLICAS, alive))
    for refusal in create_topics(ask.access(), [NewTopic(TOPIC, PARTITIONS, replicas, {})]).values():
        if refusal is not None:
            raise refusal
    wait_until_seen(ask, TOPIC)
    return {"said": f"Created topic {TOPIC} with {PARTITIONS} partitions of {count_of(replicas, 'replica')}."}


def wait_until_seen(ask: Ask, topic: str) -> None:
    """The next page draws what the poller has seen: let it see the topic first, if it can soon."""
    ask.cluster.poller.nudge("topology")
    limit_s = time.monotonic() + SEEN_WITHIN_S
    while time.monotonic() < limit_s:
        topology = ask.cluster.seen.topology
        if topology is not None and topic in topology.topics:
            return
        time.sleep(0.05)


def start(ask: Ask) -> dict[str, str]:
    topic = ask.body.topic
    topology = ask.cluster.seen.topology
    if topology is None or topic not in topology.topics or is_internal(topic):
        raise NotFound(f"{topic}: no such topic")
    exercises = ask.console.exercises
    if ask.body.producer:
        started = exercises.start_producer(ask.cluster.name, topic, ask.access())
        return {"said": f"Sending records to {topic}." if started else "It runs already."}
    started = exercises.start(ask.cluster.name, topic, ask.access())
    if not started:
        return {"said": f"All {GROUP_SIZE} run already."}
    return {"said": f"Started {count_of(len(started), 'consumer')} of group {group_of(topic)}."}


def stop(ask: Ask) -> dict[str, str]:
    name = PRODUCER if ask.body.producer else ask.body.consumer
    stopped = ask.console.exercises.stop(ask.cluster.name, ask.body.topic, name)
    return {"said": f"Stopped {', '.join(stopped)}." if stopped else "None of them runs."}


PAGES = [
    Page(
        path="picture",
        title="Picture",
        view=view,
        template="picture.html",
        summary="Draw servers, partitions, replicas and consumers, and say what changed.",
        query=PictureQuery,
        nav="Picture",
        live_template="picture_live.html",
        parts=("topology", "offsets", "groups"),
        script="picture.js",
    )
]
ACTIONS = [
    Action(
        *("POST", "picture/topic", "Create the topic of the exercise.", create_topic, Role.EDITOR),
        target=lambda ask: TOPIC,
        refreshes=("topology", "offsets"),
    ),
    Action(
        *("POST", "picture/group", "Start a group of three consumers.", start, Role.EDITOR),
        body=ExerciseBody,
        target=lambda ask: ask.body.topic,
        refreshes=("groups",),
    ),
    Action(
        *("DELETE", "picture/group", "Stop consumers of the group of three.", stop, Role.EDITOR),
        body=ExerciseBody,
        target=lambda ask: ask.body.topic,
        refreshes=("groups",),
    ),
]
