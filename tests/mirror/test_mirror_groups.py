"""Offsets of groups between two real brokers: over, back, and never under a member's feet."""

from tests.mirror.lab import (
    Inside,
    client,
    commit,
    committed,
    fill,
    ledger,
    records_of,
    run_once,
    running,
    write_file,
)
from tests.processes.nodes import until
from tests.spark.spark_topics import Topics
from tests.support import run_command


def test_groups_fail_over_and_back(west, east, tmp_path, topic, name):
    """A group reads in the west, goes on in the east, and comes back; each time it skips nothing."""
    Topics(west.bootstrap).create(2, topic)
    fill(west.bootstrap, topic, 200)
    forth = write_file(
        tmp_path,
        west.bootstrap,
        east.bootstrap,
        f'names = ["{topic}"]',
        f'pattern = "{name}-read.*"',
        names=(name, "east"),
    )
    commit(west.bootstrap, f"{name}-readers", {(topic, 0): 60, (topic, 1): 100})
    process, copy = Inside(forth), f"{name}.{topic}"
    with running(process):
        until(
            lambda: len(committed(east.bootstrap, f"{name}-readers", copy)) == 2, "the group is carried over"
        )
        first = committed(east.bootstrap, f"{name}-readers", copy)
        commit(west.bootstrap, f"{name}-readers", {(topic, 0): 90, (topic, 1): 100})
        until(lambda: committed(east.bootstrap, f"{name}-readers", copy) != first, "and follows")
        until(lambda: ledger(east.bootstrap, copy) == ledger(west.bootstrap, topic), "everything is copied")

        def unread() -> dict[int, list]:
            over = committed(east.bootstrap, f"{name}-readers", copy)
            return {
                number: [one.value for one in records if one.offset >= over[number]]
                for number, records in records_of(east.bootstrap, copy).items()
            }

        until(lambda: len(unread()[0]) <= 10 + 20 and len(unread()[1]) <= 20, "it repeats few")
        assert process.end()
    values = {number: [one.value for one in found] for number, found in ledger(west.bootstrap, topic).items()}
    for number, read in ((0, 90), (1, 100)):
        left, found = values[number][read:], unread()[number]
        assert found[len(found) - len(left) :] == left, "it skips nothing"

    # It reads on in the east, where new records are written to a topic of its own.
    places = {
        number: [one.offset for one in found] for number, found in records_of(east.bootstrap, copy).items()
    }
    commit(east.bootstrap, f"{name}-readers", {(copy, 0): places[0][95], (copy, 1): places[1][99] + 1})
    Topics(east.bootstrap).create(2, topic)
    fill(east.bootstrap, topic, 50)
    shown = run_command("mirror", "offsets", str(forth), "--group", f"{name}-readers", "--back", "--execute")
    assert shown.returncode == 0, shown.stderr
    back = committed(west.bootstrap, f"{name}-readers", topic)
    assert 85 <= back[0] <= 95 and 90 <= back[1] <= 100

    # The way back brings what was written in the east, and never the copies of the west's own topics.
    other = write_file(
        tmp_path, east.bootstrap, west.bootstrap, f'pattern = ".*{topic}"', names=("east", name)
    )
    run_once(other)
    names = client(west.bootstrap).topic_names()
    assert f"east.{topic}" in names and f"east.{copy}" not in names
    assert ledger(west.bootstrap, f"east.{topic}") == ledger(east.bootstrap, topic)


def test_offsets_of_an_active_group_are_left_alone(west, east, mirror, topic, name):
    from confluent_kafka import Consumer

    Topics(west.bootstrap).create(2, topic)
    fill(west.bootstrap, topic, 20)
    run_once(mirror())
    commit(west.bootstrap, f"{name}-active", {(topic, 0): 5, (topic, 1): 5})
    consumer = Consumer({"bootstrap.servers": east.bootstrap, "group.id": f"{name}-active"})
    consumer.subscribe([f"{name}.{topic}"])
    until(lambda: consumer.poll(0.2) is None and consumer.assignment(), "the group has a member in the east")
    result = run_command("mirror", "offsets", str(mirror()), "--group", f"{name}-active", "--execute")
    consumer.close()
    assert result.returncode == 1
    assert "the group has active members" in result.stderr
