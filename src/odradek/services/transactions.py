"""The transaction coordinators of this broker, on the partitions of `__transaction_state` that it leads.

A coordinator asks for two things that it cannot do itself (`coordinators.transactions.effects`): producer ids, which
come from the controller, and markers, which `services.txn_markers` brings to the partitions. Both come back to it as
requests.
"""

import logging
from dataclasses import fields
from typing import Any

from odradek.config.broker import BrokerConfig
from odradek.coordinators.transactions.coordinator import TransactionCoordinator, TransactionSettings
from odradek.coordinators.transactions.effects import (
    MarkersWritten,
    NeedsProducerId,
    WithProducerId,
    WriteMarkers,
)
from odradek.coordinators.transactions.refusals import refuse
from odradek.errors import ErrorCode, KafkaError
from odradek.model import TRANSACTIONS_TOPIC, Caller
from odradek.replication.leader import Leader
from odradek.services.creation import InternalTopic, factor_set
from odradek.services.shards import NO_VERSION, Shards
from odradek.services.txn_markers import MarkerJob, MarkerSender
from odradek.serving.request import Request
from odradek.serving.services import Services

log = logging.getLogger(__name__)

RETRY_SECONDS = 0.5  # after a completion that could not be written


class Transactions(Shards[TransactionCoordinator]):
    def __init__(self, services: Services) -> None:
        super().__init__(services, transactions_topic(services.node.config), "transactional id")
        self._settings = transaction_settings(services.node.config)
        self._markers = MarkerSender(services)
        self._open_shards()

    def _new_coordinator(self, leader: Leader | None) -> TransactionCoordinator:
        outbox = Outbox(self, leader) if leader is not None else None
        return TransactionCoordinator(
            self._settings, lambda: self._services.cluster.transaction_version, outbox
        )

    # --- producer ids ---

    def _submit(self, index: int, request: Request, message: Any, token: Any) -> None:
        super()._submit(index, request, message, Supplied(self, index, request, token))

    def supply(self, index: int, request: Any, version: int, caller: Caller, token: Any) -> None:
        """Handle this request again, with a new producer id."""
        self._host.create_task(self._supply(index, request, version, caller, token))

    async def _supply(self, index: int, request: Any, version: int, caller: Caller, token: Any) -> None:
        try:
            producer_id = await self._services.coordination.new_producer_id()
            shard = self._shard(index)
            if shard is None:
                token.answer(refuse(request, ErrorCode.NOT_COORDINATOR))
            else:
                shard.runner.handle(WithProducerId(request, producer_id), version, caller, token)
        except (
            KafkaError,
            OSError,
        ):  # none to be had now: clients wait and retry after this error, as in Kafka
            token.answer(refuse(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        except Exception:
            log.exception("a request that needed a producer id failed: this is a bug")
            token.answer(refuse(request, ErrorCode.UNKNOWN_SERVER_ERROR))

    def _nowhere(self, message: Any, version: int) -> Any:
        return refuse(message, ErrorCode.NOT_COORDINATOR)

    # --- markers ---

    def leads(self, leader: Leader) -> bool:
        """Whether the shard of this leader is still the one that decides."""
        shard = self._shards.get(leader.topic_partition.partition)
        return shard is not None and shard.leader is leader

    def write_markers(self, leader: Leader, markers: WriteMarkers) -> None:
        self._markers.send(
            MarkerJob(
                markers,
                coordinator_epoch=leader.leader_epoch,
                is_wanted=lambda: self.leads(leader),
                done=lambda: self._complete(leader, markers),
            )
        )

    def _complete(self, leader: Leader, markers: WriteMarkers) -> None:
        if not self.leads(leader):
            return  # whoever leads now has its own markers to write
        event = MarkersWritten(markers.transactional_id, markers.producer_id, markers.producer_epoch)

        def completed(code: ErrorCode) -> None:
            if code:
                self._host.call_later(RETRY_SECONDS, self._complete, leader, markers)

        shard = self._shards[leader.topic_partition.partition]
        shard.runner.handle(event, NO_VERSION, self.caller, Told(completed))

    def close(self) -> None:
        super().close()
        self._shards.clear()  # what is under way is not wanted any more
        self._markers.close()


class Outbox:
    """What a coordinator sends that answers no request comes here."""

    def __init__(self, transactions: Transactions, leader: Leader) -> None:
        self._transactions = transactions
        self._leader = leader

    def answer(self, effect: WriteMarkers | NeedsProducerId) -> None:
        if isinstance(effect, NeedsProducerId):
            index = self._leader.topic_partition.partition
            self._transactions.supply(
                index, effect.request, NO_VERSION, self._transactions.caller, Told(_ignore)
            )
        else:
            self._transactions.write_markers(self._leader, effect)


class Supplied:
    """The token of a request that may come back for a producer id."""

    __slots__ = ("_index", "_request", "_token", "_transactions")

    def __init__(self, transactions: Transactions, index: int, request: Request, token: Any) -> None:
        self._transactions = transactions
        self._index = index
        self._request = request
        self._token = token

    def answer(self, response: Any) -> None:
        if isinstance(response, NeedsProducerId):
            version, caller = self._request.version, self._request.caller
            self._transactions.supply(self._index, response.request, version, caller, self._token)
        else:
            self._token.answer(response)


class Told:
    """The token of a request of our own."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer


def _ignore(code: ErrorCode) -> None:
    """The coordinator tries again by itself."""


def transactions_topic(config: BrokerConfig) -> InternalTopic:
    """As Kafka makes it: nothing of it may be lost to an unclean election."""
    return InternalTopic(
        TRANSACTIONS_TOPIC,
        config["transaction.state.log.num.partitions"],
        factor_set(config, "transaction.state.log.replication.factor"),
        {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "segment.bytes": str(config["transaction.state.log.segment.bytes"]),
            "min.insync.replicas": str(config["transaction.state.log.min.isr"]),
            "unclean.leader.election.enable": "false",
        },
    )


def transaction_settings(config: BrokerConfig) -> TransactionSettings:
    """The settings carry Kafka's names with underscores for dots."""
    return TransactionSettings(
        **{field.name: config[field.name.replace("_", ".")] for field in fields(TransactionSettings)}
    )
