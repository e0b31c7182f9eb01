"""The SASL states of a connection."""

import pytest

from odradek.errors import ErrorCode
from odradek.model import Principal
from odradek.security.exchange import Proven, Refused
from odradek.security.login import (
    API_VERSIONS,
    FAILURE_DELAY_MS,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    Login,
    State,
    Terms,
)
from odradek.wire.messages.index import SCHEMAS

FETCH = 1


class Word:
    """A mechanism whose password is the user's name; '?' asks for another message."""

    def __init__(self, expires_at_ms=None):
        self._expires_at_ms = expires_at_ms

    def step(self, message):
        if message == b"?":
            return b"more"
        if message == b"wrong":
            raise Refused("a wrong word")
        return Proven(message.decode(), b"last", self._expires_at_ms)


def new_login(max_reauth_ms=0, expires_at_ms=None):
    mechanisms = {"WORD": lambda: Word(expires_at_ms), "OTHER": Word}
    return Login(Terms(mechanisms, {"WORD": max_reauth_ms, "OTHER": max_reauth_ms}))


def opened(**terms):
    login = new_login(**terms)
    login.handshake("WORD", 1, 0)
    login.authenticate(b"ada", 0, 0)
    assert login.state is State.OPEN
    return login


def served(login, now_ms=0):
    return {key for key in SCHEMAS if not login.why_not(key, now_ms)}


def test_before_authentication_only_three_apis_are_served_each_in_its_place():
    login = new_login()
    assert served(login) == {API_VERSIONS, SASL_HANDSHAKE}
    assert login.handshake("WORD", 1, 0) == (ErrorCode.NONE, None, b"", 0, "")
    assert served(login) == {SASL_AUTHENTICATE}
    assert login.authenticate(b"?", 0, 0).token == b"more"
    assert served(login) == {SASL_AUTHENTICATE}
    reply = login.authenticate(b"ada", 0, 0)
    assert (reply.error, reply.token, reply.lifetime_ms, reply.failure) == (ErrorCode.NONE, b"last", 0, "")
    assert login.principal == Principal("User", "ada")
    assert served(login) == set(SCHEMAS)


def test_version_0_of_the_handshake_is_followed_by_raw_messages():
    login = new_login()
    login.handshake("WORD", 0, 0)
    assert login.state is State.RAW and served(login) == set()
    assert login.authenticate(b"ada", 0, 0).token == b"last"
    assert login.state is State.OPEN


def test_an_unknown_mechanism_is_told_what_is_offered_and_closed():
    login = new_login()
    reply = login.handshake("GSSAPI", 1, 0)
    assert reply.error is ErrorCode.UNSUPPORTED_SASL_MECHANISM and reply.failure
    assert login.offered == ["WORD", "OTHER"] and login.state is State.FAILED and served(login) == set()


def test_a_failed_login_is_final_and_says_no_more_than_that():
    login = new_login()
    login.handshake("WORD", 1, 0)
    reply = login.authenticate(b"wrong", 0, 0)
    assert reply.error is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert reply.message == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism WORD"
    )
    assert reply.failure == "a wrong word" and served(login) == set()
    with pytest.raises(AssertionError):
        Login(Terms({})).authenticate(b"", 0, 0)  # why_not never lets it come here
    assert FAILURE_DELAY_MS == 100


def test_a_session_without_an_end_cannot_begin_again():
    login = opened()
    assert login.handshake("WORD", 1, 5_000).error is ErrorCode.ILLEGAL_SASL_STATE
    assert login.authenticate(b"ada", 0, 0).error is ErrorCode.ILLEGAL_SASL_STATE
    assert login.state is State.OPEN and served(login, 10**12) == set(SCHEMAS)


@pytest.mark.parametrize(
    ("max_reauth_ms", "expires_at_ms", "lifetime_ms"),
    [
        (60_000, None, 60_000),
        (0, 50_000, 40_000),
        (60_000, 50_000, 40_000),
        (30_000, 50_000, 30_000),
        (0, 5, 0),
    ],
)
def test_the_session_ends_with_the_setting_or_the_credential(max_reauth_ms, expires_at_ms, lifetime_ms):
    login = new_login(max_reauth_ms, expires_at_ms)
    login.handshake("WORD", 1, 0)
    assert login.authenticate(b"ada", 10_000, 77_000).lifetime_ms == lifetime_ms
    end = 77_000 + lifetime_ms
    assert FETCH not in served(login, end)
    assert lifetime_ms == 0 or FETCH in served(login, end - 1)


def test_after_the_end_only_a_new_handshake_is_served():
    login = opened(max_reauth_ms=60_000)
    assert served(login, 60_000) == {SASL_HANDSHAKE}
    assert "expired" in login.why_not(FETCH, 60_000)
    assert login.handshake("WORD", 1, 60_000).error is ErrorCode.NONE
    assert served(login, 60_000) == {SASL_AUTHENTICATE}
    assert login.authenticate(b"ada", 0, 60_001).lifetime_ms == 60_000
    assert served(login, 120_000) == set(SCHEMAS) and served(login, 120_001) == {SASL_HANDSHAKE}


def test_a_client_may_not_begin_again_within_a_second():
    login = opened(max_reauth_ms=60_000)
    login.handshake("WORD", 1, 100)
    login.authenticate(b"ada", 0, 100)
    assert login.handshake("WORD", 1, 1_099).error is ErrorCode.ILLEGAL_SASL_STATE
    assert login.handshake("WORD", 1, 1_100).error is ErrorCode.NONE


def test_another_user_or_mechanism_fails_the_re_authentication():
    login = opened(max_reauth_ms=60_000)
    login.handshake("WORD", 1, 100)
    reply = login.authenticate(b"bob", 0, 100)
    assert reply.message == "Cannot change principals during re-authentication from User.ada: User.bob"
    assert login.state is State.FAILED and login.principal == Principal("User", "ada")

    login = opened(max_reauth_ms=60_000)
    login.handshake("OTHER", 1, 100)
    assert "is not supported for re-authentication" in login.authenticate(b"ada", 0, 100).message
    assert login.state is State.FAILED
