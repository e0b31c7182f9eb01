"""Conditions of `odradek consume --filter`, without a cluster."""

from dataclasses import dataclass

import pytest

from odradek.admin.message_filter import compile_filters


@dataclass
class Given:
    """A message as a filter sees it."""

    a_key: bytes | None = b"alice"
    a_value: bytes | None = (
        b'{"user": {"id": 7, "name": "alice"}, "items": [{"sku": "a-1"}], "ok": true, "gone": null}'
    )
    some_headers: tuple[tuple[str, bytes | None], ...] = (
        ("source", b"web"),
        ("source", b"app"),
        ("empty", None),
    )

    def key(self) -> bytes | None:
        return self.a_key

    def value(self) -> bytes | None:
        return self.a_value

    def headers(self) -> list[tuple[str, bytes | None]]:
        return list(self.some_headers)


@pytest.mark.parametrize(
    "text",
    [
        "key=alice",
        "key!=bob",
        "key~^al",
        "key!~bob",
        "alice",
        '"sku": "a-1"',
        "header.source=web",
        "header.source=app",
        "header.source!~ftp",
        "value.$.user.id=7",
        "value.$.user.id=7.0",
        "value.$.user.id>6",
        "value.$.user.id<=7",
        "value.$.user.name=alice",
        "value.$.items[0].sku~a-\\d",
        "value.$.items[-1]['sku']=a-1",
        "value.$.ok=true",
        "value.$.gone=null",
        'value.$.user={"id": 7, "name": "alice"}',
        "value.$.missing!=x",
    ],
)
def test_passes(text: str) -> None:
    assert compile_filters([text])(Given())


@pytest.mark.parametrize(
    "text",
    [
        "key=bob",
        "key!=alice",
        "bob",
        "header.source=ftp",
        "header.source!=web",
        "header.empty=",
        "header.missing=web",
        "value.$.user.id>7",
        "value.$.user.name>6",
        "value.$.missing=null",
        "value.$.items[1].sku=a-1",
        "value.$.user.id=alice",
    ],
)
def test_does_not_pass(text: str) -> None:
    assert not compile_filters([text])(Given())


def test_all_conditions_must_hold() -> None:
    assert compile_filters([])(Given())
    assert not compile_filters(["key=alice", "bob"])(Given())


def test_what_is_missing_equals_nothing() -> None:
    nothing = Given(None, None, ())
    for text in ("key=", "value=", "key~.*", "value.$.a=1", "x"):
        assert not compile_filters([text])(nothing)
    assert not compile_filters(["value.$.a=1"])(Given(a_value=b"not json"))


@pytest.mark.parametrize("text", ["key~(", "value.$..a=1", "value.$[x]=1", "value.$.a>b"])
def test_what_is_no_condition_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        compile_filters([text])
