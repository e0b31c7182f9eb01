"""A group coordinator to talk to, and the transcript of the talk.

    talk = Conversation()
    talk.join("anna")
    talk.passes(3_000)
    assert talk.heard() == lines('''
        anna joins
            anna: MEMBER_ID_REQUIRED
        ...
    ''')

Members go by their client's or instance's name; a second id of the same name is `anna'`. What is said stands at
the left, what the coordinator answers or writes is indented below.
"""

from __future__ import annotations

import textwrap
from functools import partial
from random import Random
from typing import Any
from uuid import UUID

from odradek.coordinators.group import GroupSettings
from odradek.coordinators.groups import GroupCoordinator
from odradek.coordinators.offsets import EndTransaction, TransactionalCommit
from odradek.coordinators.records import GroupMetadataValue, OffsetCommitKey, decode
from odradek.coordinators.runtime import Producer, StateBatch
from odradek.errors import ErrorCode
from odradek.model import NO_TOPIC_ID, Caller
from odradek.storage.producers.markers import Marker
from odradek.wire.codec import encode, read_message
from odradek.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from odradek.wire.messages.heartbeat import HeartbeatRequest
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from odradek.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from odradek.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from odradek.wire.messages.txn_offset_commit import TxnOffsetCommitResponse
from tests.coordinators.virtual import CoordinatorWorld

GROUP = "readers"


def lines(text: str) -> str:
    return textwrap.dedent(text).strip("\n")


def subscription(*topics: str) -> bytes:
    return b"\0\0" + bytes(encode(ConsumerProtocolSubscription(topics=list(topics)), 0))


