"""The page of a run on a device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..paired import CLOCKS
from ..stats import difference, ratio
from ..table import Row, figures, interval, percent

Json = Mapping[str, Any]

INTRO = """\
# What does it cost on a GPU, and do the promises hold there?

**Result**: {result}

Variants take turns with bare steps, in blocks until the device has finished. Intervals hold the median with 95 %.
Parts that raised or had no time left are named at the end.
"""


def page(results: Json) -> Iterator[str]:
    """Yield the lines of the page; a part that was not measured is absent, and named at the end."""
    checked, failed = _checks(results), [row for row in _checks(results) if row[2] != "pass"]
    result = f"{len(checked) - len(failed)} of {len(checked)} promises hold"
    if "default" in results:
        recorded = (
            f"{one['recorded']} of {one['steps']} steps of {one['step_ms']:.1f} ms"
            for one in results["default"].values()
        )
        result += f"; recorded with one line: {', '.join(recorded)}"
    yield INTRO.format(result=result)
    for name, workload in results.get("workloads", {}).items():
        yield f"## {workload['title']}"
        yield f"\n{workload['modules']} modules, {workload['steps']} steps a block, {workload['rounds']} rounds.\n"
        header = ("variant", "µs per module", "95 % interval", "processor time")
        yield from (*figures(name, header, _costs(workload)), "")
    sections: tuple[tuple[str, str, Row, Any], ...] = (
        ("default", "How much of a run is recorded with one line?", DEFAULT, _default_rows),
        ("events", "What does an event cost?", ("", "measured"), _event_rows),
        ("device", "What does the device report?", ("", ""), _device_rows),
    )
    for name, title, columns, rows in sections:
        if name in results:
            yield from (f"## {title}", "", *figures(name, columns, rows(results[name])), "")
    if checked:
        yield from ("## Do the promises hold?", "", *figures("promises", ("promise", "measured", ""), checked), "")
    yield from left_out(results)
    seconds = results.get("seconds", {})
    if seconds:
        yield "\nSeconds: " + ", ".join(f"{name} {took:.0f}" for name, took in seconds.items()) + "."


DEFAULT = ("model", "step", "steps recorded", "rows", "overhead", "of processor time", "by the report's own account")


def _costs(workload: Json) -> list[Row]:
    rows: list[Row] = []
    for name, label in workload["labels"].items():
        pairs = workload["pairs"][name]
        if pairs["wall"]["own"]:
            wall, processor = (
                difference(pairs[clock]["own"], pairs[clock]["bare"], per=1e3 * workload["modules"]) for clock in CLOCKS
            )
            rows.append((label, f"{wall.value:.1f}", f"{wall.low:.1f}, {wall.high:.1f}", f"{processor.value:.1f}"))
    return rows


def left_out(results: Json) -> Iterator[str]:
    """Yield a line for each measurement that is missing, with its reason."""
    for name, text in results.get("failed", {}).items():
        yield f"- {name} FAILED: {text.strip().splitlines()[-1]}"
    for workload in results.get("workloads", {}).values():
        name = workload["title"].partition(":")[0]
        for one, error in workload["errors"].items():
            yield f"- {name}, {workload['labels'][one]} FAILED: {error}"
        missing = [
            label
            for one, label in workload["labels"].items()
            if one not in workload["errors"] and not workload["pairs"][one]["wall"]["own"]
        ]
        if missing:
            yield f"- Left out for lack of time: {name}: {'; '.join(missing)}"


def _event_rows(events: Json) -> list[Row]:
    costs, scatter = events["costs"], events["scatter"]
    rows: list[Row] = [
        ("record by hand", f"{costs['record_ns'] / 1e3:.2f} µs"),
        ("reading through the clock", f"{costs['read_ns'] / 1e3:.2f} µs"),
        ("resolving a reading", f"{costs['resolve_ns'] / 1e3:.2f} µs"),
    ]
    for name, label in (("queued", "behind a kernel"), ("idle", "device idle")):
        p50, p95, least = (scatter[f"{name}_{which}_ns"] / 1e3 for which in ("p50", "p95", "least"))
        rows.append((f"two events in a row, {label}", f"{p50:.2f} µs, p95 {p95:.2f}, least {least:.2f}"))
    return rows


def _default_rows(runs: Json) -> list[Row]:
    rows: list[Row] = []
    for name, run in runs.items():
        pairs = run["turns"]["pairs"]
        extra = [interval(percent(ratio(pairs[clock]["own"], pairs[clock]["bare"])), unit=" %") for clock in CLOCKS]
        recorded = f"{run['recorded']} of {run['steps']}"
        own = f"{100 * run['overhead']:.2f} %"
        rows.append((f"{run['title']}, {name}", f"{run['step_ms']:.1f} ms", recorded, run["rows"], *extra, own))
    return rows


def _device_rows(device: Json) -> list[Row]:
    peak, telemetry, capacity = device["peak_tflops"], device["telemetry"], device["capacity_bytes"]
    known = device["no_peak"] if peak is None else ", ".join(f"{kind} {value:g}" for kind, value in peak.items())
    if telemetry is None:
        seen = device["no_telemetry"] or "none for this kind of device"
    else:
        seen = ", ".join(f"{name} {value}" for name, value in telemetry.items() if value is not None)
    return [
        ("memory", "unknown" if capacity is None else f"{capacity / 2**30:.1f} GiB"),
        ("peak TFLOP/s", str(known)),
        ("telemetry", seen),
    ]


def _checks(results: Json) -> list[Row]:
    rows: list[Row] = []
    if "tests" in results:
        rows.append(("tests/gpu", results["tests"]["summary"].strip("= "), _word(results["tests"])))
    for name, check in results.get("never_waits", {}).items():
        seen = check["error"] or (
            f"host {check['host_ns'] / 1e6:.1f} ms (bare {check['bare_ns'] / 1e6:.1f}) "
            f"behind a kernel of {check['device_ns'] / 1e6:.0f} ms"
        )
        if check["bare_error"]:
            seen = f"the bare step waits, too: {check['bare_error']}"
        rows.append((f"no synchronisation, {name}", seen[:70], _word(check)))
    return rows


def _word(check: Json) -> str:
    return "pass" if check["passed"] else "FAIL"


def passed(results: Json) -> bool:
    """Whether all promises hold, and neither a part nor a variant of autoprof has failed."""
    checked = list(results.get("never_waits", {}).values())
    tests = [results["tests"]] if "tests" in results else []
    broken = [
        error
        for workload in results.get("workloads", {}).values()
        for name, error in workload["errors"].items()
        if workload["labels"][name].startswith("autoprof")
    ]
    return not results.get("failed") and not broken and all(check["passed"] for check in (*checked, *tests))
