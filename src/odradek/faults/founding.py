"""A node's way to the cluster that it belongs to: it formats its own directory, unless that is done already.

Nobody has to format the directories of a cluster for tests beforehand, and the nodes start at the same time.
"""

import os
from typing import Any

from odradek.config.broker import BrokerConfig
from odradek.faults.wires import Wires
from odradek.metadata.formatting import format_directory
from odradek.metadata.properties import MetaProperties, read_properties
from odradek.model import id_from_text
from odradek.raft.voters import Endpoint, ReplicaKey, VoterNode, VoterSet
from odradek.storage.disk.files import Files


class Founding:
    def __init__(self, config: BrokerConfig, files: Files, wires: Wires) -> None:
        self._config = config
        self._files = files
        self._wires = wires

    def join(self, command: dict[str, Any]) -> None:
        """`nodes` are all nodes, this one too, and the first voters: each with its `id`, its `directory_id`, and its
        `addresses`, the one for controllers first."""
        nodes = command["nodes"]
        others = {address: node["id"] for node in nodes for address in node["addresses"]}
        self._wires.know({address: node for address, node in others.items() if node != self._config.node_id})
        directory = os.fspath(self._config.log_dirs[0])
        if read_properties(self._files, directory) is None:
            (own,) = (node for node in nodes if node["id"] == self._config.node_id)
            identity = MetaProperties(command["cluster_id"], own["id"], id_from_text(own["directory_id"]))
            format_directory(self._files, directory, identity, VoterSet(map(self._voter, nodes)))

    def _voter(self, node: dict[str, Any]) -> VoterNode:
        host, _, port = node["addresses"][0].rpartition(":")
        listener = self._config.controller_listener_names[0]
        key = ReplicaKey(node["id"], id_from_text(node["directory_id"]))
        return VoterNode(key, (Endpoint(listener, host, int(port)),))
