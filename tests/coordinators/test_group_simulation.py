"""The simulation over many seeds, and proof that it would notice: bugs are planted, each must be caught.

To look at one schedule again: `run(seed)` in `simulation.py`.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from odradek.coordinators import offsets
from odradek.coordinators.classic import members
from odradek.coordinators.classic.group import ClassicGroup, Member
from odradek.coordinators.classic.members import MemberHandlers
from odradek.coordinators.classic.rebalance import Rebalancer
from odradek.coordinators.journal import Journal, Waiter
from odradek.coordinators.offsets import Offsets
from odradek.coordinators.records import OffsetCommitKey, OffsetCommitValue
from odradek.coordinators.runner import Runner
from odradek.coordinators.runtime import Decision, Ready, Shard, StateBatch, Token
from odradek.errors import ErrorCode, KafkaError
from odradek.model import Caller
from odradek.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from odradek.wire.messages.sync_group import SyncGroupResponse
from tests.coordinators.simulation import PARTITIONS, run
from tests.coordinators.virtual import run_seeds
from tests.selection import chunks
from tests.simulation.connection import Violation

SEEDS = 1_000
SLICES = 10
SEEDS_TO_CATCH_A_BUG = 300


@pytest.mark.parametrize("first_seed", chunks(SEEDS, SEEDS // SLICES))
def test_groups_are_safe_and_recover(first_seed: int) -> None:
    processed = 0
    for world in run_seeds(run, range(first_seed, first_seed + SEEDS // SLICES)):
        processed += sum(len(offsets) for offsets in world.checker.processed.values())
    assert processed > SEEDS // SLICES * 50, "the consumers hardly got to work: the simulation shows nothing"


# --- planted bugs ---

Patch = pytest.MonkeyPatch


def any_generation_will_do(patch: Patch) -> None:
    patch.setattr(ClassicGroup, "check_generation", lambda self, generation: None)


def generations_have_one_number(patch: Patch) -> None:
    begin = ClassicGroup.begin_generation

    def begin_generation(self: ClassicGroup) -> None:
        begin(self)
        self.generation = max(self.generation - 1, 1)

    patch.setattr(ClassicGroup, "begin_generation", begin_generation)


def responses_do_not_wait_for_the_commit(patch: Patch) -> None:
    ready_of = Shard._ready

    def _ready(self: Shard, decision: Decision) -> Ready:
        ready = ready_of(self, decision)
        if ready.batch is not None:
            ready.responses = self._release(decision.responses)
            decision.responses = []
            self._appending_for = None
        return ready

    patch.setattr(Shard, "_ready", _ready)


def reads_do_not_wait_for_the_commit(patch: Patch) -> None:
    ready_of = Shard._ready

    def _ready(self: Shard, decision: Decision) -> Ready:
        if decision.records:
            return ready_of(self, decision)
        return Ready(responses=self._release(decision.responses))

    patch.setattr(Shard, "_ready", _ready)


def failed_appends_are_acknowledged(patch: Patch) -> None:
    def append_failed(self: Shard, code: ErrorCode) -> list[Any]:
        decision = self._take_appending()
        for key, value in decision.records:
            self.coordinator.replay(key, value)
        return self._release(decision.responses)

    patch.setattr(Shard, "append_failed", append_failed)


def sessions_never_end(patch: Patch) -> None:
    patch.setattr(Rebalancer, "_expire_session", lambda self, group_id, member_id, now_ms: None)


def a_new_coordinator_starts_no_sessions(patch: Patch) -> None:
    patch.setattr(Rebalancer, "loaded", lambda self, now_ms: None)


def after_loading(patch: Patch, harm: Callable[[ClassicGroup], None]) -> None:
    loaded = Rebalancer.loaded

    def loaded_and_harmed(self: Rebalancer, now_ms: int) -> None:
        loaded(self, now_ms)
        for group in self._groups.values():
            assert isinstance(group, ClassicGroup)
            harm(group)

    patch.setattr(Rebalancer, "loaded", loaded_and_harmed)


def a_new_coordinator_forgets_the_generation(patch: Patch) -> None:
    after_loading(patch, lambda group: setattr(group, "generation", 0))


def a_new_coordinator_forgets_assignments(patch: Patch) -> None:
    def forget(group: ClassicGroup) -> None:
        for member in group.members.values():
            member.assignment = b""

    after_loading(patch, forget)


def everyone_gets_everything(patch: Patch) -> None:
    everything = SyncGroupResponse(assignment=bytes(PARTITIONS))
    patch.setattr(members, "_assignment", lambda group, assignment: everything)


def a_static_member_keeps_its_old_id_too(patch: Patch) -> None:
    rename = ClassicGroup.rename_static

    def rename_static(self: ClassicGroup, old_id: str, new_id: str) -> Member:
        old = dataclasses.replace(self.members[old_id])
        renamed = rename(self, old_id, new_id)
        self.members[old_id] = old
        self._supported.update(old.protocols.keys())
        return renamed

    patch.setattr(ClassicGroup, "rename_static", rename_static)


def waiting_syncs_are_forgotten(patch: Patch) -> None:
    def _refuse_syncs(self: Rebalancer, group: ClassicGroup, now_ms: int, decision: Decision) -> None:
        for member in group.members.values():
            member.sync_token = None

    patch.setattr(Rebalancer, "_refuse_syncs", _refuse_syncs)


def nobody_notices_a_leave(patch: Patch) -> None:
    def leave(
        self: MemberHandlers,
        request: LeaveGroupRequest,
        version: int,
        caller: Caller,
        token: Token,
        now_ms: int,
    ) -> Decision:
        group = self._group_of(request.group_id)
        for leaver in request.members:
            group.end_session(leaver.member_id)
        return Decision(responses=[(token, LeaveGroupResponse())])

    patch.setattr(MemberHandlers, "leave", leave)


def the_first_offset_is_kept(patch: Patch) -> None:
    replay = Offsets.replay

    def replay_first(self: Offsets, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        if key.partition not in self.of(key.group).get(key.topic, {}):
            replay(self, key, value)

    patch.setattr(Offsets, "replay", replay_first)


def offsets_are_off_by_one(patch: Patch) -> None:
    fetched = offsets._fetched

    def _fetched(*arguments: Any) -> Any:
        for partition in fetched(*arguments):
            partition.committed_offset += partition.committed_offset >= 0
            yield partition

    patch.setattr(offsets, "_fetched", _fetched)


def commits_are_accepted_and_dropped(patch: Patch) -> None:
    commit = Offsets.commit

    def commit_nothing(self: Offsets, *arguments: Any) -> Decision:
        return Decision(responses=commit(self, *arguments).responses)

    patch.setattr(Offsets, "commit", commit_nothing)


def the_runner_does_not_wait_for_the_high_watermark(patch: Patch) -> None:
    def commit(self: Journal, last_offset: int, waiter: Waiter) -> None:
        waiter(ErrorCode.NONE)

    patch.setattr(Journal, "commit", commit)
    patch.setattr(Journal, "high_watermark", property(lambda self: 1 << 62))


def the_runner_takes_a_refused_append_for_an_append(patch: Patch) -> None:
    append = Journal.append

    def append_or_pretend(self: Journal, batch: StateBatch, now_ms: int) -> int:
        try:
            return append(self, batch, now_ms)
        except KafkaError:
            return self.high_watermark - 1

    patch.setattr(Journal, "append", append_or_pretend)


def the_runner_forgets_to_answer_a_refused_append(patch: Patch) -> None:
    append_failed = Shard.append_failed

    def append_failed_in_silence(self: Shard, code: ErrorCode) -> list[Any]:
        append_failed(self, code)
        return []

    patch.setattr(Shard, "append_failed", append_failed_in_silence)


def the_runner_keeps_its_first_timer(patch: Patch) -> None:
    def _set_timer(self: Runner[Any]) -> None:
        due_ms = self._shard.next_deadline_ms()
        if due_ms is not None and self._timer is None:
            self._call_tick_in(max(due_ms - self._host.steady_ms(), 0) / 1000, due_ms)

    patch.setattr(Runner, "_set_timer", _set_timer)


def the_runner_sets_no_timer_after_one_has_fired(patch: Patch) -> None:
    def _tick(self: Runner[Any]) -> None:
        while (effects := self._shard.tick(self._host.steady_ms())) is not None:
            self._carry_out(effects)

    patch.setattr(Runner, "_tick", _tick)


def the_runner_loads_one_piece(patch: Patch) -> None:
    pieces = Journal.pieces

    def first_piece(self: Journal) -> Iterator[list[StateBatch]]:
        yield next(pieces(self))

    patch.setattr(Journal, "pieces", first_piece)


def the_runner_serves_what_it_could_not_load(patch: Patch) -> None:
    patch.setattr(Runner, "_load_again", lambda self, error: self._finish_loading())


def the_runner_resigns_in_silence(patch: Patch) -> None:
    resigned = Shard.resigned

    def resigned_in_silence(self: Shard) -> list[Any]:
        resigned(self)
        return []

    patch.setattr(Shard, "resigned", resigned_in_silence)


PLANTED = [
    any_generation_will_do,
    generations_have_one_number,
    responses_do_not_wait_for_the_commit,
    reads_do_not_wait_for_the_commit,
    failed_appends_are_acknowledged,
    sessions_never_end,
    a_new_coordinator_starts_no_sessions,
    a_new_coordinator_forgets_the_generation,
    a_new_coordinator_forgets_assignments,
    everyone_gets_everything,
    a_static_member_keeps_its_old_id_too,
    waiting_syncs_are_forgotten,
    nobody_notices_a_leave,
    the_first_offset_is_kept,
    offsets_are_off_by_one,
    commits_are_accepted_and_dropped,
    the_runner_does_not_wait_for_the_high_watermark,
    the_runner_takes_a_refused_append_for_an_append,
    the_runner_forgets_to_answer_a_refused_append,
    the_runner_keeps_its_first_timer,
    the_runner_sets_no_timer_after_one_has_fired,
    the_runner_loads_one_piece,
    the_runner_serves_what_it_could_not_load,
    the_runner_resigns_in_silence,
]


@pytest.mark.plants_traceback
@pytest.mark.parametrize("plant", PLANTED)
def test_a_planted_bug_is_caught(plant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    plant(monkeypatch)
    with pytest.raises(Violation):
        for seed in range(SEEDS_TO_CATCH_A_BUG):
            run(seed)
