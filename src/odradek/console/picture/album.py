"""The newest scene of each topic that somebody looks at, and what has changed in it. However many look, brokers are
asked once in a while, and a scene that takes long to ask for is asked for less often."""

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from odradek.console.picture.scene import Scene
from odradek.console.picture.sentences import changes
from odradek.console.watch.seen import Event

MOST_SCENES = 20
EVENTS_KEPT = 30
FRESH_S = 0.8
SHARE = 10  # asking takes at most this part of the time
FORGOTTEN_S = 600.0  # then it begins anew


@dataclass
class Leaf:
    """`events` are the newest first."""

    scene: Scene | None = None
    seen_s: float = 0.0
    spent_s: float = 0.0
    events: deque[Event] = field(default_factory=lambda: deque(maxlen=EVENTS_KEPT))
    lock: threading.Lock = field(default_factory=threading.Lock)


class Album:
    def __init__(self) -> None:
        self._leaves: OrderedDict[object, Leaf] = OrderedDict()
        self._lock = threading.Lock()

    def look(self, key: object, ask: Callable[[Scene | None], Scene]) -> tuple[Scene, list[Event]]:
        with self._lock:
            leaf = self._leaves.setdefault(key, Leaf())
            self._leaves.move_to_end(key)
            while len(self._leaves) > MOST_SCENES:
                self._leaves.popitem(last=False)
        with leaf.lock:
            now_s = time.monotonic()
            if leaf.scene is None or now_s - leaf.seen_s > max(FRESH_S, SHARE * leaf.spent_s):
                scene = ask(leaf.scene)
                if leaf.scene is not None and now_s - leaf.seen_s < FORGOTTEN_S:
                    leaf.events.extendleft(changes(leaf.scene, scene, time.time_ns() // 1_000_000))
                leaf.scene, leaf.seen_s = scene, time.monotonic()
                leaf.spent_s = leaf.seen_s - now_s
            return leaf.scene, list(leaf.events)
