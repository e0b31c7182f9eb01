"""Topics for tests, created by our own client, so that no other has to be installed."""

from collections.abc import Mapping

from odradek.client.connection import Connection
from odradek.client.settings import ClientSettings
from odradek.errors import ErrorCode, KafkaError
from odradek.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

TIMEOUT_MS = 30_000


def create_topic(bootstrap: str, name: str, partitions: int, config: Mapping[str, str]) -> None:
    """Raises odradek.errors.KafkaError with the broker's reason where it refuses."""
    host, _, port = bootstrap.rpartition(":")
    settings = ClientSettings(bootstrap=((host, int(port)),), client_id="odradek-testing")
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        configs=[CreatableTopicConfig(key, value) for key, value in config.items()],
    )
    connection = Connection(host, int(port), settings)
    try:
        request = CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
        (result,) = connection.call(request, CreateTopicsResponse).topics
    finally:
        connection.close()
    if result.error_code:
        code = ErrorCode(result.error_code)
        raise KafkaError(code, result.error_message or code.name)
