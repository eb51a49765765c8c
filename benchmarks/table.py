"""The one table, as plain text that a pipe and a narrow terminal can take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from .stats import beyond, difference, median, ratio, rounds_of
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
    for workload in results["workloads"].values():
        lines += ["", *workload_lines(workload)]
    if results.get("further"):
        lines += ["", *further_lines(results["further"])]
    if results.get("steady"):
        lines += ["", *steady_lines(results["steady"])]
    if results.get("micro"):
        lines += ["", *micro_lines(results["micro"])]
    if results.get("worst"):
        lines += ["", *worst_lines(results["worst"])]
    if results.get("memory"):
        lines += ["", *memory_lines(results["memory"])]
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
        f"perf_counter_ns {machine['clock_ns']:.0f} ns, marks in {machine.get('marks', 'Python')}{load}",
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


def further_lines(further: Json) -> list[str]:
    """Render the cost of one more module."""
    layers, blocks = further["layers"], further["blocks"]
    rows: list[Row] = []
    for name, label in further["labels"].items():
        if name in blocks["short"] and name in blocks["long"]:
            mine, bare = beyond(blocks["long"], blocks["short"], name, "bare")
            cost = difference(mine, bare, per=1e3 * (layers["long"] - layers["short"]))
            rows.append((label, f"{cost.value:.2f}", f"[{cost.low:.2f}, {cost.high:.2f}]"))
    header = ("a further module", "µs", "95 %")
    return [f"chains of {layers['short']} and of {layers['long']} tiny layers, interleaved", *columns(header, rows)]


def steady_lines(steady: Json) -> list[str]:
    """Render the cost of a module in the long run."""
    rows: list[Row] = []
    for name, label in steady["labels"].items():
        mine, bare = rounds_of(steady["blocks"], name, "bare")
        cost = difference(mine, bare, per=1e3 * steady["modules"])
        rows.append((label, f"{cost.value:.2f}", f"[{cost.low:.2f}, {cost.high:.2f}]"))
    title = f"in the long run, every step recorded: {steady['rounds']} rounds of {steady['steps']} steps"
    return [title, *columns(("in the long run", "µs/module", "95 %"), rows)]


def micro_lines(micro: Json) -> list[str]:
    """Render the single costs."""
    user = micro["user"]
    rows: list[Row] = [
        (name, f"{user[f'{key}_off_ns'] / 1e3:.2f}", f"{user[f'{key}_on_ns'] / 1e3:.2f}")
        for name, key in (("@timed call", "timed"), ("span", "span"), ("log_timing", "log_timing"))
    ]
    lines = columns(("single calls, µs", "no session", "session"), rows)
    sizes = list(micro["steps"])
    header = ("per step, µs", *(f"{micro['steps'][size]['spans']} spans" for size in sizes))
    names = {
        "planned": "session.step(), sequence known",
        "first_sight": "session.step(), first sight",
        "aggregate": "of it: statistics",
    }
    rows = [
        (text, *(f"{micro['steps'][size][f'{key}_ns'] / 1e3:.1f}" for size in sizes)) for key, text in names.items()
    ]
    for sink, costs in micro.get("sinks", {}).items():
        rows.append((f"sink {sink}: mean", *(f"{costs[size]['mean_ns'] / 1e3:.1f}" for size in sizes)))
        rows.append((f"sink {sink}: longest", *(f"{costs[size]['max_ns'] / 1e3:.1f}" for size in sizes)))
    lines += ["", *columns(header, rows)]
    imports = micro["imports"]
    setups = (
        f"{name} ({cost['modules']} modules) {cost['instrument_ns'] / 1e6:.1f} / {cost['close_ns'] / 1e6:.1f} ms"
        for name, cost in micro["setup"].items()
    )
    lines += ["", "instrument / close: " + "; ".join(setups)]
    lines.append(f"import torch {imports['torch_s']:.2f} s, import autoprof on top {imports['autoprof_s']:.3f} s")
    return lines


def worst_lines(worst: Json) -> list[str]:
    """Render the tails of the 20,000 tiny steps."""
    rows: list[Row] = []
    for name in ("bare", "session", "sinks"):
        lane = worst[name]
        middle = lane["median_ns"]
        rows.append(
            (
                name,
                f"{middle / 1e6:.2f}",
                f"{lane['p999_ns'] / middle:.1f}×",
                f"{lane['max_ns'] / middle:.1f}×",
                f"{lane['slow']} ({100 * lane['slow'] / lane['steps']:.2f} %)",
                str(lane["slow_own"]),
                f"{lane['own_max_ns'] / 1e6:.2f}",
                "/".join(map(str, lane["collections"])),
            )
        )
    header = ("tiny steps", "median ms", "p99.9", "max", "> 5× median", "its doing", "own max ms", "gc 0/1/2")
    return [f"{worst['bare']['steps']:,} steps of each lane, interleaved", *columns(header, rows)]


def memory_lines(memory: Json) -> list[str]:
    """Render the memory of a long run."""
    rows: list[Row] = []
    for path, readings in memory.items():
        for reading in readings:
            traced = reading["traced_bytes"]
            rows.append(
                (
                    path.replace("_traced", ", tracemalloc"),
                    f"{reading['steps']:,}",
                    f"{reading['rss_bytes'] / (1 << 20):.2f}",
                    f"{reading['objects']:,}",
                    "—" if traced is None else f"{traced / 1024:,.0f}",
                    f"{reading['seconds']:.1f}",
                )
            )
    return columns(("long runs", "steps", "RSS MiB", "objects", "traced KiB", "s"), rows)


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
