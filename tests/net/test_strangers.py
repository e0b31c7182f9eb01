"""Peers that do not speak Kafka's protocol are told apart by their first bytes."""

import pytest

from odradek.net.strangers import Where, stranger, why_no_frame
from odradek.wire.frame import SIZE


def why(start: bytes) -> str:
    (size,) = SIZE.unpack(start[:4])
    return why_no_frame(start, size, 100 << 20, Where("PLAINTEXT", "PLAINTEXT"))


@pytest.mark.parametrize(
    ("start", "speaks"),
    [
        (b"\x16\x03\x01\x02\x00\x01", "TLS"),
        (b"\x16\x03\x03\x00\xf8\x01", "TLS"),
        (b"\x80\x2e\x01\x03\x01\x00", "TLS"),
        (b"GET / HTTP/1.1\r\n", "HTTP"),
        (b"POST /topics HTTP/1.1\r\n", "HTTP"),
        (b"OPTIONS * HTTP/1.1\r\n", "HTTP"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "SSH"),
        (b"PROXY TCP4 10.0.0.1", "the PROXY protocol"),
        (b"\r\n\r\n\x00\r\nQUIT\n", "the PROXY protocol"),
        (b"AMQP\x00\x00\x09\x01", "AMQP"),
    ],
)
def test_known_strangers(start: bytes, speaks: str) -> None:
    assert why(start).startswith(f"it speaks {speaks}, but this listener is PLAINTEXT: ")


def test_a_listener_with_a_name_of_its_own() -> None:
    assert why_no_frame(b"GET ", 1 << 30, 100, Where("INSIDE", "SASL_PLAINTEXT")).startswith(
        "it speaks HTTP, but listener INSIDE is SASL_PLAINTEXT"
    )


def test_a_peer_that_we_connected_to() -> None:
    assert why_no_frame(b"GET ", 1 << 30, 100, Where("", "PLAINTEXT")).startswith(
        "it speaks HTTP, but this connection is PLAINTEXT"
    )


def test_a_frame_that_is_too_large_before_authentication() -> None:
    where = Where("SASL_PLAINTEXT", "SASL_PLAINTEXT")
    assert why_no_frame(b"\0\1\0\1", 65537, 65536, where, is_greeting=True) == (
        "it announced a frame of 65537 bytes before it has authenticated, when 65536 are allowed"
    )


def test_what_to_do_about_tls() -> None:
    advice = "let it connect without TLS (security.protocol={})"
    assert why(b"\x16\x03\x01\x02").endswith(advice.format("PLAINTEXT"))
    where = Where("OUTSIDE", "SASL_PLAINTEXT")
    assert why_no_frame(b"\x16\x03\x01\x02", 1 << 30, 100, where).endswith(advice.format("SASL_PLAINTEXT"))


@pytest.mark.parametrize(
    ("start", "reason"),
    [
        (b"HELO", 'it sent "HELO…", which is not Kafka\'s protocol'),
        (
            b"\x7f\xff\xff\xff",
            "it announced a frame of 2147483647 bytes, but socket.request.max.bytes is 104857600",
        ),
        (b"\xff\xff\xff\xff", "it announced a frame of -1 bytes"),
        (b"ab\ncd", "it announced a frame of"),
    ],
)
def test_others(start: bytes, reason: str) -> None:
    assert stranger(start) is None
    assert why(start).startswith(reason)
