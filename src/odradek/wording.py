"""The form in which log lines, errors and output show untrusted strings and numbers of things.

Strings from a client (its client id, a topic's name, a member's id) are `shown`: quoted, without control characters,
cut if they are long. So no client can fake a line of the log, or fill the log with one request.
"""

from collections.abc import Iterable

MAX_SHOWN = 100  # characters of one string of a client
MAX_LINE = 4_000  # characters of a whole message
UNITS = ("B", "KB", "MB", "GB", "TB", "PB")


def shown(text: str | None, limit: int = MAX_SHOWN) -> str:
    """A string from outside, quoted: one line, no control characters, not too long."""
    return f'"{one_line(text, limit)}"' if text is not None else "none"


def one_line(text: str, limit: int = MAX_LINE) -> str:
    """Without quotes, for text that we wrote ourselves and that may contain a string from outside."""
    rest = len(text) - limit
    if rest > 0:
        text = text[:limit]
    if not text.isprintable():
        text = "".join(
            each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
        )
    return f"{text}… ({rest} more characters)" if rest > 0 else text


def some(names: list[str], most: int = 5) -> str:
    """Names that are shown already, the first few of them."""
    rest = len(names) - most
    return ", ".join(names) if rest <= 0 else f"{', '.join(names[:most])} and {rest} more"


def why(error: Exception) -> str:
    """The reason of a failed connection, in words that are never empty."""
    if isinstance(error, ConnectionRefusedError):
        return "it refuses connections"
    return str(error) or ("it does not respond" if isinstance(error, TimeoutError) else type(error).__name__)


def duration(seconds: float) -> str:
    """12 ms, 1.5 s, 2 s, 90 s"""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f}".removesuffix(".0") + " s" if seconds < 10 else f"{seconds:.0f} s"


def count_of(number: int, noun: str) -> str:
    """1 member, 2 members, 1,000 partitions"""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def counted(count: int, noun: str) -> str:
    """1 member, 2 members, 1000 partitions: for output that programs may read, too."""
    return f"1 {noun}" if count == 1 else f"{count} {noun}s"


def joined(items: Iterable[object]) -> str:
    """1,2,3"""
    return ",".join(map(str, items))


def readable_size(size_bytes: int | None) -> str | None:
    """1536 is 1.5 KB; None stays None."""
    if size_bytes is None:
        return None
    size = float(size_bytes)
    for unit in UNITS:
        if size < 1024 or unit == UNITS[-1]:
            break
        size /= 1024
    return f"{size_bytes} B" if unit == "B" else f"{size:.1f} {unit}"
