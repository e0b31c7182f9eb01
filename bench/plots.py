"""Pictures of a run: bars side by side for systems, curves for growth.

Bars begin at zero and whiskers span all rounds. Odradek has the strong colours, everyone else is grey-blue;
an arrow in each title says which way is better. Panels without a number are left out.
"""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture
from matplotlib.layout_engine import ConstrainedLayoutEngine

from bench.measure import spread_of
from bench.runner import LIMIT, Run
from bench.workloads import FIGURES

DOTS_PER_INCH = 130
TITLE_WIDTH = 38  # characters: a longer line would run into the next panel
PANELS = [
    ("bulk-1k", "produce_mb_s"),
    ("bulk-1k", "consume_mb_s"),
    ("one-message", "requests_s"),
    ("latency", "p50_us"),
    ("latency", "p99_us"),
    ("transactions", "transactions_s"),
    ("transactions", "p50_us"),
    ("transactions-16", "transactions_s"),
    ("bulk-transactions", "produce_mb_s"),
    ("end-to-end", "p99_us"),
    ("start", "start_s"),
    ("memory", "memory_mb"),
    ("cold-read", "consume_mb_s"),
    ("idle-1", "idle_cpu_ms_s"),
    ("idle-10000", "idle_cpu_ms_s"),
    ("reopen-1000", "start_s"),
    ("replicated", "produce_mb_s"),
    ("replicated", "consume_mb_s"),
    ("replicated-one", "requests_s"),
    ("replicated-latency", "p50_us"),
    ("replicated-latency", "p99_us"),
]
GROWTH_PANELS = {
    "partitions": (
        *("produce_mb_s", "consume_mb_s", "requests_s", "p50_us", "p99_us"),
        *("start_s", "memory_mb", "descriptors", "idle_cpu_ms_s"),
    ),
    "connections": ("requests_s", "p50_us", "p99_us", "memory_mb"),
}
COLOURS = {
    LIMIT: "#d9d9d9",
    "odradek": "#c8502d",
    "odradek-unsynced": "#e8a33d",
    "odradek-cluster": "#c8502d",
    "odradek-cluster-unsynced": "#e8a33d",
    "kafka": "#2f4b6e",
    "kafka-synced": "#5e7ba0",
    "kafka-3": "#2f4b6e",
    "nats": "#7f9db9",
    "rabbitmq": "#9fb5c9",
    "redis": "#b8c9d6",
    "redis-synced": "#8fa9bd",
}
STYLE: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
}


def title_of(run: Run, system: str) -> str:
    return "The machine itself" if system == LIMIT else str(run.systems[system]["title"])


def heading(title: str, figure: str) -> str:
    meaning = FIGURES[figure]
    unit = f", {meaning.unit}" if meaning.unit else ""
    measured = f"{meaning.title}{unit} {'↑' if meaning.more_is_better else '↓'}"
    whole = f"{title}: {measured}"
    if len(whole) > TITLE_WIDTH > len(title):
        return f"{title}:\n{measured}"
    return "\n".join(textwrap.wrap(whole, TITLE_WIDTH))


def draw(run: Run, directory: Path) -> Path:
    with plt.rc_context(STYLE):
        picture = draw_growth(run) if run.kind == "growth" else draw_bars(run)
        picture.text(0.01, 0.005, footer(run), fontsize=7, color="#666666")
        path = directory / f"{run.name}.png"
        picture.savefig(path, dpi=DOTS_PER_INCH, facecolor="white")
        plt.close(picture)
    return path


def footer(run: Run) -> str:
    facts = run.machine
    warning = "" if run.scale == 1 else "  ·  a sanity run: these numbers mean nothing"
    parts = (facts.get("date"), facts.get("cpu"), f"{facts.get('cores')} cores", f"rounds: {run.rounds}")
    return "  ·  ".join(str(part) for part in parts) + "  ·  ↑ more is better, ↓ less is better" + warning


