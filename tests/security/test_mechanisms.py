"""SASL mechanisms, both sides, and what a server must never be talked into."""

import base64

import pytest

from odradek.security import bearer, plain, scram_client
from odradek.security.bearer import BearerExchange, InvalidToken, Token
from odradek.security.credentials import SCRAM_MECHANISMS, SHA_256, ScramCredential
from odradek.security.decoys import Form, decoy, new_salt, usual_form
from odradek.security.exchange import Proven, Refused
from odradek.security.plain import PlainExchange
from odradek.security.scram import (
    client_key,
    combine,
    credential_of,
    encode_base64,
    salt_password,
    sign,
    stored_key,
)
from odradek.security.scram_server import ScramExchange

USERS = {"ada": "secret", "a,d=a": "pässword"}
SALT = b"some salt"


# --- PLAIN ---


def test_plain_lets_in_who_knows_the_password():
    assert PlainExchange(USERS).step(plain.client_message("ada", "secret")) == Proven("ada")
    assert PlainExchange(USERS).step(b"ada\0ada\0secret") == Proven("ada")


@pytest.mark.parametrize(
    "message", [b"\0ada\0wrong", b"\0bob\0secret", b"\0ada\0secret ", b"\0bob\0", b"\0\0secret", b"", b"\0\0"]
)
def test_plain_refuses_everybody_else(message):
    with pytest.raises(Refused):
        PlainExchange(USERS).step(message)


def test_plain_refuses_bytes_that_are_no_text():
    for message in (b"\xff\0\xff\0\xff", b"\0a\0b\0c", b"no separators"):
        with pytest.raises(Refused):
            PlainExchange(USERS).step(message)


def test_plain_says_the_same_of_an_unknown_user_and_of_a_wrong_password():
    told = set()
    for user, password in (("ada", "wrong"), ("nobody", "secret"), ("nobody", "")):
        with pytest.raises(Refused) as refused:
            PlainExchange(USERS).step(plain.client_message(user, password or "x"))
        told.add((str(refused.value), refused.value.told))
    assert len(told) == 1


def test_an_unknown_user_has_no_empty_password():
    """The comparison is made with something even then; that must not be a way in."""
    with pytest.raises(Refused):
        PlainExchange({}).step(b"\0nobody\0x")


def test_cve_2017_12610_plain_does_not_act_for_another_user():
    with pytest.raises(Refused, match="another user"):
        PlainExchange({**USERS, "bob": "x"}).step(b"bob\0ada\0secret")


def test_cve_2021_38153_passwords_are_compared_in_constant_time(monkeypatch):
    """Both sides of every comparison are digests of the same size, and only `compare_digest` looks at them."""
    seen = []

    def compare(one, other):
        seen.append((len(one), len(other)))
        return one == other

    monkeypatch.setattr(plain.hmac, "compare_digest", compare)
    for message in (b"\0ada\0s", b"\0nobody\0a much longer password"):
        with pytest.raises(Refused):
            PlainExchange(USERS).step(message)
    assert seen == [(32, 32), (32, 32)]


# --- SCRAM ---


def credential(mechanism, password, iterations=4096, salt=SALT):
    return credential_of(mechanism, salt_password(mechanism, password, salt, iterations), salt, iterations)


def server(mechanism=SHA_256, users=USERS, nonce="server"):
    def find(user):
        known = credential(mechanism, users[user]) if user in users else None
        return known, decoy(b"cluster", mechanism, user, Form(salt_size=len(SALT), is_text=False))

    return ScramExchange(mechanism, find, nonce)


def login(exchange, mechanism, user, password):
    """The two sides talk until one of them is done; returns who was proven."""
    client = scram_client.converse(mechanism, user, password, "client")
    message = next(client)
    while True:
        outcome = exchange.step(message)
        if isinstance(outcome, Proven):
            with pytest.raises(StopIteration):
                client.send(outcome.last)
            return outcome
        message = client.send(outcome)


@pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS.values(), ids=lambda item: item.name)
@pytest.mark.parametrize("user", USERS)
def test_scram_proves_both_sides_to_each_other(mechanism, user):
    assert login(server(mechanism), mechanism, user, USERS[user]).user == user


@pytest.mark.parametrize(("user", "password"), [("ada", "wrong"), ("nobody", "secret")])
def test_scram_says_the_same_of_an_unknown_user_and_of_a_wrong_password(user, password):
    with pytest.raises(Refused) as refused:
        login(server(), SHA_256, user, password)
    assert (str(refused.value), refused.value.told) == ("unknown user or wrong password", "")


def test_the_challenge_of_an_unknown_user_looks_like_any_other_and_stays_the_same():
    def challenge(user):
        return server().step(f"n,,n={user},r=abc".encode()).decode().split(",")

    known, unknown = challenge("ada"), challenge("nobody")
    assert [part[:2] for part in known] == [part[:2] for part in unknown] == ["r=", "s=", "i="]
    assert len(known[1]) == len(unknown[1]) and known[2] == unknown[2]
    assert unknown == challenge("nobody") and unknown[1] != challenge("nobody2")[1]


def test_nobody_logs_in_with_a_decoy_even_if_it_knows_the_secret():
    """Its stored key is given out as if it were the hash of a key; whoever finds that key still is not a user."""
    exchange = server(users={})
    first = exchange.step(b"n,,n=nobody,r=abc").decode()
    fake = decoy(b"cluster", SHA_256, "nobody", Form(salt_size=len(SALT), is_text=False))
    final = f"c=biws,r={first.split(',')[0][2:]}"
    proof = combine(fake.stored_key, sign(SHA_256, fake.stored_key, f"n=nobody,r=abc,{first},{final}"))
    with pytest.raises(Refused):
        exchange.step(f"{final},p={encode_base64(proof)}".encode())


def final_message(server_first, nonce, password="secret", header=b"n,,"):
    """A final message with a right proof of whatever it says."""
    salted = salt_password(SHA_256, password, SALT, 4096)
    key = client_key(SHA_256, salted)
    without_proof = f"c={base64.b64encode(header).decode()},r={nonce}"
    everything = f"n=ada,r=abc,{server_first},{without_proof}"
    proof = combine(key, sign(SHA_256, stored_key(SHA_256, key), everything))
    return f"{without_proof},p={encode_base64(proof)}".encode()


@pytest.mark.parametrize("nonce", ["abcserver", "abcabcserver"], ids=["right", "librdkafka before 2.6.1"])
def test_a_right_proof_with_the_right_nonce_is_accepted(nonce):
    exchange = server()
    first = exchange.step(b"n,,n=ada,r=abc").decode()
    assert isinstance(exchange.step(final_message(first, nonce)), Proven)


@pytest.mark.parametrize(
    "nonce", ["server", "Xabcserver", "abcserverX", "abc", "xyzserver", "xyzabcserver", ""]
)
def test_cve_2024_56128_the_nonce_must_be_equal(nonce):
    exchange = server()
    first = exchange.step(b"n,,n=ada,r=abc").decode()
    with pytest.raises(Refused, match="nonce"):
        exchange.step(final_message(first, nonce))


def test_the_header_of_the_final_message_must_be_the_first_ones():
    exchange = server()
    first = exchange.step(b"n,,n=ada,r=abc").decode()
    with pytest.raises(Refused, match="header"):
        exchange.step(final_message(first, "abcserver", header=b"n,a=bob,"))


