"""Show tables of medians with their spread, and of ratios, at the terminal and as Markdown.

Everything is computed here from the stored samples; a table cannot know more than the JSON beside it.
"""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from bench.measure import Spread, ratio_of, spread_of
from bench.runner import LIMIT, Run
from bench.warmth import Warming
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
    if figure.paired:
        return spread_text(paired_spread(run, system, workload, name))
    text = spread_text(spread_of(list(values.values())))
    if figure.cpu is None:
        return text
    user, kernel = (spread_of(list(run.values(system, workload, key).values())) for key in figure.cpu[:2])
    return f"{text}\n{number_text(user.median)} + {number_text(kernel.median)} {figure.cpu[2]}"


def paired_spread(run: Run, system: str, workload: str, name: str) -> Spread:
    """The median of the rounds' medians, and the lowest and highest of all pairs."""
    median, low, high = (run.values(system, workload, name + end).values() for end in ("", "_low", "_high"))
    return Spread(statistics.median(median), min(low), max(high))


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
        if FIGURES[row.figure].paired:
            continue
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
    if run.warmings and run.scale == 1:
        parts.append(warm_up_table(run))
    return parts


def facts_text(run: Run) -> str:
    machine = ", ".join(f"{name} {value}" for name, value in run.machine.items())
    scale = (
        "" if run.scale == 1 else f" A sanity run at {run.scale:g} of the work: these numbers mean nothing."
    )
    runtimes = {facts["title"]: facts.get("runtime") for facts in run.systems.values()}
    runs_on = "".join(f" {title} runs on {runtime}." for title, runtime in runtimes.items() if runtime)
    return f"{machine}; rounds {run.rounds}.{runs_on}{scale}"


def warm_up_table(run: Run) -> tuple[str, list[str], list[Row]]:
    """Tabulate what it took until five pieces in a row were equally fast."""
    found: dict[str, Row] = {}
    for warming in [Warming(**stored) for stored in run.warmings]:
        row = found.setdefault(warming.workload, Row(warming.workload, "", warming.workload, {}))
        outcome = f"{warming.outcome}, " if warming.outcome else ""
        row.cells[warming.system] = (
            f"{warming.pieces} × {warming.piece}, {warming.seconds:.0f} s\n"
            f"{outcome}last five ±{warming.spread_percent:.0f}%"
        )
    heading = "Warm-ups; on a Java machine, until five pieces in a row were within 5 % of their median, or to a bound"
    return heading, list(run.systems), list(found.values())


def times_text(run: Run) -> str:
    """Say where the time of the run went."""
    parts = [
        f"{name} {times['warm_up_s']:.0f} + {times['rounds_s']:.0f}" for name, times in run.seconds.items()
    ]
    total = sum(sum(times.values()) for times in run.seconds.values())
    return f"time, warm-up + rounds in s: {', '.join(parts)}; {total / 60:.1f} minutes in all"


def others_text(run: Run) -> str:
    used = spread_of([sample["others_ms_s"] for sample in run.samples if "others_ms_s" in sample])
    return (
        "while a system was measured, all the others together used "
        f"{used.median:.0f} ms of CPU a second (median; {used.high:.0f} at most)"
    )


def notes(run: Run) -> Iterable[str]:
    if any("others_ms_s" in sample for sample in run.samples) and len(run.systems) > 1:
        yield others_text(run)
    if run.seconds:
        yield times_text(run)
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
    path = directory / f"{run.name}.md"
    path.write_text(markdown(run))
    return path
