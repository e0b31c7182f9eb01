"""The transaction coordinators of this broker, on the partitions of `__transaction_state` that it leads.

A coordinator has two effects (`coordinators.transactions.effects`): producer ids come from the controller, and markers
are brought to the partitions by `services.coordination.txn_markers`. The coordinator is told when they are there.
"""

import logging
from dataclasses import fields
from typing import Any

from odradek.config.broker import BrokerConfig
from odradek.coordinators.runner import Runner
from odradek.coordinators.transactions.coordinator import TransactionCoordinator, TransactionSettings
from odradek.coordinators.transactions.effects import GetProducerId, WriteMarkers
from odradek.coordinators.transactions.refusals import refuse
from odradek.errors import ErrorCode, KafkaError
from odradek.model import TRANSACTIONS_TOPIC
from odradek.replication.leader import Leader
from odradek.services.coordination.creation import InternalTopic, factor_set
from odradek.services.coordination.shards import Shards
from odradek.services.coordination.txn_markers import MarkerJob, MarkerSender
from odradek.serving.services import Services

log = logging.getLogger(__name__)

TransactionRunner = Runner[TransactionCoordinator]


class Transactions(Shards[TransactionCoordinator]):
    def __init__(self, services: Services) -> None:
        super().__init__(services, transactions_topic(services.node.config), "transactional id")
        self._settings = transaction_settings(services.node.config)
        self._markers = MarkerSender(services)
        self._open_shards()

    def _new_coordinator(self) -> TransactionCoordinator:
        return TransactionCoordinator(self._settings, lambda: self._services.cluster.transaction_version)

    def _nowhere(self, message: Any, version: int) -> Any:
        return refuse(message, ErrorCode.NOT_COORDINATOR)

    def _perform(
        self, leader: Leader, runner: TransactionRunner, effect: WriteMarkers | GetProducerId
    ) -> None:
        if isinstance(effect, GetProducerId):
            self._host.create_task(self._get_producer_id(runner, effect))
        else:
            self._write_markers(leader, runner, effect)

    def _write_markers(self, leader: Leader, runner: TransactionRunner, markers: WriteMarkers) -> None:
        """They are wanted while this coordinator is active: the next one has its own markers to write."""
        self._markers.send(
            MarkerJob(
                markers,
                coordinator_epoch=leader.leader_epoch,
                is_wanted=lambda: runner.is_active,
                done=lambda: runner.tell(
                    lambda coordinator, now_ms: coordinator.markers_written(markers, now_ms)
                ),
            )
        )

    async def _get_producer_id(self, runner: TransactionRunner, wanted: GetProducerId) -> None:
        """Get a producer id; if none is available now, clients wait and retry, as in Kafka."""

        def refused(code: ErrorCode) -> None:
            runner.tell(lambda coordinator, now_ms: coordinator.producer_id_refused(wanted, code))

        try:
            producer_id = await self._services.coordination.new_producer_id()
            runner.tell(lambda coordinator, now_ms: coordinator.producer_id_got(wanted, producer_id, now_ms))
        except (KafkaError, OSError):
            refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        except Exception:
            log.exception("a request that needed a producer id failed: this is a bug")
            refused(ErrorCode.UNKNOWN_SERVER_ERROR)

    def close(self) -> None:
        super().close()
        self._markers.close()


def transactions_topic(config: BrokerConfig) -> InternalTopic:
    """The internal topic as Kafka creates it: no unclean election may lose any of it."""
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
