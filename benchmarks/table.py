"""The one table, as plain text that a pipe and a narrow terminal can take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from .stats import difference, median, ratio, rounds_of
from .verdict import Bound

Json = Mapping[str, Any]
Row = Sequence[str]
WIDTH: Final = 100
_CLOCK_WORDS: Final = {
    "wall": "Time by the wall clock.",
    "cpu": "Time of the training thread on the processor: the machine is shared, and the wall clock would drown.",
}


def columns(header: Row, rows: Sequence[Row], *, left: int = 1) -> list[str]:
    """Align rows under a header; the first ``left`` columns to the left, the others to the right."""
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]

    def line(row: Row) -> str:
        cells = (
            cell.ljust(w) if i < left else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        return "  ".join(cells).rstrip()

    return [line(header), "─" * min(WIDTH, sum(widths) + 2 * (len(widths) - 1)), *map(line, rows)]


def render(results: Json, bounds: Sequence[Bound]) -> str:
    """Render all results of a run."""
    lines = machine_lines(results)
    if results.get("always_on"):
        lines += ["", *results["always_on"]["tables"]]
    for workload in results["workloads"].values():
        lines += ["", *workload_lines(workload)]
    if results.get("micro"):
        lines += ["", *micro_lines(results["micro"])]
    lines += ["", *verdict_lines(bounds)]
    return "\n".join(lines)


def machine_lines(results: Json) -> list[str]:
    """Describe the machine and how to read the tables."""
    machine = results["machine"]
    gpu = f", {machine['gpu']}" if machine["gpu"] else ""
    load = f", load {machine['load'][0]:.1f}" if machine["load"] else ""
    return [
        f"{machine['cpu']}, {machine['usable_cores']} cores{gpu}, {machine['system']}, {machine['date']}",
        f"Python {machine['python']}, torch {machine['torch']}, {machine['threads']} thread(s), "
        f"perf_counter_ns {machine['clock_ns']:.0f} ns{load}",
        _CLOCK_WORDS[results["options"].get("clock", "wall")],
        "Medians over rounds, paired with the bare block of the same round; [95 % interval, bootstrap].",
    ]


def workload_lines(workload: Json) -> list[str]:
    """Render the variants of one workload."""
    blocks, errors = workload["blocks"], workload["errors"]
    modules = workload["modules"]
    rows: list[Row] = []
    for name, label in workload["labels"].items():
        if name in errors:
            rows.append((label, "—", errors[name][:40], "", "", ""))
        elif name in blocks:
            mine, bare = rounds_of(blocks, name, "bare")
            rows.append(_variant_row(label, mine, bare, modules))
    header = ("variant", "step ms", "× bare", "95 %", "µs/module", "95 %")
    counts = f"{modules} modules, {workload['steps_per_block']} steps a block, {workload['rounds']} rounds"
    return [workload["title"], counts, *columns(header, rows)]


def _variant_row(label: str, mine: Sequence[float], bare: Sequence[float], modules: int) -> Row:
    middle, times, cost = median(mine), ratio(mine, bare), difference(mine, bare, per=1e3 * modules)
    return (
        label,
        f"{middle.value / 1e6:.3f}",
        f"{times.value:.3f}",
        f"[{times.low:.3f}, {times.high:.3f}]",
        f"{cost.value:.2f}",
        f"[{cost.low:.2f}, {cost.high:.2f}]",
    )


def micro_lines(micro: Json) -> list[str]:
    """Render the single costs."""
    user = micro["user"]
    rows: list[Row] = [
        (name, f"{user[f'{key}_off_ns'] / 1e3:.2f}", f"{user[f'{key}_on_ns'] / 1e3:.2f}")
        for name, key in (("@timed call", "timed"), ("span", "span"), ("log_timing", "log_timing"))
    ]
    lines = columns(("single calls, µs", "no session", "session"), rows)
    imports = micro["imports"]
    setups = (
        f"{name} ({cost['modules']} modules) {cost['instrument_ns'] / 1e6:.1f} / {cost['close_ns'] / 1e6:.1f} ms"
        for name, cost in micro["setup"].items()
    )
    lines += ["", "instrument / close: " + "; ".join(setups)]
    lines.append(f"import torch {imports['torch_s']:.2f} s, import autoprof on top {imports['autoprof_s']:.3f} s")
    return lines


def verdict_lines(bounds: Sequence[Bound]) -> list[str]:
    """Render the bounds. ``~`` marks an inconclusive verdict."""
    words = {True: "pass", False: "FAIL", None: "—"}
    rows = [
        (bound.subject, bound.bound, bound.measured, words[bound.passed] + ("" if bound.clear else " ~"))
        for bound in bounds
    ]
    notes = (
        ["~ inconclusive: the interval reaches over the bound, or the rounds were few"]
        if any(not bound.clear for bound in bounds)
        else []
    )
    return [*columns(("bound of", "bound", "measured", ""), rows, left=4), *notes]
