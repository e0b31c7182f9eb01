"""The syntax of `sasl.jaas.config`, as Java reads it:

    org.apache.kafka.common.security.plain.PlainLoginModule required username="ada" password="…" user_ada="…";

One login module, a control flag, and options until a semicolon; `//` and `/* */` are comments. Bare values may have any
characters but blanks, quotes and semicolons, where Java wants quotes around a number.

An option may be a password, so no error here shows a value, and neither does the `repr` of a module.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTHBEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
FLAGS = ("required", "requisite", "sufficient", "optional")
USER_PREFIX = "user_"  # of the options of PlainLoginModule that name a user and its password

_TOKEN = re.compile(
    r"""
    (?P<blank> \s+ | //[^\n]* | /\*.*?\*/ )
  | (?P<quoted> "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*' )
  | (?P<end> ; )
  | (?P<equals> = )
  | (?P<word> [^\s"'=;]+ )
    """,
    re.VERBOSE | re.DOTALL,
)
_BARE_VALUE = re.compile(r"""[^\s"';]+""")
_ESCAPE = re.compile(r"\\(?P<octal>[0-3][0-7]{2}|[0-7]{1,2})|\\(?P<letter>.)", re.DOTALL)
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v"}


class JaasError(ValueError):
    """The text is not a login module; the message says why, without its values."""


class LoginModule(NamedTuple):
    name: str  # of the Java class
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"LoginModule({self.name}, [hidden])"

    @property
    def passwords(self) -> dict[str, str]:
        """The users that PLAIN lets in, with their passwords."""
        return {
            name.removeprefix(USER_PREFIX): value
            for name, value in self.options.items()
            if name.startswith(USER_PREFIX)
        }


def parse_jaas(text: str) -> LoginModule:
    tokens = _Tokens(text)
    name = tokens.word("no login module is named")
    flag = tokens.word("the control flag, such as 'required', is missing")
    if flag.lower() not in FLAGS:
        raise JaasError(f"the word after the login module must be one of {', '.join(FLAGS)}")
    options: dict[str, str] = {}
    while (option := tokens.option()) is not None:
        key, value = option
        options[key] = value
    if not tokens.is_at_end():
        raise JaasError("more than one login module is named, or something follows the semicolon")
    return LoginModule(name, options)


class _Tokens:
    def __init__(self, text: str) -> None:
        self._text, self._position = text, 0

    def word(self, otherwise: str) -> str:
        kind, text = self._next()
        if kind != "word":
            raise JaasError(otherwise)
        return text

    def option(self) -> tuple[str, str] | None:
        """The next option; None at the semicolon."""
        kind, key = self._next()
        if kind == "end":
            return None
        if kind == "":
            raise JaasError("the login module does not end with a semicolon")
        if kind != "word":
            raise JaasError("an option without a name")
        if self._next()[0] != "equals":
            raise JaasError(f"option {key} has no value")
        return key, self._value(key)

    def _value(self, key: str) -> str:
        self._skip_blanks()
        if self._text[self._position : self._position + 1] in ('"', "'"):
            kind, value = self._next()
            if kind != "quoted":
                raise JaasError(f"the quotes of option {key} are not closed")
            return value
        bare = _BARE_VALUE.match(self._text, self._position)
        if bare is None:
            raise JaasError(f"option {key} has no value")
        self._position = bare.end()
        return bare[0]

    def is_at_end(self) -> bool:
        self._skip_blanks()
        return self._position == len(self._text)

    def _skip_blanks(self) -> None:
        while (match := _TOKEN.match(self._text, self._position)) and match.lastgroup == "blank":
            self._position = match.end()

    def _next(self) -> tuple[str, str]:
        """The kind of the next token, and its text; empty at the end."""
        self._skip_blanks()
        match = _TOKEN.match(self._text, self._position)
        if match is None:
            if self._position < len(self._text):
                raise JaasError("quotes or a comment are not closed")
            return "", ""
        self._position = match.end()
        kind = str(match.lastgroup)
        return kind, _ESCAPE.sub(_unescaped, match[0][1:-1]) if kind == "quoted" else match[0]


def _unescaped(match: re.Match[str]) -> str:
    if match["octal"]:
        return chr(int(match["octal"], 8))
    return _LETTERS.get(match["letter"], match["letter"])
