"""Times, escapes and JSON lines."""

import pytest

from odradek.admin.message_text import (
    compile_format,
    from_json,
    message_from_json,
    parse_time_ms,
    to_json,
    unescape,
)

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("1234", 1234),
        ("now", NOW_MS),
        ("-90s", NOW_MS - 90_000),
        ("-1h", NOW_MS - 3_600_000),
        ("-2d", NOW_MS - 172_800_000),
        ("-5ms", NOW_MS - 5),
        ("1970-01-01T00:00:01Z", 1000),
        ("1970-01-01T01:00:00.5+01:00", 500),
    ],
)
def test_ways_to_say_a_time(text: str, expected_ms: int) -> None:
    assert parse_time_ms(text, NOW_MS) == expected_ms


@pytest.mark.parametrize("text", ["", "soon", "-1y", "2024-13-01", "1h"])
def test_what_is_not_a_time(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time"):
        parse_time_ms(text, NOW_MS)


def test_escapes() -> None:
    assert unescape(r"a\tb\nc\\n\x41\q") == "a\tb\nc\\nA\\q"


def test_a_token_that_is_none() -> None:
    for template in ("%q", "100%"):
        with pytest.raises(ValueError, match="is not a format token"):
            compile_format(template)


@pytest.mark.parametrize("data", [None, b"", b"text", "é ☂".encode(), b"\xff\x00", b"\xed\xa0\x80"])
def test_bytes_survive_json(data: bytes | None) -> None:
    assert from_json(to_json(data)) == data


def test_other_values_are_kept_as_json_text() -> None:
    message = message_from_json(b'{"value": {"a": [1, "x"]}, "key": 7, "headers": {"h": "1"}}')
    assert (message.value, message.key, message.headers) == (b'{"a": [1, "x"]}', b"7", (("h", b"1"),))


@pytest.mark.parametrize("line", [b"[]", b"{}", b"nonsense", b'{"value": "", "partition": "0"}', b"\xff"])
def test_what_is_not_a_message(line: bytes) -> None:
    with pytest.raises(ValueError):
        message_from_json(line)