def test_cve_2017_12610_scram_does_not_act_for_another_user():
    with pytest.raises(Refused, match="another user"):
        server().step(b"n,a=bob,n=ada,r=abc")
    assert server().step(b"n,a=ada,n=ada,r=abc").startswith(b"r=abcserver")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n",
        b"n,,",
        b"n,,n=ada",
        b"n,,r=abc,n=ada",
        b"n,,n=,r=abc",
        b"n,,n=ada,r=",
        b"n,,n=a=b,r=abc",
        b"n,,n=ada,r=abc,n=bob",
        b"p=tls-unique,,n=ada,r=abc",
        b"n,b=x,n=ada,r=abc",
        b"n,,m=x,n=ada,r=abc",
        b"n,,n=ada,r=a b",
        b"\xff",
        b"n,,n=ada,r=abc,tokenauth=true",
    ],
)
def test_scram_refuses_a_bad_first_message(message):
    with pytest.raises(Refused):
        server().step(message)


@pytest.mark.parametrize(
    "message", [b"", b"c=biws", b"c=biws,r=abcserver", b"c=biws,r=abcserver,p=***", b"x"]
)
def test_scram_refuses_a_bad_final_message(message):
    exchange = server()
    exchange.step(b"n,,n=ada,r=abc")
    with pytest.raises(Refused):
        exchange.step(message)


def test_the_client_refuses_a_server_that_does_not_know_the_password():
    client = scram_client.converse(SHA_256, "ada", "secret", "client")
    exchange = server(users={"ada": "another"})
    client.send(exchange.step(next(client)))
    with pytest.raises(Refused, match="impostor"):
        client.send(b"v=" + base64.b64encode(b"x" * 32))


def test_decoys_have_the_form_of_most_credentials():
    text = [credential(SHA_256, "a", salt=new_salt(bytes(range(26)))) for _ in range(2)]
    raw = [credential(SHA_256, "b", 8192, bytes(range(64)))]
    assert usual_form(text + raw) == Form(4096, 26, True)
    assert usual_form(raw * 3 + text) == Form(8192, 64, False)
    assert usual_form([]) == Form()
    made = decoy(b"k", SHA_256, "u", Form(8192, 100, False))
    assert (made.iterations, len(made.salt)) == (8192, 100)
    assert usual_form([decoy(b"k", SHA_256, "u", Form())]) == Form()


def test_a_credential_does_not_show_itself():
    assert "stored" not in repr(ScramCredential(b"salt", b"stored", b"server", 4096))


# --- OAUTHBEARER ---


def valid(text):
    if text != "good":
        raise InvalidToken("the token has expired")
    return Token("ada", 5_000)


def test_a_bearer_token_names_its_user_and_when_it_expires():
    client = bearer.converse("good", [("tenant", "x")])
    assert BearerExchange(valid).step(next(client)) == Proven("ada", b"", 5_000)
    with pytest.raises(StopIteration):
        client.send(b"")


def test_a_refused_token_fails_after_the_client_has_acknowledged_it():
    client, exchange = bearer.converse("bad"), BearerExchange(valid)
    response = exchange.step(next(client))
    assert response == b'{"status":"invalid_token"}'
    with pytest.raises(Refused, match="expired"):
        exchange.step(client.send(response))


def test_a_second_token_after_a_refused_one_is_refused_too():
    exchange = BearerExchange(valid)
    exchange.step(next(bearer.converse("bad")))
    with pytest.raises(Refused):
        exchange.step(next(bearer.converse("good")))


def test_a_token_does_not_act_for_another_user():
    assert BearerExchange(valid).step(b"n,a=ada,\x01auth=Bearer good\x01\x01").user == "ada"
    with pytest.raises(Refused, match="another user"):
        BearerExchange(valid).step(b"n,a=bob,\x01auth=Bearer good\x01\x01")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,\x01\x01",
        b"n,,\x01auth=Basic good\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"y,,\x01auth=Bearer good\x01\x01",
        b"n,,\x01auth=Bearer good\x01",
        b"n,,\x01auth=Bearer go od\x01\x01",
        b"\xff",
        b"\x01",
    ],
)
def test_other_messages_are_refused(message):
    with pytest.raises(Refused):
        BearerExchange(valid).step(message)