class Conversation(CoordinatorWorld[GroupCoordinator]):
    def __init__(self, settings: GroupSettings | None = None, seed: int = 1) -> None:
        super().__init__()
        self.settings = settings or GroupSettings()
        self.rng = Random(seed)
        self.responses: dict[str, Any] = {}  # the last response that each name got
        self.ids: dict[str, str] = {}  # name -> member id
        self.generation: dict[str, int] = {}
        self._labels: dict[str, str] = {}  # member id -> name
        self._lines: list[str] = []
        self.start()

    def new_coordinator(self) -> GroupCoordinator:
        return GroupCoordinator(self.settings, self.rng)

    def restarts(self) -> None:
        """Another broker takes over; it finds what the log has."""
        self._say("(the coordinator restarts)")
        self.runner.resign()
        self.start()

    def passes(self, duration_ms: int) -> None:
        self._say(f"({duration_ms} ms pass)")
        self.host.run_for(duration_ms)

    # --- saying things ---

    def request(self, name: str, request: Any, version: int | None = None) -> Any:
        """Send anything; the response, if it has come by the time this returns."""
        api_version = request.MAX_VERSION if version is None else version
        wire = bytes(encode(request, api_version))
        request, _ = read_message(type(request), api_version, wire)
        caller = Caller(address="127.0.0.1:1", client_id=name)
        self.responses.pop(name, None)
        self.runner.handle(request, api_version, caller, partial(self._hear, name, api_version))
        return self.responses.get(name)

    def join(
        self,
        name: str,
        *,
        instance: str | None = None,
        member_id: str | None = None,
        protocols: dict[str, bytes] | None = None,
        session_ms: int = 10_000,
        rebalance_ms: int = 20_000,
        protocol_type: str = "consumer",
        group: str = GROUP,
        version: int | None = None,
    ) -> JoinGroupResponse | None:
        """JoinGroup; a newcomer that is asked to comes back with the id that it was given."""
        self._say(f"{name} joins")
        offered = protocols if protocols is not None else {"range": subscription("t")}
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=self.ids.get(name, "") if member_id is None else member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(*offer) for offer in offered.items()],
        )
        response = self.request(name, request, version)
        if response is not None and response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.ids[name] = request.member_id = response.member_id
            self._say(f"{name} joins with that id")
            response = self.request(name, request, version)
        return response

    def sync(
        self,
        name: str,
        assignments: dict[str, str] | None = None,
        *,
        generation: int | None = None,
        instance: str | None = None,
        group: str = GROUP,
        **fields: Any,
    ) -> SyncGroupResponse | None:
        self._say(f"{name} syncs" + (f" {assignments}" if assignments else ""))
        return self.request(
            name,
            SyncGroupRequest(
                group_id=group,
                generation_id=self.generation.get(name, -1) if generation is None else generation,
                member_id=self.ids.get(name, ""),
                group_instance_id=instance,
                assignments=[
                    SyncGroupRequestAssignment(self.ids[member], given.encode())
                    for member, given in (assignments or {}).items()
                ],
                **fields,
            ),
        )

    def beat(self, name: str, *, generation: int | None = None, instance: str | None = None) -> ErrorCode:
        self._say(f"{name} beats")
        response = self.request(
            name,
            HeartbeatRequest(
                group_id=GROUP,
                generation_id=self.generation.get(name, -1) if generation is None else generation,
                member_id=self.ids.get(name, ""),
                group_instance_id=instance,
            ),
        )
        return ErrorCode(response.error_code)

    def leave(self, *names: str, instance: str | None = None) -> LeaveGroupResponse:
        self._say(f"{' and '.join(names)} leaves")
        members = [MemberIdentity(self.ids.get(name, ""), instance) for name in names]
        return self.request(names[0], LeaveGroupRequest(group_id=GROUP, members=members))

    def commit_offset(
        self,
        name: str,
        offset: int,
        *,
        topic: str = "t",
        partition: int = 0,
        generation: int | None = None,
        member_id: str | None = None,
        instance: str | None = None,
        metadata: str = "",
        group: str = GROUP,
        retention_ms: int = -1,
        version: int = 9,
    ) -> ErrorCode | None:
        """Commit, and return what became of it; None while the response is held back."""
        self._say(f"{name} commits {topic}-{partition} = {offset}")
        response = self.request(
            name,
            OffsetCommitRequest(
                group_id=group,
                generation_id_or_member_epoch=(
                    self.generation.get(name, -1) if generation is None else generation
                ),
                member_id=self.ids.get(name, "") if member_id is None else member_id,
                group_instance_id=instance,
                retention_time_ms=retention_ms,
                topics=[
                    OffsetCommitRequestTopic(
                        name=topic,
                        partitions=[OffsetCommitRequestPartition(partition, offset, 7, metadata)],
                    )
                ],
            ),
            version,
        )
        return None if response is None else ErrorCode(response.topics[0].partitions[0].error_code)

    def commit_in_transaction(
        self,
        name: str,
        producer_id: int,
        offset: int,
        *,
        topic: str = "t",
        topic_id: UUID = NO_TOPIC_ID,
        partition: int = 0,
        generation: int | None = None,
        member_id: str | None = None,
        instance: str | None = None,
        metadata: str = "",
        group: str = GROUP,
        version: int = 5,
        epoch: int = 0,
        is_verified: bool = True,
    ) -> ErrorCode | None:
        """TxnOffsetCommit, as the broker passes it on."""
        self._say(f"{name} commits {topic}-{partition} = {offset} in transaction {producer_id}")
        commit = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=self.generation.get(name, -1) if generation is None else generation,
            member_id=self.ids.get(name, "") if member_id is None else member_id,
            group_instance_id=instance,
            topics=[
                OffsetCommitRequestTopic(
                    topic_id, topic, [OffsetCommitRequestPartition(partition, offset, 7, metadata)]
                )
            ],
        )
        event = TransactionalCommit(commit, Producer(producer_id, epoch), is_verified)
        response = self._pass_on(name, event, version)
        return None if response is None else ErrorCode(response.topics[0].partitions[0].error_code)

    def end_transaction(
        self,
        producer_id: int,
        *,
        commit: bool,
        epoch: int = 0,
        transaction_version: int = 1,
        coordinator_epoch: int = 3,
    ) -> ErrorCode | None:
        self._say(f"transaction {producer_id} {'commits' if commit else 'aborts'}")
        marker = Marker(is_abort=not commit, coordinator_epoch=coordinator_epoch)
        event = EndTransaction(Producer(producer_id, epoch), marker, transaction_version)
        response: ErrorCode | None = self._pass_on("markers", event, 2)
        return response

    def _pass_on(self, name: str, event: Any, version: int) -> Any:
        """Pass on what the broker has made of a request, instead of the request itself."""
        self.responses.pop(name, None)
        caller = Caller(address="127.0.0.1:1", client_id=name)
        self.runner.handle(event, version, caller, partial(self._hear, name, version))
        return self.responses.get(name)

    def fetch_offset(self, topic: str = "t", partition: int = 0, group: str = GROUP) -> int:
        topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=topics)])
        response = self.request("someone", request, 9)
        return int(response.groups[0].topics[0].partitions[0].committed_offset)

    def together(self, *names: str, **join_fields: Any) -> None:
        """A shortcut to a Stable group of these members; it leaves no transcript."""
        for name in names:
            self.join(name, **join_fields)
        self.passes(self.settings.group_initial_rebalance_delay_ms * (len(names) + 1))
        for name in names:
            self.sync(name)
        self._lines.clear()

    # --- hearing things ---

    def heard(self) -> str:
        """The transcript since it was last asked for."""
        text = "\n".join(self._lines)
        self._lines.clear()
        return text

    def _say(self, text: str) -> None:
        self._lines.append(text)

    def _hear(self, name: str, api_version: int, response: Any) -> None:
        if not isinstance(response, ErrorCode):
            encode(response, api_version)  # must fit the version that was asked
        self.responses[name] = response
        if isinstance(response, JoinGroupResponse) and response.member_id:
            self._labels.setdefault(response.member_id, self._label_for(response.member_id))
            if response.error_code == ErrorCode.NONE:
                self.ids[name] = response.member_id
                self.generation[name] = response.generation_id
        self._lines.append(f"    {name}: {self._describe(response)}")

    def _label_for(self, member_id: str) -> str:
        name = member_id[:-37]
        taken = sum(label.rstrip("'") == name for label in self._labels.values())
        return name + "'" * taken

    def _name_of(self, member_id: str | None) -> str:
        if not member_id:
            return "nobody"
        return self._labels.setdefault(member_id, self._label_for(member_id))

    def _describe(self, response: Any) -> str:
        if isinstance(response, ErrorCode):
            return response.name
        if isinstance(response, (OffsetCommitResponse, TxnOffsetCommitResponse)):
            return ErrorCode(response.topics[0].partitions[0].error_code).name
        if isinstance(response, OffsetFetchResponse):
            return "offsets"
        if isinstance(response, LeaveGroupResponse) and response.members:
            return " ".join(ErrorCode(member.error_code).name for member in response.members)
        if getattr(response, "error_code", 0) != ErrorCode.NONE:
            return ErrorCode(response.error_code).name
        if isinstance(response, JoinGroupResponse):
            members = " ".join(self._name_of(member.member_id) for member in response.members)
            told = f" of {members}" if members else ""
            skip = ", assignment stays" if response.skip_assignment else ""
            leader = self._name_of(response.leader)
            return (
                f"generation {response.generation_id}, {response.protocol_name}, led by {leader}{told}{skip}"
            )
        if isinstance(response, SyncGroupResponse):
            return f"has {response.assignment.decode() or 'nothing'}"
        return "NONE"

    def after_append(self, batch: StateBatch) -> None:
        for key, value in batch.records:
            self._write_line(key, value)
        if batch.marker is not None and batch.producer is not None:
            ends = "ABORT" if batch.marker.is_abort else "COMMIT"
            self._lines.append(f"    log: {ends} of {batch.producer.id}")

    def _write_line(self, key: bytes, value: bytes | None) -> None:
        record = decode(key, value)
        assert record is not None
        decoded_key, decoded_value = record
        if isinstance(decoded_key, OffsetCommitKey):
            offset = "gone" if decoded_value is None else decoded_value.offset
            text = f"{decoded_key.topic}-{decoded_key.partition} = {offset}"
        elif isinstance(decoded_value, GroupMetadataValue):
            members = " ".join(
                f"{self._name_of(member.member_id)}={member.assignment.decode()}"
                for member in decoded_value.members
            )
            text = f"generation {decoded_value.generation} of {members or 'nobody'}"
        else:
            text = "group gone"
        self._lines.append(f"    log: {text}")
