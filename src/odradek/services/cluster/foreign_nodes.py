"""Log lines about nodes of another cluster, which a wrong address or a moved data directory leads here.

Both ends say it. Neither can do more: the one that is asked refuses (`raft.core`), the one that asks backs off
(`raft.requests`).
"""

import logging

from odradek.host.log_lines import counted
from odradek.raft.requests import FOREIGN_BACKOFF_MS
from odradek.wording import shown

log = logging.getLogger(__name__)


def warn_of_request(node_id: int, address: str, cluster_id: str, own_cluster_id: str) -> None:
    """A node of that cluster asks this one."""
    counted(
        log,
        logging.WARNING,
        f"node {node_id}",
        f"requests of cluster {shown(cluster_id)}",
        "node %d at %s belongs to cluster %s, but asks this node, which belongs to cluster %s: its requests are "
        "refused. Check controller.quorum.bootstrap.servers of that node, and meta.properties in the data "
        "directories of both",
        node_id,
        address,
        shown(cluster_id),
        own_cluster_id,
    )


def warn_of_response(name: str, own_cluster_id: str) -> None:
    """The node with this name, which this one asks, refuses: it belongs to another cluster."""
    counted(
        log,
        logging.ERROR,
        name,
        "it belongs to another cluster",
        "%s belongs to another cluster than this node, which belongs to cluster %s: it is asked again every %d s. "
        "Check controller.quorum.bootstrap.servers, and meta.properties in the data directories of both",
        name,
        own_cluster_id,
        FOREIGN_BACKOFF_MS // 1000,
    )
