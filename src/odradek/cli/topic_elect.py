"""`odradek topic elect-leaders`: give partitions back to their preferred leaders, or any leader to those without."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

from odradek.admin.access import Access
from odradek.admin.places import Place
from odradek.cli.arguments import MOST_PARTITION, JsonOutput
from odradek.cli.completion import complete_topics
from odradek.cli.danger import Yes, confirm
from odradek.cli.failures import CommandError
from odradek.cli.framework import Argument, BadParameter, Option
from odradek.cli.output import print_json, print_line
from odradek.wording import counted

if TYPE_CHECKING:
    from odradek.errors import ErrorCode


def elect_leaders(
    cluster: Access,
    names: Annotated[list[str] | None, Argument(metavar="[NAME]...", complete=complete_topics)] = None,
    partition: Annotated[
        list[int] | None,
        Option("--partition", "-p", min=0, max=MOST_PARTITION, help="Only this partition; repeatable."),
    ] = None,
    unclean: Annotated[
        bool,
        Option(
            "--unclean",
            help="Let a replica lead that may lack records. It asks first, unless --yes is given.",
        ),
    ] = False,
    yes: Yes = False,
    as_json: JsonOutput = False,
    topic: Annotated[list[str] | None, Option("--topic", hidden=True)] = None,
) -> None:
    """Let the preferred replica, the first one, lead each partition: of these topics, or of all.

    A broker that restarts leads nothing at first; brokers give it back its partitions after a while
    (auto.leader.rebalance.enable), and this command does so at once.

    --unclean is for partitions without a leader: a replica that was not in sync becomes one, and the records that only
    the others have are lost. Partitions that have a leader keep it.
    """
    chosen = [*(names or ()), *(topic or ())]
    if partition and len(chosen) != 1:
        raise BadParameter("--partition is about one topic: name it")
    from odradek.admin.reassignment_requests import Election, elect

    places = chosen_places(cluster, chosen, partition or ()) if chosen else None
    if unclean:
        what = ", ".join(chosen) if chosen else "all topics"
        confirm(f"Elect leaders of {what} that may lack acknowledged records, which are then lost?", yes)
    outcomes = elect(cluster, Election.UNCLEAN if unclean else Election.PREFERRED, places)
    tell(outcomes, as_json)


def chosen_places(cluster: Access, topics: Sequence[str], partitions: Sequence[int]) -> list[Place]:
    from odradek.admin.metadata import metadata

    known = metadata(cluster).topics
    for name in topics:
        if name not in known:
            raise CommandError(f"topic {name!r} does not exist")
    if partitions:
        return [Place(topics[0], number) for number in dict.fromkeys(partitions)]
    return [Place(name, number) for name in dict.fromkeys(topics) for number in known[name].partitions]


def tell(outcomes: "Mapping[Place, ErrorCode]", as_json: bool) -> None:
    """The command fails if an election did."""
    from odradek.admin.failures import words
    from odradek.admin.reassignment_run import shortened
    from odradek.errors import ErrorCode

    elected = [place for place, code in outcomes.items() if code is ErrorCode.NONE]
    failed = {
        place: words(code)
        for place, code in outcomes.items()
        if code not in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)
    }
    if as_json:
        print_json(
            [{**place._asdict(), "elected": True} for place in elected]
            + [{**place._asdict(), "elected": False, "error": reason} for place, reason in failed.items()]
        )
    else:
        print_line(f"Elected {counted(len(elected), 'leader')}." if elected else "No election was needed.")
    if failed:
        raise CommandError(shortened(failed))
