"""Members of a classic group that come and go at once: who keeps to the protocol is never told to be unknown."""

import random
import threading
import uuid

import pytest

from odradek.errors import ErrorCode
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.heartbeat import HeartbeatRequest
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from odradek.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.protocol.raw import Raw
from tests.support import RunningBroker

MEMBERS = 8
LIVES = 3
EXPECTED = {ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS}


class ClassicMember:
    """Joins, heartbeats a few times, leaves, and comes back as another."""

    def __init__(self, bootstrap: str, group: str, seed: int) -> None:
        self._raw = Raw(bootstrap)
        self._group = group
        self._rng = random.Random(seed)
        self.unexpected: list[str] = []
        self.generations: list[tuple[int, bytes]] = []  # with what was assigned in each

    def run(self) -> None:
        with self._raw:
            for _ in range(LIVES):
                self._live()

    def _live(self) -> None:
        member_id = self._join("").member_id
        heartbeats = self._rng.randrange(5, 30)
        joined = self._join(member_id)
        while joined is not None:
            joined = self._follow(member_id, joined, heartbeats)
        identity = MemberIdentity(member_id)
        self._note("leave", self._raw.ask(LeaveGroupRequest(self._group, members=[identity])).error_code)

    def _join(self, member_id: str) -> object:
        protocols = [JoinGroupRequestProtocol("range", b"")]
        request = JoinGroupRequest(self._group, 10_000, 10_000, member_id, None, "consumer", protocols)
        response = self._raw.ask(request)
        if member_id:
            self._note("join", response.error_code)
        return response

    def _follow(self, member_id: str, joined: object, heartbeats: int) -> object | None:
        """Goes through one generation; returns the response to the next join, or None when it is time to leave."""
        generation: int = joined.generation_id  # type: ignore[attr-defined]
        names = [member.member_id for member in joined.members]  # type: ignore[attr-defined]
        shares = [SyncGroupRequestAssignment(name, name.encode()) for name in names]
        request = SyncGroupRequest(self._group, generation, member_id, None, "consumer", "range", shares)
        synced = self._raw.ask(request)
        self._note("sync", synced.error_code)
        if synced.error_code == 0:
            self.generations.append((generation, synced.assignment))
            assert synced.assignment == member_id.encode()
            for _ in range(heartbeats):
                code = self._raw.ask(HeartbeatRequest(self._group, generation, member_id)).error_code
                self._note("heartbeat", code)
                if code:
                    return self._join(member_id)
            return None
        return self._join(member_id)

    def _note(self, what: str, code: int) -> None:
        if code not in EXPECTED:
            self.unexpected.append(f"{what}: {ErrorCode(code).name}")


@pytest.mark.parametrize("seed", range(3))
def test_no_spurious_unknown_member_id_under_concurrent_rebalances(
    broker: RunningBroker, raw: Raw, seed: int
) -> None:
    group = f"crowd-{uuid.uuid4().hex[:8]}"
    raw.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]))
    members = [ClassicMember(broker.bootstrap, group, seed * 100 + slot) for slot in range(MEMBERS)]
    threads = [threading.Thread(target=member.run) for member in members]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a member waits forever"
    assert [member.unexpected for member in members] == [[]] * MEMBERS
    owned = [(generation, share) for member in members for generation, share in member.generations]
    assert len(owned) == len(set(owned)), "one share was given to two members of a generation"
