"""The sources that a request may read: the topic's name, the caller's access to it, and who has the records."""

from uuid import UUID

from odradek.apis.row import Operation, Resource
from odradek.errors import ErrorCode, KafkaError
from odradek.replication.leader import Leader
from odradek.replication.source import Source
from odradek.serving.authorizer import may_of
from odradek.serving.request import Request
from odradek.serving.services import Services


class Sources:
    """The sources on this node. Access is asked for at each read, because it may change while a request waits."""

    __slots__ = ("_authorizer", "_cluster", "_replicas", "asks")

    def __init__(self, services: Services) -> None:
        self._cluster = services.cluster
        self._replicas = services.partitions.replicas
        self._authorizer = services.authorizer
        self.asks = not services.authorizer.allows_all  # whether a client may do what it asks for

    def topic_with_id(self, topic_id: UUID) -> str:
        topic = self._cluster.topic_name(topic_id)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        return topic

    def leader_or_follower(self, request: Request, topic: str, index: int) -> Source:
        """Return any replica, for a reader of the topic."""
        if self.asks:
            self._check_access(request, Operation.READ, Resource.TOPIC, topic)
        return self._replicas.leader_or_follower(topic, index)

    def leader(self, request: Request, topic: str, index: int) -> Source:
        """Return the leader, for a reader of the topic that takes no other replica."""
        if self.asks:
            self._check_access(request, Operation.READ, Resource.TOPIC, topic)
        return self._replicas.leader(topic, index)

    def leader_for_follower(self, topic: str, index: int) -> Leader:
        """Return the leader for a replica, whose access is checked at each read (`check_follower`)."""
        return self._replicas.leader(topic, index)

    def may_follow(self, request: Request) -> bool:
        """A replica needs access to the cluster."""
        return may_of(self._authorizer, request)(Operation.CLUSTER_ACTION, Resource.CLUSTER, "")

    def check_follower(self, request: Request) -> None:
        """A partition that a replica may not have is refused like a consumer's."""
        if not self.may_follow(request):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    def _check_access(self, request: Request, operation: Operation, resource: Resource, name: str) -> None:
        if not may_of(self._authorizer, request)(operation, resource, name):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
