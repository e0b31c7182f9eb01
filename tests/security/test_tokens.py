"""Bearer tokens: only those that a known key has signed, for us, and that are current."""

import base64
import json

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from odradek.security.bearer import InvalidToken
from odradek.security.key_sets import BadKeySource, KeySource, parse_key_set, parse_source
from odradek.security.tokens import TokenPolicy, validate

NOW_S = 1_800_000_000
POLICY = TokenPolicy("https://issuer", ("kafka", "other"))
RSA_KEY = rsa.generate_private_key(65537, 2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
STRANGE_KEY = rsa.generate_private_key(65537, 2048)
CLAIMS = {"iss": "https://issuer", "aud": "kafka", "sub": "ada", "iat": NOW_S, "exp": NOW_S + 600}


def jwk(key, key_id, **more):
    algorithm = (
        jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else jwt.algorithms.ECAlgorithm
    )
    return {**json.loads(algorithm.to_jwk(key.public_key())), "kid": key_id, **more}


KEYS = parse_key_set(json.dumps({"keys": [jwk(RSA_KEY, "r"), jwk(EC_KEY, "e", alg="ES256", use="sig")]}))


def token(key=RSA_KEY, algorithm="RS256", key_id="r", **claims):
    given = {name: value for name, value in {**CLAIMS, **claims}.items() if value is not None}
    return jwt.encode(given, key, algorithm, {"kid": key_id})


def check(text, policy=POLICY, now_s=NOW_S):
    return validate(text, KEYS, policy, now_s * 1000)


@pytest.mark.parametrize(
    ("key", "algorithm", "key_id"), [(RSA_KEY, "RS256", "r"), (RSA_KEY, "PS512", "r"), (EC_KEY, "ES256", "e")]
)
def test_a_token_of_a_known_key_is_valid_until_it_expires(key, algorithm, key_id):
    assert check(token(key, algorithm, key_id)) == ("ada", (NOW_S + 600) * 1000)


def test_another_audience_of_the_list_and_a_list_of_audiences_are_accepted():
    assert check(token(aud="other")).user == "ada"
    assert check(token(aud=["x", "kafka"])).user == "ada"


def test_the_user_may_be_in_another_claim():
    assert check(token(email="a@b"), POLICY._replace(user_claim="email")).user == "a@b"


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://else"},
        {"iss": None},
        {"aud": "somebody"},
        {"aud": None},
        {"sub": None},
        {"sub": ""},
        {"sub": "x" * 2000},
        {"exp": None},
        {"iat": None},
        {"exp": NOW_S - 30},
        {"exp": "tomorrow"},
        {"exp": True},
        {"iat": NOW_S + 31},
        {"nbf": NOW_S + 31},
    ],
    ids=str,
)
def test_claims_that_are_missing_or_wrong_are_refused(claims):
    with pytest.raises(InvalidToken):
        check(token(**claims))


def test_clocks_may_differ_a_little():
    assert check(token(exp=NOW_S - 29, iat=NOW_S + 29, nbf=NOW_S + 29)).user == "ada"


def b64(value):
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def test_a_token_without_a_signature_is_refused():
    for algorithm in ("none", "None", "NONE", "", None):
        with pytest.raises(InvalidToken):
            check(f"{b64({'alg': algorithm, 'kid': 'r'})}.{b64(CLAIMS)}.")


def test_a_public_key_is_no_secret():
    """The classic: a token with an HMAC, whose secret is the public key that everybody has."""
    pem = RSA_KEY.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    import hashlib
    import hmac

    signed = f"{b64({'alg': 'HS256', 'kid': 'r'})}.{b64(CLAIMS)}"
    forged = f"{signed}.{b64(hmac.digest(pem, signed.encode(), hashlib.sha256))}"
    with pytest.raises(InvalidToken):
        check(forged)


