"""Topics for tests."""

from collections.abc import Mapping, Sequence

from odradek.errors import ErrorCode, KafkaError
from odradek.testing.asking import ask
from odradek.testing.security import EVERYBODY, Login
from odradek.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

TIMEOUT_MS = 30_000
AS_ASSIGNED = AS_CONFIGURED = -1

Assignment = Sequence[Sequence[int]]


def create_topic(
    bootstrap: str,
    name: str,
    partitions: int,
    config: Mapping[str, str],
    replication_factor: int = 1,
    replicas: Assignment | None = None,
    login: Login = EVERYBODY,
) -> None:
    """Raises odradek.errors.KafkaError with the broker's reason where it refuses.

    `replicas` has the brokers of each partition, the preferred leader first, and replaces both numbers."""
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        configs=[CreatableTopicConfig(key, value) for key, value in config.items()],
    )
    if replicas is not None:
        topic.num_partitions = topic.replication_factor = AS_ASSIGNED
        topic.assignments = [
            CreatableReplicaAssignment(index, list(brokers)) for index, brokers in enumerate(replicas)
        ]
    request = CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
    (result,) = ask(bootstrap, request, CreateTopicsResponse, login=login).topics
    if result.error_code:
        code = ErrorCode(result.error_code)
        raise KafkaError(code, result.error_message or code.name)
