"""A whole node on a simulated host: its disk, its clock and its threads are the simulated ones."""

from random import Random

import pytest
from tests.lives.homes import SimulatedHome
from tests.lives.life import SETTINGS
from tests.lives.members import ClassicMember, ConsumerMember, Member, code_of, commit

from odradek.errors import ErrorCode
from odradek.model import NO_TOPIC_ID
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.describe_log_dirs import DescribeLogDirsRequest

HOUR_MS = 3_600_000


@pytest.mark.parametrize("jump_ms", [24 * HOUR_MS, -24 * HOUR_MS])
@pytest.mark.parametrize(
    "member", [ClassicMember("g"), ConsumerMember("g", NO_TOPIC_ID)], ids=["classic", "consumer"]
)
def test_a_session_does_not_end_because_somebody_sets_the_clock(member: Member, jump_ms: int) -> None:
    member.is_joined = False
    home = SimulatedHome(SETTINGS, Random(1))
    link = home.connect()
    link.ask(CreateTopicsRequest([CreatableTopic("t", 1, 1)]))
    commit(link, member, ["t"], "t", 0, 5)
    home.jump(jump_ms)
    link.wait(2.0)
    answer = link.ask(member.commit_request("t", 0, 6), 9)
    assert code_of(answer) == ErrorCode.NONE
    home.stop()


def test_the_free_space_that_clients_are_told_is_the_simulated_disks() -> None:
    home = SimulatedHome(SETTINGS, Random(1))
    home.files.free_bytes = 5_000_000
    (answer,) = home.connect().ask(DescribeLogDirsRequest(topics=[])).results
    assert answer.usable_bytes == 5_000_000
    home.stop()


def test_a_node_makes_its_data_directory_on_the_disk_it_is_given() -> None:
    home = SimulatedHome(SETTINGS, Random(1))
    home.stop()
    assert "/data/meta.properties" in home.files.contents()
    home.files.crash()
    assert "/data/meta.properties" in home.files.contents()
