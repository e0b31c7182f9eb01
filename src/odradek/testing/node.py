"""One broker of a cluster for tests. It is a controller too, and a voter of the metadata quorum."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from odradek.testing.broker import Broker, Setting
from odradek.testing.control import Control
from odradek.testing.port import KeptPort
from odradek.testing.security import CONTROLLER, Security

HOST = "localhost"


class Place(NamedTuple):
    """The addresses of a node, as all nodes know them. Ports are kept for as long as the cluster lives."""

    node_id: int
    directory_id: str
    port: KeptPort
    controller_port: KeptPort

    @property
    def controller_address(self) -> str:
        return f"{HOST}:{self.controller_port.number}"

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port.number}"


class Node(Broker):
    """`id` is its node id, `rack` its rack. All of `Broker` works as for a single one."""

    def __init__(
        self,
        place: Place,
        places: Sequence[Place],
        cluster_id: str,
        settings: Mapping[str, Setting],
        security: Security,
    ) -> None:
        super().__init__(settings, place.port, security)
        self.id = place.node_id
        self._name = f"broker-{self.id}"
        self.rack = f"rack-{self.id}"
        self.bootstrap = place.address
        self._place = place
        self._places = places
        self._cluster_id = cluster_id

    def __repr__(self) -> str:
        state = "paused" if self.is_paused else "running" if self.is_running else "down"
        return f"<broker {self.id} at {self.bootstrap}, {state}>"

    @property
    def peers(self) -> Sequence[int]:
        return [place.node_id for place in self._places if place is not self._place]

    def _all_settings(self) -> Mapping[str, str]:
        clients = f"{self._security.protocol}://{self._place.address}"
        return {
            "process.roles": "broker,controller",
            "node.id": str(self.id),
            "broker.rack": self.rack,
            "listeners": f"{clients},{CONTROLLER}://{self._place.controller_address}",
            "controller.listener.names": CONTROLLER,
            "controller.quorum.bootstrap.servers": ",".join(one.controller_address for one in self._places),
            **self.settings,
        }

    def _secure_settings(self, port: str) -> dict[str, str]:
        return self._security.settings_of(self._name, is_controller=True)

    def _tell_before_start(self, control: Control) -> None:
        nodes = [
            {
                "id": place.node_id,
                "directory_id": place.directory_id,
                "addresses": [place.controller_address, place.address],
            }
            for place in self._places
        ]
        control.tell("join", cluster_id=self._cluster_id, nodes=nodes)
        super()._tell_before_start(control)

    def close(self) -> None:
        super().close()
        self._place.controller_port.close()