@pytest.mark.parametrize(
    "forged",
    [
        token(STRANGE_KEY),
        token(STRANGE_KEY, key_id="unknown"),
        token(EC_KEY, "ES256", "r"),
        token(RSA_KEY, "RS256", "e"),
        token() + "x",
        token()[:-10],
        "a.b.c",
        "",
        "." * 1000,
        f"{b64({'alg': 'RS256', 'kid': 'r', 'crit': ['x'], 'x': 1})}.{b64(CLAIMS)}.{b64(b'x')}",
        f"{b64({'alg': 'RS256', 'kid': ['r']})}.{b64(CLAIMS)}.{b64(b'x')}",
        f"{b64([])}.{b64(CLAIMS)}.{b64(b'x')}",
    ],
)
def test_a_token_that_no_known_key_has_signed_is_refused(forged):
    with pytest.raises(InvalidToken):
        check(forged)


def test_cve_2026_33557_nothing_of_a_token_is_believed_before_its_signature():
    """Kafka's default validator of some releases accepted any token; ours cannot be made without keys and claims."""
    header, _, signature = token().split(".")
    with pytest.raises(InvalidToken):
        check(f"{header}.{b64({**CLAIMS, 'sub': 'admin'})}.{signature}")
    somebody = rsa.generate_private_key(65537, 2048)
    for claims in (CLAIMS, {**CLAIMS, "iss": "https://anybody", "preferred_username": "admin"}):
        with pytest.raises(InvalidToken):
            check(jwt.encode(claims, somebody, "RS256", {"kid": "r"}))
    with pytest.raises(BadKeySource):
        parse_key_set('{"keys": []}')


def test_a_token_without_a_key_id_means_the_only_key():
    one = parse_key_set(json.dumps({"keys": [jwk(RSA_KEY, "r")]}))
    text = jwt.encode(CLAIMS, RSA_KEY, "RS256")
    assert validate(text, one, POLICY, NOW_S * 1000).user == "ada"
    with pytest.raises(InvalidToken):
        check(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"keys": 1}',
        '{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}',
        '{"keys": [{"kty": "RSA", "n": "AQAB"}]}',
        json.dumps({"keys": [jwk(RSA_KEY, "r", use="enc")]}),
        json.dumps({"keys": [jwk(rsa.generate_private_key(65537, 1024), "small")]}),
    ],
)
def test_a_set_without_usable_keys_is_refused(text):
    with pytest.raises(BadKeySource):
        parse_key_set(text)


@pytest.mark.parametrize(
    "strange",
    [
        {"kty": "EC", "crv": "P-0", "x": "AA", "y": "AA", "kid": "s"},
        {"kty": "OKP", "crv": "X25519", "x": "AA", "kid": "s"},
        {"kty": "RSA", "n": 5, "e": "AQAB", "kid": "s"},
        {"kty": "RSA", "kid": "s"},
    ],
    ids=lambda strange: strange["kty"],
)
def test_a_key_that_cannot_be_used_keeps_no_other_out(strange, caplog):
    keys = parse_key_set(json.dumps({"keys": [strange, jwk(RSA_KEY, "r")]}))
    assert validate(token(), keys, POLICY, NOW_S * 1000).user == "ada"
    assert not keys.knows("s") and "without some of its keys" in caplog.text


def test_a_source_is_a_file_or_an_address_that_is_allowed(tmp_path):
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": [jwk(RSA_KEY, "r")]}))
    assert len(parse_source(f"file://{path}", ()).read()) == 1
    with pytest.raises(BadKeySource, match="cannot be read"):
        KeySource(f"file://{path}.other").read()
    assert parse_source("https://a/keys", ("https://a/keys",)).url == "https://a/keys"
    for url, allowed in (
        ("http://a/keys", ("http://a/keys",)),
        ("https://a/keys", ()),
        ("https://a/keys", ("https://a/",)),
        ("ftp://a", ("ftp://a",)),
    ):
        with pytest.raises(BadKeySource):
            parse_source(url, allowed)
