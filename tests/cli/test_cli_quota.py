"""`odradek quota`: set, listed and removed, on any Kafka."""

import json
import uuid

import pytest

from odradek.cli.framework import BadParameter
from odradek.cli.quota import parse_limit
from tests.cli.conftest import Odradek


@pytest.mark.parametrize(
    ("options", "entity"),
    [
        (["--user", "{}"], {"user": "{}"}),
        (["--client-id", "{}"], {"client-id": "{}"}),
        (["--user", "{}", "--client-id", "etl"], {"user": "{}", "client-id": "etl"}),
        (["--user", "{}", "--client-default"], {"user": "{}", "client-id": None}),
        (["--user-default", "--client-id", "{}"], {"user": None, "client-id": "{}"}),
    ],
)
def test_a_quota_is_set_listed_and_removed(
    odradek: Odradek, options: list[str], entity: dict[str, str | None]
) -> None:
    name = f"q-{uuid.uuid4().hex[:8]}"
    named = [word.format(name) for word in options]
    done = odradek("quota", "set", *named, "producer_byte_rate=1Gi", "request_percentage=250.5")
    assert done.returncode == 0 and "producer_byte_rate=1073741824, request_percentage=250.5" in done.stdout
    listed = json.loads(odradek("quota", "list", *named, "--json").stdout)
    assert listed == [
        {
            "entity": {kind: None if value is None else value.format(name) for kind, value in entity.items()},
            "quotas": {"producer_byte_rate": 2.0**30, "request_percentage": 250.5},
        }
    ]
    assert name in odradek("quota", "list").stdout
    assert odradek("quota", "remove", *named, "producer_byte_rate", "--yes").returncode == 0
    assert odradek("quota", "remove", *named, "--yes").stdout.startswith("Removed request_percentage of ")
    again = odradek("quota", "remove", *named, "--yes")
    assert again.returncode == 1 and "has no quotas" in again.stderr


def test_an_address(odradek: Odradek) -> None:
    assert odradek("quota", "set", "--ip", "10.1.2.3", "connection_creation_rate=50").returncode == 0
    (view,) = json.loads(odradek("quota", "list", "--ip", "10.1.2.3", "--json").stdout)
    assert view == {"entity": {"ip": "10.1.2.3"}, "quotas": {"connection_creation_rate": 50.0}}
    assert odradek("quota", "remove", "--ip", "10.1.2.3", "--yes").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "status", "reason"),
    [
        (["producer_byte_rate=1"], 2, "name whose quota it is"),
        (["--user", "x", "bytes=1"], 2, "is not a quota"),
        (["--user", "x", "--user-default", "producer_byte_rate=1"], 2, "exclude each other"),
        (["--user", "x", "--ip", "10.0.0.1", "producer_byte_rate=1"], 2, "not narrowed"),
        (["--user", "", "producer_byte_rate=1"], 2, "is empty"),
        (["--user", "x", "producer_byte_rate=-1"], 2, "not of the form"),
        (["--user", "x", "producer_byte_rate=0"], 1, "must be greater than 0"),
        (["--user", "x", "connection_creation_rate=1"], 1, "Invalid configuration key"),
        (["--ip", "nowhere.invalid", "connection_creation_rate=1"], 1, "is not a valid IP"),
    ],
)
def test_bad_usage_says_why(odradek: Odradek, arguments: list[str], status: int, reason: str) -> None:
    refused = odradek("quota", "set", *arguments)
    assert refused.returncode == status and reason in refused.stderr


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1), ("1.5k", 1500), ("2Mi", 2 << 20), ("1G", 10**9), ("1e9", 1e9), ("12.5", 12.5)],
)
def test_numbers_have_units(text: str, value: float) -> None:
    assert parse_limit(f"consumer_byte_rate={text}") == ("consumer_byte_rate", value)


@pytest.mark.parametrize("text", ["", "nan", "inf", "-1", "1 MB/s", "1Ti"])
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(BadParameter):
        parse_limit(f"consumer_byte_rate={text}")
