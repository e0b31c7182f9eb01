"""`odradek quorum`: the voters and observers of a cluster's metadata quorum, their progress, and changes of the voters.

It uses Kafka's protocol, so it works with any Kafka. The address may be a broker's or a controller's. A broker forwards
the request to the leader; a controller that does not lead refuses, and says where the leader is.
"""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from odradek.admin.access import Access
from odradek.cli.access import on_cluster
from odradek.cli.arguments import JsonOutput
from odradek.cli.framework import Argument, Group, Option
from odradek.cli.output import lag_cell, offset_cell, print_columns, print_json, print_line
from odradek.wording import duration

if TYPE_CHECKING:
    from odradek.admin.quorum import ReplicaView

app = Group(help="Look at the metadata quorum, and change its voters.")

NodeId = Annotated[int, Argument(metavar="NODE-ID", help="The controller's node.id.")]
ControllerConfig = Annotated[
    Path,
    Option(
        "--config",
        "-c",
        metavar="FILE",
        is_file=True,
        help="The controller's own settings: they name its id, listener and data directory.",
    ),
]
DirectoryId = Annotated[
    str | None,
    Option("--directory-id", metavar="ID", help="Only if the voter has this directory id."),
]


@app.command()
@on_cluster
def describe(cluster: Access, as_json: JsonOutput = False) -> None:
    """Show leader, voters and observers of the metadata quorum, and how far each has caught up."""
    from odradek.admin.quorum import view_quorum

    view = view_quorum(cluster)
    if as_json:
        print_json(asdict(view))
        return
    print_line(f"leader {view.leader}, epoch {view.epoch}, high watermark {view.high_watermark}")
    replicas = [*view.voters, *view.observers]
    now_ms = max(
        (one.last_caught_up_ms or 0 for one in replicas), default=0
    )  # the leader's: it has all it has
    rows = [
        (
            one.node,
            one.role,
            offset_cell(one.log_end_offset),
            lag_cell(one.lag),
            _ago(one, now_ms),
            one.directory_id,
            one.address,
        )
        for one in replicas
    ]
    print_columns(("NODE", "ROLE", "LOG-END-OFFSET", "LAG", "CAUGHT-UP", "DIRECTORY", "ADDRESS"), rows)


def _ago(replica: "ReplicaView", now_ms: int) -> str | None:
    if replica.role == "leader":
        return "now"
    if replica.last_caught_up_ms is None:
        return None
    return f"{duration((now_ms - replica.last_caught_up_ms) / 1000)} ago"


@app.command("add-controller")
@on_cluster
def add_controller(cluster: Access, config: ControllerConfig) -> None:
    """Make a voter of a controller that follows the quorum. Run it where the controller's data directory is."""
    from odradek.admin import quorum
    from odradek.model import id_to_text

    request = quorum.voter_in(config)
    quorum.add_controller(cluster, request)
    print_line(
        f"Added controller {request.voter_id} with directory id {id_to_text(request.voter_directory_id)}."
    )


@app.command("remove-controller")
@on_cluster
def remove_controller(cluster: Access, node_id: NodeId, directory_id: DirectoryId = None) -> None:
    """Remove a voter, before you retire its controller or after its disk is lost."""
    from odradek.admin import quorum

    removed = quorum.remove_controller(cluster, node_id, directory_id)
    print_line(f"Removed controller {node_id} with directory id {removed}.")
