"""Tests of what a node imports before it serves. Each module costs a start time, and each node memory."""

import subprocess
import sys

# Only nodes of a cluster, nodes that are watched, and rare occasions need these.
LATER = {
    "email",
    "importlib.metadata",
    "shutil",
    "tomllib",
    "odradek.coordinators",
    "odradek.net.pages",
    "odradek.raft.rpc",
    "odradek.serving.envelope",
    "odradek.services.coordination.groups",
    "odradek.services.upkeep.monitoring",
    "odradek.storage.compaction.rounds",
    "odradek.wire.messages.alter_partition",
    "odradek.wire.messages.envelope",
    "odradek.wire.messages.fetch",
    "odradek.wire.messages.update_raft_voter",
    "odradek.wire.messages.vote",
}


def test_what_one_node_alone_does_not_need_is_not_imported_with_it() -> None:
    program = (
        "import sys, odradek.cli.up, odradek.broker.main; "
        "odradek.cli.up.parse_arguments(['--port', '0']); print(*sys.modules)"
    )
    imported = subprocess.check_output([sys.executable, "-c", program], text=True).split()
    assert "odradek.broker.node" in imported
    assert LATER.isdisjoint(imported)
