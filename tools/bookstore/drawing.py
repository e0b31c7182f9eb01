"""Charts and tables in plain text. Pure: values in, lines out."""

from collections.abc import Sequence

EIGHTHS = " ▁▂▃▄▅▆▇█"
BAR = "█"


def columns(values: Sequence[float], height: int, unit: str = "") -> list[str]:
    """One column for each value, in `height` lines, with the largest value and zero beside them."""
    largest = max(values, default=0)
    scale = f"{largest:,.0f}{unit}"
    lines = []
    for row in range(height, 0, -1):
        label = scale if row == height else f"0{unit}" if row == 1 else ""
        lines.append(
            f"{label:>{len(scale)}} ┤" + "".join(_cell(value, largest, row, height) for value in values)
        )
    return [line.rstrip() for line in lines]


def _cell(value: float, largest: float, row: int, height: int) -> str:
    """The piece of a value's column in one line; line 1 is the lowest."""
    if largest <= 0 or value <= 0:
        return EIGHTHS[0]
    eighths = max(round(value / largest * height * 8), 1)
    return EIGHTHS[min(max(eighths - (row - 1) * 8, 0), 8)]


def bars(rows: Sequence[tuple[str, int]], width: int) -> list[str]:
    """A bar for each row, with its figure."""
    largest = max((value for _, value in rows), default=0)
    names = max((len(name) for name, _ in rows), default=0)
    figures = len(f"{largest:,}")
    length = max(width - names - figures - 4, 1)
    return [
        f"{name:<{names}}  {value:>{figures},}  {BAR * round(value / largest * length) if largest else ''}".rstrip()
        for name, value in rows
    ]


def gauge(done: int, total: int, width: int) -> str:
    """Draw how much of something is done."""
    filled = width if total <= 0 else min(done * width // total, width)
    return BAR * filled + "░" * (width - filled)


def table(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> list[str]:
    """Columns as wide as they must be; those numbered in `right` are set flush right."""
    widths = [max(len(row[number]) for row in (header, *rows)) for number in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        placed = [
            cell.rjust(width) if number in right else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return "  ".join(placed).rstrip()

    return [line(header), "  ".join("─" * width for width in widths), *map(line, rows)]


def seconds(duration_s: float) -> str:
    """Milliseconds below a second: 0.0 s would say nothing."""
    return f"{duration_s:.1f} s" if duration_s >= 1 else f"{duration_s * 1000:.0f} ms"


def money(cents: int) -> str:
    return f"{cents // 100:,}.{cents % 100:02}"


def cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