def grid(count: int, row_height: float, across: int = 3) -> tuple[Picture, list[Axes]]:
    down = -(-count // across)
    picture, axes = plt.subplots(
        down,
        across,
        figsize=(4.4 * across, row_height * down + 0.5),
        layout=ConstrainedLayoutEngine(rect=(0, 0.03, 1, 0.96)),
        squeeze=False,
    )
    flat = list(axes.flat)
    for unused in flat[count:]:
        unused.set_visible(False)
    return picture, flat[:count]


def draw_bars(run: Run) -> Picture:
    systems = [LIMIT, *run.systems]
    panels = [panel for panel in PANELS if any(run.values(system, *panel) for system in run.systems)]
    picture, axes = grid(max(1, len(panels)), 0.9 + 0.22 * len(systems))
    for place, (workload, figure) in zip(axes, panels, strict=False):
        place.set_title(heading(run.workloads[workload], figure))
        bars(place, run, systems, workload, figure)
    return picture


def bars(axes: Axes, run: Run, systems: Sequence[str], workload: str, figure: str) -> None:
    """Horizontal, the first system on top, each with its number at its end."""
    measured = [system for system in systems if run.values(system, workload, figure)]
    for place, system in enumerate(reversed(measured)):
        spread = spread_of(list(run.values(system, workload, figure).values()))
        reach = [[spread.median - spread.low], [spread.high - spread.median]]
        axes.barh(place, spread.median, color=COLOURS.get(system, "#999999"), height=0.72)
        axes.errorbar(spread.median, place, xerr=reach, color="#333333", linewidth=0.8, capsize=2)
        text = f" {spread.median:,.0f}" if spread.median >= 10 else f" {spread.median:.2f}"
        axes.text(spread.high, place, text, va="center", fontsize=8)
    axes.set_yticks(range(len(measured)), [title_of(run, system) for system in reversed(measured)])
    axes.tick_params(left=False)
    axes.margins(x=0.18)
    axes.set_xlim(left=0)
    axes.xaxis.set_visible(False)  # every bar has its number
    axes.spines["bottom"].set_visible(False)


def draw_growth(run: Run) -> Picture:
    panels = [(kind, figure) for kind, figures in GROWTH_PANELS.items() for figure in figures]
    panels = [panel for panel in panels if any(curve(run, system, *panel) for system in run.systems)]
    picture, axes = grid(max(1, len(panels)), 2.4)
    for place, (kind, figure) in zip(axes, panels, strict=False):
        place.set_title(heading(f"By {kind}", figure))
        for system in run.systems:
            line(place, run, system, curve(run, system, kind, figure))
        place.set_xscale("log")
        place.xaxis.set_major_formatter("{x:,.0f}")
        place.yaxis.set_major_formatter("{x:,.6g}")
        place.margins(y=0.15)
        place.set_ylim(bottom=0)
        place.grid(axis="y", color="#e6e6e6", linewidth=0.6)
    if panels:
        axes[0].legend(frameon=False, fontsize=8)
    return picture


def curve(run: Run, system: str, kind: str, figure: str) -> list[tuple[int, float, float, float]]:
    """Size, median, lowest and highest, by size."""
    points = []
    for workload in run.workloads:
        name, _, size = workload.rpartition("-")
        if name == kind and (values := run.values(system, workload, figure)):
            points.append((int(size), *spread_of(list(values.values()))))
    return sorted(points)


def line(axes: Axes, run: Run, system: str, points: Sequence[tuple[int, float, float, float]]) -> None:
    if points:
        sizes, medians, lows, highs = zip(*points, strict=True)
        colour = COLOURS.get(system, "#999999")
        axes.plot(sizes, medians, marker="o", markersize=3.5, color=colour, label=title_of(run, system))
        axes.fill_between(sizes, lows, highs, color=colour, alpha=0.15, linewidth=0)
