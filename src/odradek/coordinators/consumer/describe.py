"""ConsumerGroupDescribe, versions 0 and 1 (1: whether a member uses the classic or the consumer protocol).

Partitions of topics that no longer exist are left out. Authorized operations are filled in by the caller, which knows
the principal.
"""

from odradek.coordinators.consumer.assignment import NO_PARTITIONS, Partitions
from odradek.coordinators.consumer.group import ConsumerGroup
from odradek.coordinators.consumer.member import Member
from odradek.coordinators.group import Group
from odradek.errors import ErrorCode
from odradek.metadata.image import MetadataImage
from odradek.wire.messages.consumer_group_describe import (
    Assignment,
    DescribedGroup,
    TopicPartitions,
)
from odradek.wire.messages.consumer_group_describe import Member as DescribedMember

CLASSIC_MEMBER_TYPE = 0
CONSUMER_MEMBER_TYPE = 1


def describe(
    group_id: str, group: Group | None, image: MetadataImage, default_assignor: str
) -> DescribedGroup:
    if not isinstance(group, ConsumerGroup):
        return DescribedGroup(
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"Group {group_id} is not a consumer group.",
            group_id=group_id,
        )
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor(default_assignor),
        members=[
            _describe_member(member, group.targets.get(member.member_id, NO_PARTITIONS), image)
            for member in group.members.values()
        ],
    )


def _describe_member(member: Member, target: Partitions, image: MetadataImage) -> DescribedMember:
    return DescribedMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.subscription.names),
        subscribed_topic_regex=member.subscription.regex,
        assignment=_describe_partitions(member.assigned, image),
        target_assignment=_describe_partitions(target, image),
        member_type=CONSUMER_MEMBER_TYPE if member.classic is None else CLASSIC_MEMBER_TYPE,
    )


def _describe_partitions(partitions: Partitions, image: MetadataImage) -> Assignment:
    return Assignment(
        [
            TopicPartitions(topic_id, topic.name, sorted(numbers))
            for topic_id, numbers in partitions.items()
            if (topic := image.topics_by_id.get(topic_id)) is not None
        ]
    )
