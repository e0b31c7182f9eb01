"""The tables of docs/PERFORMANCE.md and README.md from a stored run: `python -m bench show NAME --markdown`.

Odradek divided by Apache Kafka, for the lines below that the run has, with spreads for one and rounded for the other;
then the figures themselves. Nothing is copied by hand, so a table cannot differ from its run.
"""

from dataclasses import dataclass

from bench.measure import Spread, ratio_of
from bench.report import OURS, cell_text, facts_text, notes, paired_spread
from bench.runner import Run
from bench.warmth import Warming
from bench.workloads import FIGURES

KAFKA = "kafka"
PAIRED_WORKLOAD = "bulk-transactions"


@dataclass(frozen=True)
class Line:
    """A line of a table: one figure, or two that are read together."""

    title: str
    workload: str
    figures: tuple[str, ...]
    budget: str = "–"
    in_readme: bool = False


BOTH_WAYS = ("produce_mb_s", "consume_mb_s")
MEDIAN_AND_P99 = ("p50_us", "p99_us")
LATENCY_BUDGET = "≤ 1.5 synced, ≤ 0.5 not"
LINES = [
    Line("bulk produce / consume, 1 KB", "bulk-1k", BOTH_WAYS, "≥ 1.0", True),
    Line("bulk produce / consume, 100 B", "bulk-100b", BOTH_WAYS, "≥ 1.0"),
    Line("bulk produce / consume, 10 KB", "bulk-10k", BOTH_WAYS, "≥ 1.0"),
    Line("bulk produce / consume, 1 KB, acks=1", "bulk-acks1", BOTH_WAYS, "≥ 1.0"),
    Line("bulk produce / consume, lz4", "bulk-lz4", BOTH_WAYS, "≥ 1.0"),
    Line("bulk produce / consume, zstd", "bulk-zstd", BOTH_WAYS, "≥ 1.0"),
    Line("bulk produce / consume, 16 partitions", "bulk-16p", BOTH_WAYS, "≥ 1.0", True),
    Line("bulk produce / consume, 1,000 partitions", "bulk-1000p", BOTH_WAYS, "≥ 1.0"),
    Line("catch-up from disk", "cold-read", ("consume_mb_s",), "≥ 1.0", True),
    Line("one-message requests a second", "one-message", ("requests_s",), "≥ 3", True),
    Line("time of a lone request, p50 / p99", "latency", MEDIAN_AND_P99, LATENCY_BUDGET, True),
    Line(
        "transactions a second, 16 producers", "transactions-16", ("transactions_s",), "≥ 3 not synced", True
    ),
    Line("transactions a second, one producer", "transactions", ("transactions_s",), "≥ 3 not synced", True),
    Line(
        "begin, send, commit, one producer, p50 / p99",
        "transactions",
        MEDIAN_AND_P99,
        "p50 ≤ 1.0 not synced",
        True,
    ),
    Line("bulk produce / consume in transactions, 1 KB", "bulk-transactions", BOTH_WAYS, "–", True),
    Line("end to end at 1,000/s, p50 / p99", "end-to-end", MEDIAN_AND_P99, "–", True),
    Line("latency beside 1,000 idle consumers, p50 / p99", "idle-consumers", MEDIAN_AND_P99),
    Line("CPU of 1,000 idle consumers", "idle-consumers", ("idle_cpu_ms_s",)),
    Line("start to the first accepted message", "start", ("start_s",), "0.5 s", True),
    Line("create 1,000 partitions / start with them", "reopen-1000", ("create_s", "start_s")),
    Line("memory, idle", "memory", ("memory_mb",), "60 MB", True),
    Line("memory after all workloads", "loaded-memory", ("memory_mb",), "–", True),
    Line("three nodes: bulk produce / consume, 1 KB", "replicated", BOTH_WAYS, "produce ≥ 1.5", True),
    Line("three nodes: one-message requests a second", "replicated-one", ("requests_s",), "≥ 3", True),
    Line(
        "three nodes: time of a lone request, p50 / p99",
        "replicated-latency",
        MEDIAN_AND_P99,
        "p50 ≤ 1.0 not synced",
        True,
    ),
]


