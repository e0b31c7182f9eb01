"""`odradek group` and `odradek consume --group`, run as a user runs them, beside members of both group protocols."""

import json
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from subprocess import CompletedProcess
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.wire.messages.join_group import JoinGroupRequest
from tests.peer.exchange import served_versions
from tests.support import odradek_command

Odradek = Callable[..., CompletedProcess[str]]
JOIN_TIMEOUT_S = 60


@pytest.fixture(autouse=True)
def groups(bootstrap: str) -> None:
    if JoinGroupRequest.API_KEY not in served_versions(bootstrap):
        pytest.skip("this cluster has no consumer groups")


@pytest.fixture
def orders(bootstrap: str, topic: str) -> str:
    """A topic of two partitions, five records in each, stamped 1000, 2000, … 5000 ms."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 2)])[topic].result(30)
    producer = Producer({"bootstrap.servers": bootstrap})
    for partition in range(2):
        for number in range(1, 6):
            producer.produce(topic, str(number), partition=partition, timestamp=number * 1000)
    assert producer.flush(30) == 0
    return topic


def commit(bootstrap: str, group: str, topic: str, **offsets: int) -> None:
    """Commit offsets, named p0, p1 …, as a consumer without membership does."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    places = [TopicPartition(topic, int(name[1:]), offset) for name, offset in offsets.items()]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


