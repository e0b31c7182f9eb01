"""`subscribePattern` is a Java regular expression; this converts it to a Python one.

The two differ little, and less if only topic names are matched, which are ASCII. Java's own syntax is
rewritten: `\\Q…\\E`, `\\p{Alpha}` and similar, `(?<name>…)`, `\\k<name>`, `\\z`. Syntax that Python would
read as something else (classes within classes, `&&`) or not at all is refused.
"""

import re

CLASSES = {
    "Lower": "a-z",
    "Ll": "a-z",
    "Upper": "A-Z",
    "Lu": "A-Z",
    "Alpha": "a-zA-Z",
    "L": "a-zA-Z",
    "IsAlphabetic": "a-zA-Z",
    "Digit": "0-9",
    "Nd": "0-9",
    "IsDigit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "XDigit": "0-9a-fA-F",
    "Punct": r"!-/:-@\[-`{-~",
    "ASCII": r"\x00-\x7f",
}
TOKEN = re.compile(
    r"""
    \\Q(?P<quoted>.*?)(?:\\E|\Z)
    | \\(?P<p>[pP])(?:\{(?P<long_name>\w+)\}|(?P<short_name>\w))
    | \\k<(?P<reference>\w+)>
    | \(\?<(?P<group>[A-Za-z]\w*)>
    | (?P<end>\\z)
    | (?P<opening>\[\^?\]?)
    | (?P<closing>\])
    | (?P<intersection>&&)
    | \\?.
    """,
    re.VERBOSE | re.DOTALL,
)


def compile_java(text: str) -> re.Pattern[str]:
    """ValueError says what is not supported, and that Java's syntax is expected."""
    parts, in_class = [], False
    for token in TOKEN.finditer(text):
        if in_class and (token["opening"] or token["intersection"]):
            raise ValueError(f"{text!r} has a class within a class, or '&&' in one; write it as one class")
        parts.append(_translated(token, in_class))
        in_class = bool(token["opening"]) or (in_class and not token["closing"])
    try:
        return re.compile("".join(parts))
    except re.error as error:
        raise ValueError(
            f"{text!r} is not a Java regular expression that is supported here: {error.msg}"
        ) from None


def _translated(token: re.Match[str], in_class: bool) -> str:
    if token["quoted"] is not None:
        return re.escape(token["quoted"])
    if token["p"]:
        return _class(token, in_class)
    if token["reference"]:
        return f"(?P={token['reference']})"
    if token["group"] and not in_class:
        return f"(?P<{token['group']}>"
    return r"\Z" if token["end"] else token[0]


def _class(token: re.Match[str], in_class: bool) -> str:
    name, is_negated = token["long_name"] or token["short_name"], token["p"] == "P"
    if name not in CLASSES:
        raise ValueError(f"{token[0]} is not supported; these are: {', '.join(CLASSES)}")
    if not in_class:
        return f"[{'^' if is_negated else ''}{CLASSES[name]}]"
    if is_negated:
        raise ValueError(f"{token[0]} is not supported inside a class; write it as one class")
    return CLASSES[name]
