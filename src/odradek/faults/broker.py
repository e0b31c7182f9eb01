"""A broker with faults: the composition root of `python -m odradek.faults`."""

import asyncio
import os
import socket
from collections.abc import Callable

from odradek.broker import descriptors
from odradek.broker.main import Broker
from odradek.config.broker import BrokerConfig
from odradek.faults.connections import Connections
from odradek.faults.control import Control
from odradek.faults.founding import Founding
from odradek.faults.network import CuttableNetwork
from odradek.faults.plan import Plan
from odradek.faults.requests import FaultyRequests
from odradek.faults.wires import Wires
from odradek.net.transport import Converse
from odradek.serving.conversation import Conversations
from odradek.serving.dispatch import Dispatcher, controller_handlers
from odradek.serving.services import Services
from odradek.storage.disk.lossy import LossyFiles

STANDARD_INPUT = 0
ASIDE_SUFFIX = ".aside"  # next to the data directory: files that a power cut may bring back


class FaultyBroker(Broker):
    def __init__(
        self, config: BrokerConfig, loop: asyncio.AbstractEventLoop, *, on_failure: Callable[[], None]
    ) -> None:
        channel = socket.socket(fileno=os.dup(STANDARD_INPUT))
        plan = Plan()
        directory = os.fspath(config.log_dirs[0])
        files = LossyFiles(
            directory, directory + ASIDE_SUFFIX, descriptors.max_open_files(), descriptors.reserve()
        )
        wires = Wires()
        founding = Founding(config, files, wires)
        self._control = Control(loop, channel, plan, files, wires, founding)
        self._control.obey_what_waits()  # a node that joins a cluster, or is cut off, is so from the beginning
        super().__init__(
            config,
            loop,
            files=files,
            on_failure=on_failure,
            new_converse=lambda services: answer_with_faults(services, plan, wires),
            new_network=lambda host, max_sockets: CuttableNetwork(host, max_sockets, wires),
        )

    async def stop(self) -> None:
        self._control.undo_all()
        await super().stop()


def answer_with_faults(services: Services, plan: Plan, wires: Wires) -> Converse:
    connections = Connections()
    handler = FaultyRequests(Dispatcher(services), services, plan, connections, wires)
    others = controller_handlers(services)  # faults are for clients: the quorum is left alone
    host = services.node.host
    conversations = Conversations(
        handler,
        host.create_task,
        services.new_session,
        handlers=others,
        quotas=services.quotas,
        call_later=host.call_later,
    )
    return wires.watching(connections.watching(conversations.begin))
