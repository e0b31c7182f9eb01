"""Which bearer tokens are valid: JSON Web Tokens (RFC 7519) that a known key has signed, for us, and that are current.

Everything fails closed. The algorithm must be in a fixed list of asymmetric ones, and must fit the kind of the key:
`none`, and HMAC with a public key as its secret, have no way in. The key comes from our own key set, never from the
token's header. Issuer, audience, subject, and the times of issue and expiry must be there and right.

PyJWT checks the signature; it is imported with the first token.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from odradek.security.bearer import InvalidToken, Token
from odradek.security.key_sets import KeySet

# The algorithms that are accepted, and the kind of key that each needs.
ALGORITHMS = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), "RSA"),
    **dict.fromkeys(("ES256", "ES384", "ES512"), "EC"),
    "EdDSA": "OKP",
}
DEFAULT_SKEW_S = 30
MAX_USER_LENGTH = 1024


class TokenPolicy(NamedTuple):
    issuer: str
    audiences: tuple[str, ...]
    skew_s: int = DEFAULT_SKEW_S
    user_claim: str = "sub"


def validate(token: str, keys: KeySet, policy: TokenPolicy, now_ms: int) -> Token:
    """Raises InvalidToken."""
    claims = _verified_claims(token, keys, policy)
    expires_s = _time(claims, "exp")
    issued_s = _time(claims, "iat")
    now_s = now_ms / 1000
    if now_s >= expires_s + policy.skew_s:
        raise InvalidToken("the token has expired")
    if issued_s > now_s + policy.skew_s:
        raise InvalidToken("the token was issued in the future")
    if "nbf" in claims and _time(claims, "nbf") > now_s + policy.skew_s:
        raise InvalidToken("the token is not valid yet")
    user = claims.get(policy.user_claim)
    if not isinstance(user, str) or not user.strip() or len(user) > MAX_USER_LENGTH:
        raise InvalidToken(f"the token's claim {policy.user_claim} is not the name of a user")
    return Token(user, int(expires_s * 1000))


def has_library() -> bool:
    """True if the library that reads tokens is installed: a broker without it should not start and refuse them all."""
    try:
        import jwt  # noqa: F401
    except ModuleNotFoundError:
        return False
    return True


def _verified_claims(token: str, keys: KeySet, policy: TokenPolicy) -> Mapping[str, Any]:
    import jwt  # of PyJWT; imports `cryptography`, so only where tokens are used

    try:
        header = jwt.get_unverified_header(token)
        algorithm = header.get("alg")
        if algorithm not in ALGORITHMS:
            raise InvalidToken("the token's algorithm is not accepted")
        if "crit" in header:
            raise InvalidToken("the token demands extensions that are not known")
        key = keys.find(header.get("kid"), ALGORITHMS[algorithm], algorithm)
        claims: Mapping[str, Any] = jwt.decode(
            token,
            key,
            algorithms=[algorithm],
            issuer=policy.issuer,
            audience=policy.audiences,
            # The times are checked by the clock that we are given.
            options={
                "require": ["exp", "iat", "iss", "aud", policy.user_claim],
                "verify_exp": False,
                "verify_iat": False,
                "verify_nbf": False,
            },
        )
    except jwt.PyJWTError as error:
        raise InvalidToken(f"the token is not valid: {type(error).__name__}") from None
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidToken(f"the token cannot be read: {type(error).__name__}") from None
    return claims


def _time(claims: Mapping[str, Any], name: str) -> float:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e11:
        raise InvalidToken(f"the token's claim {name} is not a time")
    return value