@contextmanager
def member(bootstrap: str, group: str, topic: str, **settings: str) -> Iterator[None]:
    """A member that has its partitions, for the length of a block."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "client.id": "reader", **named})
    assigned: list[TopicPartition] = []
    consumer.subscribe([topic], on_assign=lambda _, partitions: assigned.extend(partitions))
    for _ in range(JOIN_TIMEOUT_S * 10):
        if assigned:
            break
        consumer.poll(0.1)
    assert assigned, "the member was given no partitions"
    yield
    consumer.close()


def described(odradek: Odradek, group: str) -> dict[str, Any]:
    result = odradek("group", "describe", group, "--json")
    assert result.returncode == 0, result.stderr
    (view,) = json.loads(result.stdout)
    assert isinstance(view, dict)
    return view


def reset(odradek: Odradek, group: str, *arguments: str) -> list[int]:
    """The new offsets of a reset, partition by partition."""
    result = odradek("group", "reset-offsets", group, *arguments, "--json")
    assert result.returncode == 0, result.stderr
    return [entry["new_offset"] for entry in json.loads(result.stdout)["partitions"]]


def test_a_group_remembers_where_it_was(odradek: Odradek, topic: str) -> None:
    odradek("topic", "create", topic)
    odradek("produce", topic, stdin="one\ntwo\nthree\n")
    group = ("consume", topic, "--group", f"{topic}-readers", "--from-beginning")
    assert odradek(*group, "--max-messages", "2").stdout == "one\ntwo\n"
    assert odradek(*group, "--exit-at-end").stdout == "three\n"


def test_a_group_leaves_no_choice_of_partitions(odradek: Odradek, topic: str) -> None:
    assert odradek("consume", topic, "--group", "g", "--partition", "0").returncode == 2


def test_describe_prints_the_columns_of_kafkas_tool(odradek: Odradek, bootstrap: str, orders: str) -> None:
    group = f"{orders}-group"
    commit(bootstrap, group, orders, p0=2)
    result = odradek("group", "describe", group)
    header, *rows = (line.split() for line in result.stdout.splitlines())
    assert header == [
        *("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"),
        *("CONSUMER-ID", "HOST", "CLIENT-ID"),
    ]
    assert rows == [[group, orders, "0", "2", "5", "3", "-", "-", "-"]]
    assert result.stderr == f"group {group}: no active members, total lag 3\n"


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_describe_names_members_and_hosts(
    odradek: Odradek, bootstrap: str, orders: str, protocol: str
) -> None:
    group = f"{orders}-group"
    commit(bootstrap, group, orders, p0=4)
    with member(bootstrap, group, orders, group_protocol=protocol, group_instance_id="first"):
        view = described(odradek, group)
        members = odradek("group", "describe", group, "--members").stdout.splitlines()
        state = odradek("group", "describe", group, "--state").stdout.splitlines()[1].split()
        listed = odradek("group", "list", "--type", protocol, "--state", "stable").stdout.splitlines()
    assert (view["type"].lower(), view["state"], len(view["members"])) == (protocol, "Stable", 1)
    only = view["members"][0]
    assert (only["client_id"], only["instance_id"]) == ("reader", "first")
    assert only["partitions"] == [{"topic": orders, "partition": number} for number in range(2)]
    assert [(entry["current_offset"], entry["lag"]) for entry in view["partitions"]] == [(4, 1), (None, None)]
    assert {entry["member_id"] for entry in view["partitions"]} == {only["member_id"]}
    assert {entry["host"] for entry in view["partitions"]} == {only["host"]}
    assert members[1].split()[1:3] == [only["member_id"], "first"]
    assert members[1].split()[-2:] == ["2", f"{orders}:0,{orders}:1"]
    assert (state[0], state[-2:]) == (group, ["Stable", "1"])
    assert group in listed


def test_describe_several_groups_and_all(odradek: Odradek, bootstrap: str, orders: str) -> None:
    first, second = f"{orders}-1", f"{orders}-2"
    commit(bootstrap, first, orders, p0=1)
    commit(bootstrap, second, orders, p1=5)
    both = json.loads(odradek("group", "describe", second, first, "--json").stdout)
    assert [(view["group"], view["partitions"][0]["lag"]) for view in both] == [(second, 0), (first, 4)]
    everything = json.loads(odradek("group", "describe", "--all-groups", "--json").stdout)
    assert {first, second} <= {view["group"] for view in everything}
    assert odradek("group", "describe").returncode == 2
    assert odradek("group", "describe", first, "--all-groups").returncode == 2


def test_offsets_of_a_deleted_topic_do_not_hinder(odradek: Odradek, bootstrap: str, orders: str) -> None:
    group = f"{orders}-group"
    odradek("topic", "create", f"{orders}-kept")
    commit(bootstrap, group, orders, p0=1)
    commit(bootstrap, group, f"{orders}-kept", p0=0)
    odradek("topic", "delete", orders, "--yes")
    assert [entry["topic"] for entry in described(odradek, group)["partitions"]][-1] == f"{orders}-kept"


def test_list_filters_by_type_and_state(odradek: Odradek, bootstrap: str, orders: str) -> None:
    commit(bootstrap, f"{orders}-group", orders, p0=1)
    group = {"group": f"{orders}-group", "type": "Classic", "state": "Empty"}
    assert group in json.loads(odradek("group", "list", "--json").stdout)
    assert group in json.loads(odradek("group", "list", "--type", "Classic", "--json").stdout)
    assert group not in json.loads(odradek("group", "list", "--type", "consumer", "--json").stdout)
    assert f"{orders}-group" not in odradek("group", "list", "--state", "stable").stdout
    assert odradek("group", "list", "--state", "asleep").returncode == 2


def test_what_does_not_exist_is_told(odradek: Odradek, topic: str) -> None:
    for command in (("describe",), ("delete", "--yes")):
        result = odradek("group", *command, topic)
        assert result.returncode == 1
        assert result.stderr == f"error: {topic}: no such group (see 'odradek group list')\n"


def test_a_reset_is_only_told_unless_executed(odradek: Odradek, bootstrap: str, orders: str) -> None:
    group = f"{orders}-group"
    commit(bootstrap, group, orders, p0=2, p1=3)
    planned = odradek("group", "reset-offsets", group, "--topic", orders, "--to-earliest")
    assert [line.split() for line in planned.stdout.splitlines()] == [
        ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET"],
        [group, orders, "0", "2", "0"],
        [group, orders, "1", "3", "0"],
    ]
    assert planned.stderr == "nothing was changed: add --execute to do it\n"
    assert [entry["current_offset"] for entry in described(odradek, group)["partitions"]] == [2, 3]
    done = odradek("group", "reset-offsets", group, "--topic", orders, "--to-earliest", "--execute", "--json")
    assert json.loads(done.stdout)["executed"] is True
    assert [entry["current_offset"] for entry in described(odradek, group)["partitions"]] == [0, 0]


@pytest.mark.parametrize(
    ("target", "offsets"),
    [
        (("--to-earliest",), [0, 0]),
        (("--to-latest",), [5, 5]),
        (("--to-current",), [2, 3]),
        (("--to-offset", "1"), [1, 1]),
        (("--shift-by", "-2"), [0, 1]),
        (("--to-timestamp", "2001"), [2, 2]),
        (("--to-datetime", "1970-01-01T00:00:05Z"), [4, 4]),
        (("--by-duration", "PT5M"), [5, 5]),
        (("--by-duration", "P99999D"), [0, 0]),
    ],
)
def test_where_to(
    odradek: Odradek, bootstrap: str, orders: str, target: tuple[str, ...], offsets: list[int]
) -> None:
    group = f"{orders}-group"
    commit(bootstrap, group, orders, p0=2, p1=3)
    assert reset(odradek, group, "--all-topics", *target) == offsets


def test_a_reset_may_name_partitions(odradek: Odradek, bootstrap: str, orders: str) -> None:
    group = f"{orders}-group"
    commit(bootstrap, group, orders, p0=2, p1=3)
    assert reset(odradek, group, "--topic", f"{orders}:1", "--to-latest", "--execute") == [5]
    assert [entry["current_offset"] for entry in described(odradek, group)["partitions"]] == [2, 5]
    missing = odradek("group", "reset-offsets", group, "--topic", f"{orders}:0,7", "--to-latest")
    assert (missing.returncode, missing.stderr) == (1, f"error: {orders} has no partition 7\n")


def test_a_reset_stays_within_the_log(odradek: Odradek, bootstrap: str, orders: str) -> None:
    group = f"{orders}-group"
    commit(bootstrap, group, orders, p0=2)
    command = ("group", "reset-offsets", group, "--topic", f"{orders}:0", "--execute", "--json")
    for target, taken in ((("--to-offset", "50"), 5), (("--shift-by", "-9"), 0)):
        result = odradek(*command, *target)
        assert json.loads(result.stdout)["partitions"][0]["new_offset"] == taken
        assert f"warning: {orders}-0 holds 0 to 5: {taken} is taken for " in result.stderr


def test_a_group_can_be_given_offsets_before_it_has_members(odradek: Odradek, orders: str) -> None:
    group = f"{orders}-new"
    assert reset(odradek, group, "--topic", orders, "--to-offset", "3", "--execute") == [3, 3]
    read = odradek("consume", orders, "--group", group, "--exit-at-end")
    assert sorted(read.stdout.split()) == ["4", "4", "5", "5"]


def test_a_reset_that_cannot_be_done_is_told(odradek: Odradek, orders: str) -> None:
    nothing = odradek("group", "reset-offsets", orders, "--all-topics", "--to-latest")
    assert (nothing.returncode, nothing.stderr.count("\n")) == (1, 1)
    unshifted = odradek("group", "reset-offsets", orders, "--topic", orders, "--shift-by", "1")
    assert unshifted.stderr == f"error: {orders}-0 has no committed offset to shift\n"
    unknown = odradek("group", "reset-offsets", orders, "--topic", f"{orders}-none", "--to-latest")
    assert unknown.stderr == f"error: {orders}-none: no such topic (see 'odradek topic list')\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("--topic", "t"),
        ("--to-latest",),
        ("--topic", "t", "--all-topics", "--to-latest"),
        ("--topic", "t", "--to-latest", "--to-earliest"),
        ("--topic", "t", "--by-duration", "P"),
    ],
)
def test_a_reset_that_is_not_understood(odradek: Odradek, arguments: tuple[str, ...]) -> None:
    assert odradek("group", "reset-offsets", "g", *arguments).returncode == 2


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups_with_members_are_left_alone(
    odradek: Odradek, bootstrap: str, orders: str, protocol: str
) -> None:
    group = f"{orders}-group"
    with member(bootstrap, group, orders, group_protocol=protocol):
        refused = odradek("group", "reset-offsets", group, "--topic", orders, "--to-earliest", "--execute")
        kept = odradek("group", "delete", group, "--yes")
    assert refused.returncode == 1
    assert refused.stderr == (
        f"error: {group} has 1 active member: stop it before you reset offsets "
        f"(see 'odradek group describe {group} --members')\n"
    )
    assert kept.returncode == 1
    assert kept.stdout == ""
    assert "the group has active members: stop them first" in kept.stderr


def test_delete(odradek: Odradek, bootstrap: str, orders: str) -> None:
    first, second = f"{orders}-1", f"{orders}-2"
    for group in (first, second):
        commit(bootstrap, group, orders, p0=1)
    deleted = odradek("group", "delete", first, second, "--yes", "--json")
    assert (deleted.returncode, json.loads(deleted.stdout)) == (
        0,
        [{"group": first, "deleted": True}, {"group": second, "deleted": True}],
    )
    assert not {first, second} & set(odradek("group", "list").stdout.split())
    assert odradek("group", "delete").returncode == 2


def test_total_lag_and_watching(odradek: Odradek, bootstrap: str, orders: str) -> None:
    group = f"{orders}-group"
    commit(bootstrap, group, orders, p0=2, p1=4)
    assert described(odradek, group)["total_lag"] == 4
    command = ("group", "describe", group, "--watch", "0.1", "--json", "-b", bootstrap)
    watcher = subprocess.Popen(
        odradek_command(*command),
        stdout=subprocess.PIPE,
        text=True,
        # whoever runs us in the background may have SIGINT ignored, and that is inherited
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    watchdog = threading.Timer(120, watcher.kill)
    watchdog.start()
    assert watcher.stdout is not None
    assert json.loads(watcher.stdout.readline())[0]["total_lag"] == 4
    commit(bootstrap, group, orders, p0=5, p1=5)
    while json.loads(watcher.stdout.readline())[0]["total_lag"]:
        pass
    watcher.send_signal(signal.SIGINT)
    watcher.communicate()
    watchdog.cancel()
    assert watcher.returncode == 130


def test_committed_offsets_are_deleted(odradek: Odradek, bootstrap: str, orders: str) -> None:
    group = f"{orders}-group"
    commit(bootstrap, group, orders, p0=2, p1=3)
    command = ("group", "delete-offsets", group, "--topic", f"{orders}:0")
    assert odradek(*command).returncode == 2
    deleted = odradek(*command, "--yes", "--json")
    assert deleted.returncode == 0, deleted.stderr
    assert json.loads(deleted.stdout) == {
        "group": group,
        "partitions": [{"topic": orders, "partition": 0, "current_offset": 2, "deleted": True}],
    }
    (left,) = described(odradek, group)["partitions"]
    assert (left["partition"], left["current_offset"]) == (1, 3)
    again = odradek(*command, "--yes")
    assert (again.returncode, again.stderr) == (
        1,
        f"error: {group} has committed no offsets for {orders}:0\n",
    )


def test_offsets_of_a_topic_that_is_read_are_kept(odradek: Odradek, bootstrap: str, orders: str) -> None:
    group = f"{orders}-group"
    commit(bootstrap, group, orders, p0=2)
    with member(bootstrap, group, orders):
        refused = odradek("group", "delete-offsets", group, "--topic", orders, "--yes")
    assert refused.returncode == 1
    assert "group subscribed to topic" in refused.stderr
