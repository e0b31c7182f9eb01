"""Sessions of brokers with the active controller."""

from odradek.controller.sessions import Sessions


def sessions(*brokers):
    new = Sessions(100)
    new.restart(brokers, 1000)
    return new


def test_every_broker_has_a_fresh_session_with_a_new_controller():
    known = sessions(1, 2)
    assert known.overdue([1, 2], 1099) == []
    assert known.overdue([1, 2], 1100) == [1, 2]
    assert known.overdue([2], 1100) == [2], "only those that are asked for"


def test_a_heartbeat_renews_a_session():
    known = sessions(1, 2)
    known.heard(1, 0, 1050)
    assert known.overdue([1, 2], 1100) == [2]
    assert known.overdue([1, 2], 1150) == [2, 1], "the one that was silent for longer first"


def test_a_broker_that_was_never_heard_of_has_none():
    known = sessions(1)
    assert known.overdue([1, 3], 1000) == [3]
    known.begin(3, 1000)
    assert known.overdue([1, 3], 1000) == []
    known.forget(3)
    assert not known.is_alive(3, 1000)


def test_a_process_that_is_gone_has_none():
    known = sessions(1, 2)
    known.expire_now(2)
    known.expire_now(7)
    assert known.overdue([1, 2], 1000) == [2]
    known.stood_still(10_000)
    assert known.overdue([1, 2], 1000) == [2]
    known.begin(2, 1000)
    assert known.is_alive(2, 1000), "it has started again"


def test_time_in_which_the_controller_stood_still_counts_for_nobody():
    known = sessions(1)
    known.stood_still(5000)
    assert known.overdue([1], 6099) == []
    assert known.overdue([1], 6100) == [1]


def test_a_shutdown_is_known_once_everybody_has_read_it():
    known = sessions(1, 2, 3)
    known.shut_down(1, 50)
    known.heard(2, 50, 1000)
    known.heard(3, 49, 1000)
    assert not known.shutdown_known_by_all(1, 99, [2, 3])
    assert known.shutdown_known_by_all(1, 99, [2])
    known.heard(3, 50, 1000)
    assert known.shutdown_known_by_all(1, 99, [2, 3])
    known.begin(1, 1000)
    assert not known.shutdown_known_by_all(1, 99, [2, 3]), "the next one is another"
