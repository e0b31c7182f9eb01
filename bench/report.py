"""What is shown: tables of medians with their spread, and of ratios, at the terminal and as Markdown.

Everything is computed here from the stored samples; a table cannot know more than the JSON beside it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from bench.measure import Spread, ratio_of, spread_of
from bench.runner import LIMIT, Run
from bench.workloads import FIGURES, Figure

WIDTH = 200
OURS = "odradek"


@dataclass(frozen=True)
class Row:
    workload: str
    figure: str
    title: str
    cells: dict[str, str]


def number_text(value: float) -> str:
    """Three digits that matter, thousands with a comma."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def spread_text(spread: Spread) -> str:
    return f"{number_text(spread.median)} ±{spread.percent:.0f}%"


def cell_text(run: Run, system: str, workload: str, name: str, figure: Figure) -> str:
    """The median, how far rounds lay apart and, for a rate, the CPU of the server."""
    values = run.values(system, workload, name)
    if not values:
        return ""
    text = spread_text(spread_of(list(values.values())))
    if figure.cpu is None:
        return text
    user, kernel = (spread_of(list(run.values(system, workload, key).values())) for key in figure.cpu[:2])
    return f"{text}\n{number_text(user.median)} + {number_text(kernel.median)} {figure.cpu[2]}"


def columns(run: Run) -> list[str]:
    return [LIMIT, *run.systems]


def rows(run: Run) -> list[Row]:
    """One for every number of every workload that was measured somewhere."""
    found = []
    for workload, title in {**run.workloads, "fdatasync": "Append and fdatasync"}.items():
        for name, figure in FIGURES.items():
            cells = {system: cell_text(run, system, workload, name, figure) for system in columns(run)}
            if any(cells.values()):
                unit = f", {figure.unit}" if figure.unit else ""
                found.append(Row(workload, name, f"{title}: {figure.title}{unit}", cells))
    return found


def ratio_rows(run: Run, ours: str) -> list[Row]:
    """Ours divided by each other system, wherever both were measured."""
    found = []
    for row in rows(run):
        cells = {}
        for system in run.systems:
            mine, theirs = (run.values(each, row.workload, row.figure) for each in (ours, system))
            if system != ours and mine and theirs and all(theirs.values()):
                ratio = ratio_of(mine, theirs)
                cells[system] = f"{ratio.median:.2f} ({ratio.low:.2f}–{ratio.high:.2f})"
        if cells:
            wish = "more is better" if FIGURES[row.figure].more_is_better else "less is better"
            found.append(Row(row.workload, row.figure, f"{row.title} ({wish})", cells))
    return found


def title_of(run: Run, system: str) -> str:
    if system == LIMIT:
        return "The machine itself"
    facts = run.systems[system]
    return f"{facts['title']} {facts['version']}\n{facts['durability']}"


def tables(run: Run) -> list[tuple[str, list[str], list[Row]]]:
    """Heading, systems that are its columns, rows."""
    parts = [
        ("Medians ± half their spread; server CPU (user + kernel) below each rate", columns(run), rows(run))
    ]
    for ours in run.systems:
        others = [system for system in run.systems if not system.startswith(OURS)]
        ratios = ratio_rows(run, ours) if ours.startswith(OURS) and others else []
        if ratios:
            parts.append((f"{run.systems[ours]['title']} divided by …", others, ratios))
    return parts


def facts_text(run: Run) -> str:
    machine = ", ".join(f"{name} {value}" for name, value in run.machine.items())
    scale = (
        "" if run.scale == 1 else f" A sanity run at {run.scale:g} of the work: these numbers mean nothing."
    )
    return f"{machine}; rounds {run.rounds}.{scale}"


def notes(run: Run) -> Iterable[str]:
    for name, reason in run.left_out.items():
        yield f"left out: {name}: {reason}"
    for failure in run.failures:
        yield "failed: {system} {workload}, round {round}: {reason}".format(**failure)


def print_report(run: Run, console: Console) -> None:
    console.print(facts_text(run))
    for heading, systems, body in tables(run):
        table = Table(title=heading, box=box.SIMPLE_HEAD, title_justify="left", show_lines=False)
        table.add_column("")
        for system in systems:
            table.add_column(title_of(run, system), justify="right", no_wrap=False)
        previous = None
        for row in body:
            if previous not in (None, row.workload):
                table.add_section()
            previous = row.workload
            table.add_row(row.title, *(row.cells.get(system, "") for system in systems))
        console.print(table)
    for note in notes(run):
        console.print(note, style="yellow", markup=False)


def markdown(run: Run) -> str:
    """The same tables for a document."""
    lines = [facts_text(run), ""]
    for heading, systems, body in tables(run):
        titles = [title_of(run, system).replace("\n", "<br>") for system in systems]
        lines += [f"**{heading}**", "", "| | " + " | ".join(titles) + " |", "|---" * (len(titles) + 1) + "|"]
        for row in body:
            cells = [row.cells.get(system, "").replace("\n", "<br>") for system in systems]
            lines.append(f"| {row.title} | " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join([*lines, *(f"- {note}" for note in notes(run)), ""])


def store_markdown(run: Run, directory: Path) -> Path:
    path = directory / f"{run.kind}.md"
    path.write_text(markdown(run))
    return path
