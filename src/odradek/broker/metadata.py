"""This broker's copy of the cluster's metadata, and its way to change it.

One node is controller and broker in one: a decision is taken on the newest image, its records are appended to the
metadata log, and once they are committed the next image is published and everybody who listens acts on the
difference. Then the decision's answer is given.
"""

import uuid
from collections.abc import Callable
from random import Random

from odradek.api.services import Answer, Decision
from odradek.config.broker import BrokerConfig
from odradek.config.listeners import Listener
from odradek.controller.brokers import register_broker
from odradek.metadata.delta import MetadataDelta, apply_records
from odradek.metadata.image import MetadataImage
from odradek.metadata.records import BrokerEndpoint, MetadataRecord
from odradek.storage.files import Files


class BrokerMetadata:
    def __init__(self, files: Files, config: BrokerConfig, rng: Random) -> None:
        self._node_id = config.node_id
        self._rng = rng
        self._listeners: list[Callable[[MetadataDelta], None]] = []
        self.image = MetadataImage("temporary")

    def listen(self, listener: Callable[[MetadataDelta], None]) -> None:
        self._listeners.append(listener)

    def effective_config(self, config: BrokerConfig) -> BrokerConfig:
        return config

    async def decide(self, decision: Decision[Answer]) -> Answer:
        records, answer = decision(self.image)
        if records:
            self._commit(records)
        return answer

    def _commit(self, records: list[MetadataRecord]) -> None:
        self.image, delta = apply_records(self.image, records, self.image.offset + len(records), 1)
        for listener in self._listeners:
            listener(delta)

    async def register(self, listeners: tuple[Listener, ...]) -> None:
        endpoints = [BrokerEndpoint(item.name, item.host, item.port, item.protocol) for item in listeners]
        self._commit(
            register_broker(
                self.image,
                self._node_id,
                broker_epoch=self.image.offset + 1,
                incarnation_id=uuid.UUID(int=self._rng.getrandbits(128)),
                endpoints=endpoints,
                directories=[uuid.UUID(int=self._rng.getrandbits(128))],
                is_fenced=False,
            )
        )

    def close(self) -> None:
        pass
