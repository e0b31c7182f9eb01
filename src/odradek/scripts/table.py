"""Tables as Kafka's newer tools print them: columns separated by a tab, padded to the widest value."""

import sys
from collections.abc import Iterable, Sequence


def print_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    lines = [list(header), *([str(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        padded = [f"{value:<{width}}" for value, width in zip(line, widths, strict=True)]
        sys.stdout.write("\t".join(padded) + "\t\n")
