"""Plans of moves as Kafka's JSON, the format of `kafka-reassign-partitions.sh`."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from odradek.admin.failures import AdminError
from odradek.admin.layout import ClusterState
from odradek.admin.places import Place
from odradek.admin.reassignment_plan import Move

PLAN_VERSION = 1
ANY_DIRECTORY = "any"


def moves_of(state: ClusterState, targets: Mapping[Place, tuple[int, ...]]) -> list[Move]:
    if missing := targets.keys() - state.partitions.keys():
        place = min(missing)
        raise AdminError(f"there is no partition {place.partition} of topic {place.topic!r}")
    moves = [Move(place, state.partitions[place].replicas, after) for place, after in sorted(targets.items())]
    return [move for move in moves if move.before != move.after]


def read_plan(file: Path) -> dict[Place, tuple[int, ...]]:
    """Kafka's format; directories other than "any" cannot be asked for."""
    try:
        content = json.loads(file.read_text("utf-8"))
        if content.get("version", PLAN_VERSION) != PLAN_VERSION:
            raise ValueError(f"version {content['version']} is not known")
        found: dict[Place, tuple[int, ...]] = {}
        for one in content["partitions"]:
            place = Place(str(one["topic"]), int(one["partition"]))
            if place in found:
                raise ValueError(f"{place} is in it more than once")
            if any(directory != ANY_DIRECTORY for directory in one.get("log_dirs", ())):
                raise ValueError("replicas cannot be moved between log directories")
            found[place] = tuple(map(int, one["replicas"]))
        return found
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise AdminError(f"{file} is not a plan: {error}") from None


def plan_as_json(moves: Iterable[Move]) -> dict[str, Any]:
    return {
        "version": PLAN_VERSION,
        "partitions": [
            {
                "topic": move.place.topic,
                "partition": move.place.partition,
                "replicas": list(move.after),
                "log_dirs": [ANY_DIRECTORY] * len(move.after),
            }
            for move in moves
        ],
    }
