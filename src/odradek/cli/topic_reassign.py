"""`odradek topic reassign`: move partitions to other brokers, or give them more or fewer replicas.

What moves is said by a plan: one that is made here (`reassignment_plan`), or one in a file in the format of Kafka's
`kafka-reassign-partitions.sh`, which is also what `--dry-run --json` prints.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from odradek.admin.access import Access
from odradek.admin.places import Place
from odradek.cli.arguments import JsonOutput
from odradek.cli.completion import complete_topics
from odradek.cli.danger import Yes, confirm
from odradek.cli.failures import CommandError
from odradek.cli.framework import Argument, BadParameter, Exit, Option
from odradek.cli.output import note, print_columns, print_json, print_line
from odradek.wording import counted, joined, readable_size

if TYPE_CHECKING:  # they bring our own client, which is slow to import
    from odradek.admin.layout import ClusterState
    from odradek.admin.reassignment_plan import Move
    from odradek.admin.reassignment_requests import Reassignment

MOST_REPLICAS = 32_767


@dataclass(frozen=True)
class Choice:
    """The partitions that the command is about."""

    topics: Sequence[str]
    is_all: bool
    plan: Path | None

    def check(self) -> None:
        given = [bool(self.topics), self.is_all, self.plan is not None]
        if sum(given) != 1:
            raise BadParameter("say which partitions: name topics, or give --all or --plan FILE")

    def places(self, known: Iterable[Place]) -> list[Place]:
        """Choose from the known partitions. Raises CommandError for a topic that does not exist."""
        known = sorted(known)
        if self.plan is not None:
            from odradek.admin.reassignment_files import read_plan

            return sorted(read_plan(self.plan))
        if missing := set(self.topics) - {place.topic for place in known}:
            raise CommandError(f"topic {min(missing)!r} does not exist")
        return [place for place in known if self.is_all or place.topic in self.topics]


Brokers = Annotated[
    str | None,
    Option("--brokers", metavar="ID,ID,…", help="Spread their replicas evenly over these brokers."),
]
Factor = Annotated[
    int | None,
    Option("--replication-factor", min=1, max=MOST_REPLICAS, help="Replicas of each partition."),
]
PlanFile = Annotated[
    Path | None,
    Option("--plan", metavar="FILE", is_file=True, help="A plan in Kafka's JSON, instead of our own."),
]
Throttle = Annotated[
    int | None,
    Option("--throttle", metavar="BYTES", min=1, help="Bytes per second that each broker copies at most."),
]
Status = Annotated[
    bool, Option("--status", help="Show the moves that are under way. Exit status 1 if there are any.")
]


def reassign(
    cluster: Access,
    names: Annotated[list[str] | None, Argument(metavar="[NAME]...", complete=complete_topics)] = None,
    all_: Annotated[bool, Option("--all", help="All topics, internal ones too.")] = False,
    brokers: Brokers = None,
    replication_factor: Factor = None,
    plan: PlanFile = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Print the plan, and change nothing.")] = False,
    throttle: Throttle = None,
    no_wait: Annotated[bool, Option("--no-wait", help="Begin the moves, and exit.")] = False,
    yes: Yes = False,
    status: Status = False,
    cancel: Annotated[bool, Option("--cancel", help="Cancel moves that are under way.")] = False,
    as_json: JsonOutput = False,
    topic: Annotated[list[str] | None, Option("--topic", hidden=True)] = None,
) -> None:
    """Move partitions to other brokers, or change how many replicas they have.

    The plan moves as little as possible, keeps replicas on different racks, and lets every broker lead about as many
    partitions. New replicas copy the partition first; the old ones leave when the new ones are in sync, so clients
    notice nothing but a change of leaders. If the partitions could lose fewer nodes afterwards, the command says so and
    asks first, unless --yes is given.

    \b
      odradek topic reassign --all --replication-factor 3 --dry-run    what would move
      odradek topic reassign orders --brokers 2,3,4 --throttle 50000000
      odradek topic reassign --status
      odradek topic reassign --cancel --all

    An interrupted command leaves the moves under way. --status also removes a throttle that was left behind, once
    nothing is moving.
    """
    choice = Choice([*(names or ()), *(topic or ())], all_, plan)
    if status:
        show_status(cluster, choice, as_json)
        return
    choice.check()
    if cancel:
        cancel_moves(cluster, choice, as_json)
        return
    if plan is None and brokers is None and replication_factor is None:
        raise BadParameter("say what to do: --brokers, --replication-factor or --plan")
    if plan is not None and (brokers or replication_factor):
        raise BadParameter("--plan says where replicas go: leave out --brokers and --replication-factor")
    from odradek.admin.layout import look_at

    state = look_at(cluster, with_logs=True)
    moves = plan_moves(state, choice, parse_brokers(brokers), replication_factor)
    if dry_run:
        show_plan(state, moves, as_json)
    tell_result(cluster, state, moves, yes or dry_run)
    if not dry_run:
        execute(cluster, state, moves, throttle, no_wait, as_json)


def tell_result(cluster: Access, state: "ClusterState", moves: "Sequence[Move]", yes: bool) -> None:
    """Say what the moved partitions may lose afterwards, and ask, if that is less than before for any of them."""
    from odradek.admin.layout import copies_after, fewest_in_sync
    from odradek.admin.tolerance import tolerance

    topics = sorted({move.place.topic for move in moves if len(move.after) < len(move.before)})
    if not topics:
        return
    fewest = fewest_in_sync(cluster, state, topics)
    before = [one for one in copies_after(state, [], fewest) if one.topic in topics]
    after = [one for one in copies_after(state, moves, fewest) if one.topic in topics]
    worse = [
        (old, new)
        for old, new in zip(before, after, strict=True)
        if tolerance([new], 0).is_worse_than(tolerance([old], 0))
    ]
    if not worse:
        return
    note(f"Afterwards, these partitions {tolerance([new for _, new in worse], 0)}.")
    note(f"Now, they {tolerance([old for old, _ in worse], 0)}.")
    confirm(f"Move {counted(len(moves), 'partition')}?", yes)


def parse_brokers(text: str | None) -> list[int] | None:
    if text is None:
        return None
    items = [item.strip() for item in text.split(",")]
    if not all(item.isascii() and item.isdecimal() for item in items):
        raise BadParameter(f"{text!r} is not a list of broker ids, such as 1,2,3", param_hint="--brokers")
    return sorted(set(map(int, items)))


# The plan


def plan_moves(
    state: "ClusterState", choice: Choice, brokers: Sequence[int] | None, replication_factor: int | None
) -> "list[Move]":
    if choice.plan is not None:
        from odradek.admin.reassignment_files import moves_of, read_plan

        return moves_of(state, read_plan(choice.plan))
    from odradek.admin.reassignment_plan import ImpossiblePlan, Wish, make_plan

    layout = state.layout()
    wish = Wish(
        choice.places(state.partitions),
        brokers if brokers is not None else layout.racks,
        replication_factor,
        is_even=brokers is not None,
    )
    try:
        return make_plan(layout, wish)
    except ImpossiblePlan as error:
        raise CommandError(str(error)) from None


def show_plan(state: "ClusterState", moves: "Sequence[Move]", as_json: bool) -> None:
    if as_json:
        from odradek.admin.reassignment_files import plan_as_json

        print_json(plan_as_json(moves))
        return
    rows = [
        (*move.place, joined(move.before), joined(move.after), readable_size(bytes_of(state, move)))
        for move in moves
    ]
    print_columns(("TOPIC", "PARTITION", "REPLICAS", "NEW-REPLICAS", "COPY"), rows)
    print_line(summary(state, moves))


def bytes_of(state: "ClusterState", move: "Move") -> int:
    return len(move.added) * state.size(move.place)


def summary(state: "ClusterState", moves: "Sequence[Move]") -> str:
    if not moves:
        return "Nothing to move."
    copied = sum(bytes_of(state, move) for move in moves)
    added = sum(len(move.added) for move in moves)
    return f"{counted(len(moves), 'partition')}, {counted(added, 'new replica')}, {readable_size(copied)} to copy."


# Execution


def execute(
    cluster: Access,
    state: "ClusterState",
    moves: "Sequence[Move]",
    throttle: int | None,
    no_wait: bool,
    as_json: bool,
) -> None:
    from odradek.admin.reassignment_run import begin, carry_out
    from odradek.cli.watching import TerminalWatcher

    if no_wait and moves:
        begin(cluster, moves, throttle)
    else:
        carry_out(cluster, moves, throttle, TerminalWatcher())
    is_complete = not moves or not no_wait
    if as_json:
        from odradek.admin.reassignment_files import plan_as_json

        print_json({"is_complete": is_complete, **plan_as_json(moves)})
    elif not moves:
        print_line("Nothing to move.")
    elif no_wait:
        print_line(f"Began to move {summary(state, moves)}")
    else:
        print_line(f"Moved {summary(state, moves)}")


def cancel_moves(cluster: Access, choice: Choice, as_json: bool) -> None:
    from odradek.admin.reassignment_requests import alter, list_all
    from odradek.admin.reassignment_run import shortened

    moving = list_all(cluster)
    places = [place for place in moving if place in set(_chosen(choice, moving))]
    refused = alter(cluster, dict.fromkeys(places))
    if as_json:
        print_json({"cancelled": [place._asdict() for place in places if place not in refused]})
    else:
        print_line(f"Cancelled {counted(len(places) - len(refused), 'move')}.")
    if refused:
        raise CommandError(shortened(refused))
    remove_throttles(cluster, quiet=as_json)


def _chosen(choice: Choice, moving: Mapping[Place, "Reassignment"]) -> list[Place]:
    if choice.plan is not None:
        from odradek.admin.reassignment_files import read_plan

        return list(read_plan(choice.plan))
    return [place for place in moving if choice.is_all or place.topic in choice.topics]


def show_status(cluster: Access, choice: Choice, as_json: bool) -> None:
    from odradek.admin.layout import look_at
    from odradek.admin.reassignment_requests import list_all
    from odradek.admin.reassignment_run import bytes_left

    everything = list_all(cluster)
    is_everything = not choice.topics and choice.plan is None
    moving = (
        everything
        if is_everything
        else {p: everything[p] for p in _chosen(choice, everything) if p in everything}
    )
    state = look_at(cluster, with_logs=True)
    left = {place: bytes_left(state, {place: one}) for place, one in moving.items()}
    if as_json:
        print_json([_as_json(one, left[place]) for place, one in moving.items()])
    elif moving:
        rows = [
            (*place, joined(one.target), joined(one.adding), joined(one.removing), readable_size(left[place]))
            for place, one in moving.items()
        ]
        print_columns(("TOPIC", "PARTITION", "NEW-REPLICAS", "ADDING", "REMOVING", "LEFT"), rows)
    else:
        print_line("No partition is moving.")
    if not everything:
        remove_throttles(cluster, quiet=as_json)
    if moving:
        raise Exit(1)


def _as_json(one: "Reassignment", left: int) -> dict[str, Any]:
    return {
        "topic": one.place.topic,
        "partition": one.place.partition,
        "replicas": list(one.target),
        "adding": list(one.adding),
        "removing": list(one.removing),
        "bytes_left": left,
    }


def remove_throttles(cluster: Access, *, quiet: bool) -> None:
    """Remove the throttles of moves, if nothing is moving any more."""
    from odradek.admin.reassignment_run import remove_throttles as remove

    if remove(cluster) and not quiet:
        print_line("Removed the throttle of an earlier move.")
