"""Messages that nobody would send: every one is refused, none is a surprise."""

import random

import pytest

from odradek.security import bearer, plain
from odradek.security.bearer import BearerExchange, InvalidToken
from odradek.security.credentials import SHA_256
from odradek.security.decoys import Form, decoy
from odradek.security.exchange import Proven, Refused
from odradek.security.names import BadCertificate, subject_of
from odradek.security.plain import PlainExchange
from odradek.security.scram_server import ScramExchange

STARTS = {
    "PLAIN": (plain.client_message("ada", "secret"),),
    "SCRAM": (b"n,,n=ada,r=abcdefgh", b"c=biws,r=abcdefghserver,p=" + b"A" * 43 + b"="),
    "OAUTHBEARER": (next(bearer.converse("aaaa.bbbb.cccc", [("tenant", "x")])), b"\x01"),
}


def refuse(token):
    raise InvalidToken("no")


def new_exchange(mechanism):
    if mechanism == "PLAIN":
        return PlainExchange({"ada": "another"})
    if mechanism == "OAUTHBEARER":
        return BearerExchange(refuse)
    return ScramExchange(SHA_256, lambda user: (None, decoy(b"key", SHA_256, user, Form())), "server")


def mutated(rng, message):
    data = bytearray(message)
    for _ in range(rng.randint(0, 4)):
        place = rng.randint(0, len(data))
        choice = rng.random()
        if choice < 0.4 and data:
            data[place % len(data)] = rng.randrange(256)
        elif choice < 0.7:
            data[place:place] = rng.choice(
                [b",", b"=", b"\0", b"\x01", b"n=", b"r=", rng.randbytes(3), b"x" * 500]
            )
        else:
            del data[place : place + rng.randint(1, 5)]
    return bytes(data)


@pytest.mark.parametrize("mechanism", STARTS)
def test_no_message_lets_anybody_in_or_fails_in_another_way(mechanism):
    rng = random.Random(1)
    for _ in range(10_000):
        exchange = new_exchange(mechanism)
        try:
            for message in STARTS[mechanism]:
                outcome = exchange.step(mutated(rng, message))
                assert isinstance(outcome, bytes) and not isinstance(outcome, Proven)
        except Refused as error:
            assert len(str(error)) < 200 and len(error.told) < 200


def test_no_bytes_make_a_certificate_fail_in_another_way():
    rng = random.Random(1)
    for _ in range(20_000):
        data = bytes(
            rng.choices([0x30, 0x31, 0x06, 0x02, 0x0C, 0x80, 0x81, 0x00, 0xFF, 0x04], k=rng.randint(0, 40))
        )
        try:
            subject_of(data)
        except BadCertificate:
            pass
