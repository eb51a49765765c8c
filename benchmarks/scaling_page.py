"""The page docs/scaling.md and its pictures, from ``benchmarks/results/scaling.json``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullLocator

Json = Mapping[str, Any]

DOCS: Final = Path(__file__).resolve().parents[1] / "docs"
LEAST_PERCENT: Final = 0.1
"""Costs below this are drawn at the lower edge: the clock and the machine are not better than that."""
THEMES: Final = {
    "light": {"paper": "#ffffff", "ink": "#0f172a", "grey": "#64748b", "faint": "#e2e8f0"},
    "dark": {"paper": "#0d1117", "ink": "#e6edf3", "grey": "#9aa4b2", "faint": "#2a313c"},
}
_STYLES: Final[Mapping[str, tuple[str, str, str, float]]] = {
    "default": ("#2563eb", "-", "o", 2.6),
    "every_step": ("#2563eb", "--", "o", 1.6),
    "torch_profiler_scheduled": ("#d97706", "--", "s", 1.6),
    "torch_profiler": ("#d97706", "-", "s", 1.6),
    "floor_both": ("#0d9488", "-", "^", 1.6),
    "sync_timers": ("#0d9488", ":", "^", 1.6),
}
"""Colour, line, marker and width of each variant; both themes have them."""


def write_page(results: Json, docs: Path = DOCS) -> None:
    """Write the page and its pictures."""
    for theme in THEMES:
        draw(results, docs / "pictures" / f"scaling-{theme}.png", theme)
    (docs / "scaling.md").write_text("\n".join(page(results)) + "\n", encoding="utf-8")


def page(results: Json) -> list[str]:
    """Return the lines of the page."""
    computer = results["machine"]
    modules, lengths = results["modules"], results["lengths"]
    worst = max(point["costs"]["default"] for point in (*modules, *lengths))
    seconds = f"{results['seconds_of_default']:g}"
    where = f"{computer['cpu']}, {computer['usable_cores']} cores, torch {computer['torch']}, {computer['date'][:10]}"
    alone = lengths[0]["modules"] if lengths else 0
    return [
        "# What does a profiler cost, by number of modules and length of step?",
        "",
        f"autoprof by default added at most {_percent(worst)} to any of the runs below, each {seconds} s long.",
        "",
        "<picture>",
        '<source media="(prefers-color-scheme: dark)" srcset="pictures/scaling-dark.png">',
        '<img alt="Added time in per cent of the step, by number of modules and by length of step"'
        ' src="pictures/scaling-light.png">',
        "</picture>",
        "",
        f"`python -m benchmarks.scaling` writes this page. It took {results['seconds'] / 60:.0f} minutes",
        f"({where}).",
        "",
        "## How does the cost grow with the number of modules?",
        "",
        "The model is a chain of layers `Linear(16, 16)`, batch 8, forward and backward. It is the worst case: a",
        "layer computes for less time than a hook takes.",
        "",
        *_table(results, modules, "modules, bare step", lambda at: f"{at['modules']:,}, {_length(at['step_s'])}"),
        "",
        *_short_runs(modules),
        "## How does the cost change with the length of a step?",
        "",
        f"Each step has {alone} such layers, and then a loop that reads the clock until the step has its length.",
        "",
        *_table(results, lengths, "bare step", lambda point: _length(point["step_s"])),
        "",
        "## How is it measured?",
        "",
        "- A cell is the added time in per cent of the bare step. Below 0.1 % it cannot be distinguished from none; a",
        "  negative one is noise of the machine.",
        "- *autoprof, by default* is `autoprof.instrument(model)` with all its sinks, from its first step on for",
        f"  {seconds} s, in a process of its own. The first steps, recorded at any cost, are in",
        "  its cost. A bare model takes turns with it, in pauses of the session. In one process with the others, the",
        "  run paid for them: the garbage collector took 0.2 s for objects that `torch.profiler` had left behind.",
        "- All others take turns in one process, each with a model of its own; a cell is the median of three to five",
        "  turns. A turn has as many steps as the bare model takes in 0.3 s, but at least four, or two where a bare",
        "  step takes 0.15 s or more.",
        "- *torch.profiler, 3 of 9 steps* has the schedule of PyTorch's recipe, `wait=5, warmup=1, active=3`, and",
        "  writes each trace. *Always recording* writes none: the export of its trace at the end is not in the cell.",
        "- *Hand-written hooks* read the clock before and after each module and at the autograd nodes around it.",
        "  *`time.time()` pairs* add up the forwards by name. Neither makes statistics, files or a report.",
    ]


def _short_runs(points: Sequence[Json]) -> list[str]:
    """Return the table of the default run's set-up, of its cost by time, and of its end."""
    runs = [point["default"] for point in points if "default" in point]
    if not runs:
        return []
    times = [f"first {round(one['seconds']):g} s" for one in runs[0]["after"][:-1]]
    lines = [
        "## What does a short run cost?",
        "",
        "The first 19 steps are recorded at any cost, later ones as the [budget](overhead.md) affords them. These",
        "are the runs of the table above. Set-up and end are stated beside `overhead`: the first ones of a process",
        "import libraries. Where the run was too short to pay for the count of FLOPs, the end counts them on a copy",
        "of the model without data.",
        "",
        "| " + " | ".join(["modules, bare step", "set-up", *times, "whole run", "end"]) + " |",
        "|---|" + "---|" * (len(times) + 3),
    ]
    for point, run in zip(points, runs, strict=True):
        cells = [f"{_time(one['added_s'])}, {_percent(one['cost'])}" for one in run["after"]]
        cells = [_time(run["opening_s"]), *cells, _time(run["closing_s"])]
        lines.append(f"| {point['modules']:,}, {_length(point['step_s'])} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def _time(seconds: float) -> str:
    return f"{1e3 * seconds:.0f} ms" if seconds < 0.9995 else f"{seconds:.2g} s"


def _table(results: Json, points: Sequence[Json], head: str, label: Any) -> list[str]:
    lines = [
        f"| {head} | " + " | ".join(str(name) for name in results["labels"].values()) + " |",
        "|---|" + "---|" * len(results["labels"]),
    ]
    for point in points:
        costs = (point["costs"][name] for name in results["labels"])
        cells = ("—" if cost is None else _percent(cost) for cost in costs)
        lines.append(f"| {label(point)} | " + " | ".join(cells) + " |")
    for point in points:
        for name, reason in point.get("omitted", {}).items():
            lines += ["", f"—, {label(point)}: *{results['labels'][name]}* is not measured; {reason}."]
    return lines


def _percent(fraction: float) -> str:
    percent = 100 * fraction
    return f"{percent:.2f} %" if abs(percent) < 9.995 else f"{percent:.0f} %"


def _length(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms" if seconds < 0.9995 else f"{seconds:.2g} s"


def draw(results: Json, path: Path, theme: str) -> None:
    """Draw both panels on paper of this theme."""
    colours = THEMES[theme]
    with plt.rc_context({"font.family": "DejaVu Sans", "font.size": 9.5, "text.color": colours["ink"]}):
        figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 5.0), sharey=True)
        figure.set_facecolor(colours["paper"])
        _panel(left, results, results["modules"], lambda point: point["modules"], colours)
        _panel(right, results, results["lengths"], lambda point: 1e3 * point["step_s"], colours)
        left.set_xlabel("modules: layers Linear(16, 16), in a row", color=colours["grey"])
        right.set_xlabel(f"length of a step with {results['lengths'][0]['modules']} modules", color=colours["grey"])
        left.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        right.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _tick_ms(value)))
        left.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} %" if value != 1 else "budget 1 %"))
        figure.text(0.012, 0.965, "Time that a profiler adds to a step", weight="bold", fontsize=12, va="center")
        figure.text(
            0.012, 0.92, "in per cent of the bare step, on logarithmic axes", color=colours["grey"], va="center"
        )
        figure.subplots_adjust(left=0.085, right=0.988, top=0.87, bottom=0.24, wspace=0.06)
        figure.legend(
            *left.get_legend_handles_labels(), loc="lower left", bbox_to_anchor=(0.06, 0.005), ncols=3,
            frameon=False, fontsize=9, handlelength=3.2, columnspacing=2.2, labelcolor=colours["ink"],
        )  # fmt: skip
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=120, facecolor=colours["paper"])
        plt.close(figure)


def _tick_ms(value: float) -> str:
    return f"{value / 1000:g} s" if value >= 1000 else f"{value:g} ms"


def _panel(axes: Axes, results: Json, points: Sequence[Json], place: Any, colours: Mapping[str, str]) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_facecolor(colours["paper"])
    axes.axhline(1.0, color=colours["grey"], linewidth=0.9, zorder=1)
    for name, label in results["labels"].items():
        colour, line, marker, width = _STYLES[name]
        measured = [point for point in points if point["costs"][name] is not None]
        costs = [max(100 * point["costs"][name], LEAST_PERCENT) for point in measured]
        axes.plot(
            [place(point) for point in measured], costs, line, color=colour, marker=marker, markersize=4.5,
            linewidth=width, label=label, clip_on=False, zorder=4 if name == "default" else 3,
        )  # fmt: skip
    axes.set_ylim(bottom=LEAST_PERCENT)
    axes.grid(color=colours["faint"], linewidth=0.8)
    axes.set_axisbelow(True)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_locator(NullLocator())
    axes.tick_params(axis="both", which="both", length=0, pad=7, labelcolor=colours["ink"], labelsize=9)
    for side in axes.spines.values():
        side.set_visible(False)
