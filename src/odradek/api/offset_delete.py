"""OffsetDelete (47): forget the offsets that a group committed to some partitions.

The group's coordinator (`coordinators`) does the work; it responds once its decision is committed.
"""

from dataclasses import replace

from odradek.apis.items import cut
from odradek.serving.coordination import Coordination
from odradek.serving.request import Request
from odradek.wire.codec import Steps
from odradek.wire.messages.offset_delete import OffsetDeleteRequest


def handle(coordination: Coordination, request: Request, message: OffsetDeleteRequest) -> Steps[None]:
    parts = yield from cut(message.topics, "partitions")
    messages = [replace(message, topics=part) for part in parts]
    yield from coordination.groups.handle_parts(request, messages, message.group_id)