def markdown(run: Run) -> str:
    ours = [name for name in run.systems if name.startswith(OURS)]
    beside = next((name for name in run.systems if name.startswith(KAFKA)), "")
    parts = [facts_text(run), *notes(run), warm_up_text(run)]
    if beside:
        parts += [
            "For docs/PERFORMANCE.md:",
            ratio_table(run, ours, beside, in_readme=False),
            "For README.md:",
            ratio_table(run, ours, beside, in_readme=True),
        ]
    parts += ["The figures themselves:", figure_table(run), paired_text(run)]
    return "\n\n".join(part for part in parts if part) + "\n"


def table(header: list[str], body: list[list[str]]) -> str:
    first, *rows = ("| " + " | ".join(cells) + " |" for cells in (header, *body))
    return "\n".join([first, "|---" * len(header) + "|", *rows])


def ratio_table(run: Run, ours: list[str], beside: str, in_readme: bool) -> str:
    arrows = " (↑ more is better, ↓ less is better)"
    header = [f"Odradek ÷ {run.systems[beside]['title']}{arrows}"]
    header += [run.systems[name]["durability"] for name in ours]
    body = []
    for line in LINES:
        if in_readme and not line.in_readme:
            continue
        cells = [ratios_text(run, line, name, beside, is_short=in_readme) for name in ours]
        if any(cells):
            arrow = "↑" if FIGURES[line.figures[0]].more_is_better else "↓"
            body.append([f"{arrow} {line.title}", *cells, *([] if in_readme else [line.budget])])
    return table(header if in_readme else [*header, "budget"], body)


def ratios_text(run: Run, line: Line, ours: str, beside: str, is_short: bool) -> str:
    texts = []
    for figure in line.figures:
        mine, theirs = (run.values(system, line.workload, figure) for system in (ours, beside))
        if not (mine and theirs and all(theirs.values())):
            return ""
        texts.append(ratio_text(ratio_of(mine, theirs), is_short))
    return " / ".join(texts)


def ratio_text(ratio: Spread, is_short: bool) -> str:
    if is_short:
        return f"{ratio.median:.1f}" if ratio.median >= 0.2 else f"{ratio.median:.2f}"
    return f"{ratio.median:.2f} ({ratio.low:.2f}–{ratio.high:.2f})"


def figure_table(run: Run) -> str:
    """Medians with their spread and the CPU of the server, of the figures in `LINES`."""
    header = ["", *(f"{facts['title']}, {facts['durability']}" for facts in run.systems.values())]
    body = []
    for line in LINES:
        for name in line.figures:
            figure = FIGURES[name]
            cells = [cell_text(run, system, line.workload, name, figure) for system in run.systems]
            if any(cells):
                title = f"{run.workloads[line.workload]}: {figure.title}, {figure.unit}"
                body.append([title, *(cell.replace("\n", "<br>") for cell in cells)])
    return table(header, body)


def paired_text(run: Run) -> str:
    """Loads in transactions beside the same loads without, on the same server in turn: a line for each comparison."""
    lines = []
    for name in (name for name, figure in FIGURES.items() if figure.paired):
        found = [
            f"{facts['title']}, {facts['durability']} {spread_text(run, system, name)}"
            for system, facts in run.systems.items()
            if run.values(system, PAIRED_WORKLOAD, name)
        ]
        if found:
            lines.append(f"{run.workloads[PAIRED_WORKLOAD]}, {FIGURES[name].title}: {'; '.join(found)}.")
    return "\n".join(lines)


def spread_text(run: Run, system: str, name: str) -> str:
    return ratio_text(paired_spread(run, system, PAIRED_WORKLOAD, name), is_short=False)


def warm_up_text(run: Run) -> str:
    """Say in a sentence which warm-ups never settled."""
    warmings = [Warming(**stored) for stored in run.warmings]
    unsettled = [
        f"{each.workload} on {run.systems[each.system]['title']} (±{each.spread_percent:.0f} %)"
        for each in warmings
        if each.outcome
    ]
    if not warmings:
        return "This run was not warmed up by the rules of docs/PERFORMANCE.md."
    if not unsettled:
        return f"All {len(warmings)} warm-ups settled."
    return f"{len(unsettled)} of {len(warmings)} warm-ups never settled: {', '.join(unsettled)}."
