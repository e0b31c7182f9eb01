"""Principals: from a certificate's distinguished name to a user, by `ssl.principal.mapping.rules`.

    RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, DEFAULT

The first rule that matches the whole name decides; `L` and `U` change the case; DEFAULT is the name itself. If no rule
matches, the connection is refused, as in Kafka. Patterns run on RE2, whose cost grows only with the length of the name,
so no certificate can stall the broker; the few things that Java's patterns have and RE2 has not (lookaround, references
back) are refused at start. A pattern that matches the empty string is applied once, where Java applies it twice.
"""

import re
from typing import Any, NamedTuple

import re2

from odradek.model import ANONYMOUS, Principal
from odradek.security.names import subject_of

USER = "User"
MAX_RULES = 100
MAX_PATTERN_MEMORY = 1 << 20

_RULE = re.compile(
    r"\s*(?:(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?))\s*(?:,|$)",
    re.DOTALL,
)
_REFERENCE = re.compile(r"\\(?P<literal>.)|\$(?P<group>[0-9]+)", re.DOTALL)


class BadRules(ValueError):
    """The setting cannot be used; the message says why."""


class NoRuleMatches(Exception):
    """The certificate's name maps to no principal."""


class _Rule(NamedTuple):
    pattern: Any  # of RE2; None: DEFAULT
    replacement: str
    case: str

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        match = self.pattern.fullmatch(name)
        if match is None:
            return None
        user = _REFERENCE.sub(lambda found: self._expand(found, match), self.replacement)
        return {"L": user.lower(), "U": user.upper()}.get(self.case, user)

    def _expand(self, found: re.Match[str], match: Any) -> str:
        """A number without a group is shortened until there is one; with one digit it is plain text, as in Kafka."""
        if found["literal"] is not None:
            return found["literal"]
        number, rest = found["group"], ""
        while int(number) > self.pattern.groups and len(number) > 1:
            number, rest = number[:-1], number[-1] + rest
        if int(number) > self.pattern.groups:
            return f"${number}{rest}"
        return (match.group(int(number)) or "") + rest


class PrincipalRules:
    def __init__(self, text: str = "DEFAULT") -> None:
        """Raises BadRules."""
        self._rules = list(_parse(text)) or [_Rule(None, "", "")]

    def principal_of_name(self, name: str) -> Principal:
        for rule in self._rules:
            user = rule.apply(name)
            if user is not None:
                return Principal(USER, user)
        raise NoRuleMatches("no rule of ssl.principal.mapping.rules matches the name of its certificate")

    def principal_of_certificate(self, certificate: bytes | None) -> Principal:
        """The principal of a client that showed this certificate (DER); without one it is anonymous."""
        return ANONYMOUS if not certificate else self.principal_of_name(subject_of(certificate))


def _parse(text: str) -> list[_Rule]:
    rules: list[_Rule] = []
    position, text = 0, text.strip()
    while position < len(text):
        match = _RULE.match(text, position)
        if match is None:
            raise BadRules(
                f"{text[position:]!r} is neither DEFAULT nor RULE:pattern/replacement/ with L, U or nothing"
            )
        rules.append(_Rule(None, "", "") if match["default"] else _compile(match))
        position = match.end()
    if len(rules) > MAX_RULES:
        raise BadRules(f"{len(rules)} rules, more than {MAX_RULES}")
    return rules


def _compile(match: re.Match[str]) -> _Rule:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_PATTERN_MEMORY
    try:
        pattern = re2.compile(match["pattern"], options)
    except re2.error as error:
        reason = error.args[0].decode() if error.args and isinstance(error.args[0], bytes) else str(error)
        raise BadRules(f"the pattern {match['pattern']!r} cannot be used: {reason}") from None
    return _Rule(pattern, match["replacement"], match["case"])
