"""Every crash, lost response and move at every request of a mirror's life: each record arrives once, in order."""

import random

import pytest

from odradek.client.fetching import OffsetsGone, RangeReader
from odradek.client.transaction_steps import Succeeded
from odradek.mirror import copying, protocol
from odradek.mirror.position import Copy
from odradek.mirror.positions import NAME, PARTITIONS, Positions
from tests.ledger.simulated_cluster import Crashed, SimulatedClient
from tests.mirror.simulated_pair import COPY, TOPIC, Pair, Script, life

FAULTS = ["crash before", "crash after", "lost before", "lost after", "coordinator moves", "leader moves"]


def filled() -> Pair:
    pair = Pair()
    pair.source.much()
    return pair


def requests_of_a_life() -> int:
    script = Script()
    life(filled(), script)
    return len(script.requests)


REQUESTS = requests_of_a_life()


def lives(pair: Pair, scripts: list[Script]) -> None:
    """One after the other, and then one without faults."""
    for script in [*scripts, Script()]:
        try:
            life(pair, script)
        except Crashed:
            continue


def test_a_life_without_faults_copies_everything():
    pair = filled()
    assert life(pair).progress.state == "finished"
    pair.check()
    assert max(one.next for one in pair.positions()) == pair.source.log.end, (
        "trailing markers count as copied"
    )


def test_a_second_life_copies_only_what_is_new():
    pair = filled()
    life(pair)
    pair.source.much()
    copier = life(pair)
    pair.check()
    assert copier.progress.records == len(pair.source.expected) // 2


@pytest.mark.parametrize("fault", FAULTS)
def test_one_fault_at_any_request(fault):
    for number in range(REQUESTS):
        pair = filled()
        lives(pair, [Script({number: fault})])
        pair.check()


@pytest.mark.parametrize("fault", FAULTS[:4])
def test_one_fault_while_markers_are_written_after_the_response(fault):
    for number in range(REQUESTS):
        pair = filled()
        pair.east.slow_commits = 2
        lives(pair, [Script({number: fault})])
        pair.check()


def test_stopped_beyond_the_timeout_at_any_request():
    for number in range(REQUESTS):
        pair = filled()
        life(pair, Script({number: "stopped"}))
        life(pair)
        pair.check()


@pytest.mark.parametrize("seed", range(60))
def test_many_faults_of_all_kinds(seed):
    rng = random.Random(seed)
    pair = filled()
    pair.east.slow_commits = rng.choice([0, 0, 2])
    for _ in range(rng.randrange(1, 4)):
        scripts = [
            Script({rng.randrange(REQUESTS): rng.choice(FAULTS) for _ in range(rng.randrange(1, 6))})
            for _ in range(rng.randrange(1, 6))
        ]
        lives(pair, scripts)
        pair.check()
        pair.source.much()
    life(pair)
    pair.check()


def test_two_mirrors_of_one_partition_do_not_fence_each_other_for_ever():
    """The one that is fenced waits for the group, which will not assign a partition twice."""
    parked = 0
    for number in range(REQUESTS):
        pair = filled()
        first = life(pair, Script({number: "rival"}, rival=lambda pair=pair: life(pair)))
        pair.check()
        assert first.progress.state in ("finished", "parked")
        parked += first.progress.state == "parked"
    assert parked > 5


# What is not to be copied


def test_a_topic_that_was_created_again_is_refused():
    pair = filled()
    life(pair)
    pair.west.create(TOPIC, 1)
    copier = life(pair)
    assert copier.progress.state == "stopped"
    assert "was deleted and created again" in copier.progress.reason
    assert "odradek topic delete west.orders" in copier.progress.reason


def test_a_copy_that_was_deleted_is_made_anew():
    pair = filled()
    life(pair)
    pair.east.create(COPY, 1)
    assert life(pair).progress.state == "finished"
    pair.check()
    pair.source.much()
    life(pair)
    pair.check()


def test_positions_of_a_topic_that_was_deleted_count_for_nothing():
    """Whoever has read them takes the partition back later, and must not go on at what another one has passed."""
    pair = filled()
    life(pair)
    positions, copy = Positions(SimulatedClient(pair.east)), Copy("west", TOPIC, 0)
    positions.prepare()
    assert positions.read(copy) is not None and positions.copies("west") == [copy]
    pair.east.create(NAME, PARTITIONS)
    assert positions.read(copy) is None and positions.copies("west") == []
    assert "there is no position" in life(pair).progress.reason


@pytest.mark.parametrize("what", ["source", "copy"])
def test_a_topic_that_is_created_again_during_a_transaction(what):
    """Nothing of the old topic is mixed with the new one, whenever that happens."""
    for number in range(REQUESTS):
        pair = filled()

        def again(pair=pair):
            if what == "copy":
                pair.east.create(COPY, 1)
            else:
                pair.west.create(TOPIC, 1)
                pair.source.log.batches.clear()
                for _ in range(3):
                    pair.source.much()

        before = list(pair.source.expected)
        copier = life(pair, Script({number: "again"}, again=again))
        if what == "copy":
            assert life(pair).progress.state == "finished", "the positions are those of the new one"
            pair.check()
        else:
            copied, after = pair.copied(), pair.source.expected[len(before) :]
            assert copied in (before[: len(copied)], after[: len(copied)]), f"request {number}"
            assert copied or copier.progress.state == "finished"


def test_a_copy_with_records_of_others_is_refused():
    pair = filled()
    pair.east.topics[COPY][1][0].batches += pair.west.topics[TOPIC][1][0].batches[:1]
    copier = life(pair)
    assert copier.progress.state == "stopped"
    assert "there is no position" in copier.progress.reason


def test_a_position_has_the_leader_epoch_of_its_own_last_batch():
    """And not that of the next fetch, which is under way by then: a log cut in between would not be noticed."""
    pair = Pair()
    for epoch in (3, 4, 5):
        pair.source.records(12, leader_epoch=epoch)
    life(pair)
    assert [(one.next, one.epoch) for one in sorted(pair.positions(), key=lambda one: one.number)] == [
        (12, 3),
        (24, 4),
        (36, 5),
    ]


def test_a_copy_whose_log_is_deleted_while_it_is_looked_at(monkeypatch):
    pair = filled()
    for number in range(REQUESTS):
        with pytest.raises(Crashed):
            life(pair, Script({number: "crash after"}))
        if pair.east.log(COPY, 0).end:
            break
    assert not pair.positions(), "an aborted attempt is all that the copy has"
    polled = RangeReader.poll

    def gone_at_first(reader):
        monkeypatch.setattr(RangeReader, "poll", polled)
        raise OffsetsGone(reader.partition, reader.position, 2, 2)

    monkeypatch.setattr(RangeReader, "poll", gone_at_first)
    monkeypatch.setitem(copying.CARRIED_OUT, protocol.Pause, lambda copier, step: Succeeded())
    assert life(pair).progress.state == "finished"
    pair.check()
