"""ConsumerGroupDescribe (69): state, members and assignments of KIP-848 groups.

The group's coordinator (`coordinators`) does the work; it responds once its decision is committed. A group whose
members have partitions of a topic that the caller may not describe is refused as a whole, as in Kafka.
"""

from odradek.apis.row import May, Operation, Resource
from odradek.errors import ErrorCode
from odradek.serving.authorized import adding_group_operations
from odradek.serving.request import Request
from odradek.serving.services import Services
from odradek.wire.codec import Steps
from odradek.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)

HIDDEN = "The group has described topic(s) that the client is not authorized to describe."


def hide(message: ConsumerGroupDescribeRequest, response: ConsumerGroupDescribeResponse, may: May) -> None:
    response.groups = [
        group
        if all(may(Operation.DESCRIBE, Resource.TOPIC, name) for name in _topics_of(group))
        else DescribedGroup(ErrorCode.TOPIC_AUTHORIZATION_FAILED, HIDDEN, group.group_id)
        for group in response.groups
    ]


def _topics_of(group: DescribedGroup) -> set[str]:
    return {
        partitions.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for partitions in assignment.topic_partitions
    }


def handle(services: Services, request: Request, message: ConsumerGroupDescribeRequest) -> Steps[None]:
    groups = services.coordination.groups
    if message.include_authorized_operations:
        return groups.handle_many(request, message, adding_group_operations(services.authorizer, request))
    return groups.handle_many(request, message)
