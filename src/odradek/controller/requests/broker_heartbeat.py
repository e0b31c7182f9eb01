"""BrokerHeartbeat (63): a broker is alive, and says how far it has followed the metadata log.

A broker that registers is fenced. It is unfenced once it has seen its own registration in the log, whose offset is its
broker epoch: from then on it knows all that it is to lead. A broker that is about to stop, or wants to be fenced, is
fenced, and its partitions wait for it. A heartbeat that changes nothing writes nothing.

A broker that falls silent is not fenced yet.
"""

from typing import Any

from odradek.controller.brokers import Records, fence_broker, unfence_broker
from odradek.controller.controller import Terms
from odradek.controller.parts import Part
from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.image import Broker, MetadataImage
from odradek.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse


def decide(image: MetadataImage, part: Part, terms: Terms) -> tuple[Records, BrokerHeartbeatResponse]:
    request: Any = part.request
    broker = _registered(image, request)
    is_caught_up = request.current_metadata_offset >= broker.epoch
    is_fenced = _is_to_be_fenced(broker, request, is_caught_up)
    records: Records = []
    if is_fenced != broker.is_fenced:
        records = (fence_broker if is_fenced else unfence_broker)(image, terms.config, broker.id)
    return records, BrokerHeartbeatResponse(
        is_caught_up=is_caught_up, is_fenced=is_fenced, should_shut_down=request.want_shut_down
    )


def _registered(image: MetadataImage, request: BrokerHeartbeatRequest) -> Broker:
    broker = image.brokers.get(request.broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker {request.broker_id} is not registered.")
    if request.broker_epoch != broker.epoch:
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"Broker {broker.id} is registered in epoch {broker.epoch}, not in {request.broker_epoch}.",
        )
    return broker


def _is_to_be_fenced(broker: Broker, request: BrokerHeartbeatRequest, is_caught_up: bool) -> bool:
    """Nobody waits for a broker that stops: it has no partition that another could take over."""
    if request.want_fence or request.want_shut_down:
        return True
    return broker.is_fenced and not is_caught_up
