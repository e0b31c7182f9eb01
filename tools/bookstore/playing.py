"""Sends events to the brokers, keyed, in their order. That one of them dies is the client's own business."""

from collections.abc import Callable, Sequence

from confluent_kafka import KafkaError, Message, Producer

from .backends import Event

FLUSH_TIMEOUT_S = 60.0


class NotDelivered(Exception):
    """The broker did not acknowledge every event."""


def send(bootstrap: str, events: Sequence[Event], show: Callable[[int], None]) -> None:
    """Send all of them; `show` is told how many the broker has acknowledged so far."""
    acknowledged, failures = 0, list[KafkaError]()

    def delivered(error: KafkaError | None, _: Message) -> None:
        nonlocal acknowledged
        if error is not None:
            failures.append(error)
            return
        acknowledged += 1
        if acknowledged % 100 == 0:
            show(acknowledged)

    settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5}
    producer = Producer({**settings, "log_level": 0})  # what fails for good is told by `delivered`
    for event in events:
        while True:
            try:
                producer.produce(event.topic, key=event.key, value=event.value, on_delivery=delivered)
                break
            except BufferError:  # the queue is full: let deliveries make room
                producer.poll(1)
        producer.poll(0)
    waiting = producer.flush(FLUSH_TIMEOUT_S)
    show(acknowledged)
    if failures or waiting:
        reason = failures[0].str() if failures else f"no response within {FLUSH_TIMEOUT_S:.0f} seconds"
        raise NotDelivered(
            f"{len(failures) + waiting} of {len(events)} events were not acknowledged: {reason}"
        )
