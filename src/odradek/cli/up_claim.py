"""The id of a node that joins a cluster: claimed before anything is written that has it.

Nodes that join at the same moment see the same ids taken, and would choose the same one. So a new node registers as a
broker before it makes its directory, with the id that the directory will have. The active controller decides: the
first one gets the id, and the others are refused (DUPLICATE_BROKER_REGISTRATION) and claim the next. When the node
starts, it registers again, and is known by its directory.

A node that is killed before it has made its directory leaves a fenced broker behind: `odradek cluster remove-broker`
removes it.
"""

import socket
import time
from collections.abc import Collection, Mapping
from contextlib import closing
from uuid import uuid4

from odradek.cli.up_cluster import (
    CannotJoin,
    Cluster,
    Way,
    connect,
    describe,
    way_to_brokers,
    way_to_controllers,
)
from odradek.client.connection import ConnectionLost
from odradek.config.broker import BrokerConfig
from odradek.config.listeners import Server
from odradek.errors import ErrorCode, KafkaError, ProtocolError
from odradek.metadata.properties import MetaProperties
from odradek.services.cluster.lifecycle import new_registration
from odradek.wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse

ATTEMPTS = 50  # while the cluster elects a controller
RETRY_SECONDS = 0.2


def claim_id(
    address: str, cluster: Cluster, properties: MetaProperties, settings: Mapping[str, str]
) -> MetaProperties:
    """`properties` with an id that no other node has: the one that they name, or a later one. `cluster` is what the
    broker at `address` said of it. Raises CannotJoin."""
    config = BrokerConfig(settings)
    listeners = config.advertised_listeners(config.broker_listeners, socket.gethostname())
    incarnation_id = uuid4()
    taken = set(cluster.node_ids)
    reason = "it has no active controller"
    for _ in range(ATTEMPTS):
        request = new_registration(properties, incarnation_id, listeners, config["broker.rack"])
        try:
            code = _register(cluster.active_controller, way_to_controllers(config), request)
            reason = code.name
        except (ConnectionLost, KafkaError, ProtocolError, OSError) as error:
            code, reason = ErrorCode.NOT_CONTROLLER, str(error)
        if code is ErrorCode.NONE:
            return properties
        if code is ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            taken |= {properties.node_id, *cluster.node_ids}
            properties = properties._replace(node_id=free_id(taken))
        elif code in (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT):
            time.sleep(RETRY_SECONDS)
            cluster = describe(address, way_to_brokers(config))
        else:
            break
    raise CannotJoin(f"the cluster does not register a new broker: {reason}")


def free_id(taken: Collection[int]) -> int:
    return max(taken, default=0) + 1


def _register(controller: Server | None, way: Way, request: BrokerRegistrationRequest) -> ErrorCode:
    if controller is None:
        return ErrorCode.NOT_CONTROLLER
    with closing(connect(controller, way)) as connection:
        return ErrorCode(connection.call(request, BrokerRegistrationResponse).error_code)
