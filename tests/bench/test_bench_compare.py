"""The table of two versions: medians, spreads, and quotients round by round."""

import io

from rich.console import Console

from bench.compare import table_of


def test_versions_are_compared_round_by_round() -> None:
    rounds = [[{"start_ms": 200.0}, {"start_ms": 220.0}], [{"start_ms": 240.0}, {"start_ms": 216.0}]]
    out = io.StringIO()
    Console(file=out, width=200).print(table_of(rounds))
    (row,) = [line for line in out.getvalue().splitlines() if "start" in line]
    cells = [cell.strip() for cell in row.split("│")]
    assert cells[1:5] == [
        "start, CPU until it announces itself",
        "220.00 (200.00 to 240.00) ms",
        "218.00 (216.00 to 220.00) ms",
        "0.99 (0.90 to 1.10)",
    ]
