"""The one table of a run on a device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..always_on.paired import CLOCKS
from ..interleave import NO_TIME
from ..stats import ratio
from ..table import Row, columns, machine_lines, workload_lines

Json = Mapping[str, Any]


def render(results: Json) -> str:
    """Render all results of a run; a part that was not measured is absent, and named at the end."""
    lines = machine_lines(results)
    for workload in results.get("workloads", {}).values():
        host = {**workload, "blocks": workload["host_blocks"], "title": f"{workload['title']}: the host's own time"}
        whole = {**workload, "title": f"{workload['title']}: until the device has finished"}
        lines += ["", *workload_lines(whole), "", *workload_lines(host)]
    if "events" in results:
        lines += ["", *_event_lines(results["events"])]
    if "default" in results:
        lines += ["", *_default_lines(results["default"])]
    if "device" in results:
        lines += ["", *_device_lines(results["device"])]
    if {"tests", "never_waits", "kernels"} & results.keys():
        lines += ["", *_check_lines(results)]
    lines += ["", *left_out(results)]
    seconds = results.get("seconds", {})
    if seconds:
        lines.append("seconds: " + ", ".join(f"{name} {took:.0f}" for name, took in seconds.items()))
    return "\n".join(lines).rstrip()


def left_out(results: Json) -> Iterator[str]:
    """Yield a line for each measurement that is missing, with its reason."""
    for name, text in results.get("failed", {}).items():
        yield f"{name} FAILED: {text.strip().splitlines()[-1]}"
    for workload in results.get("workloads", {}).values():
        name = workload["title"].partition(":")[0]
        if workload["rounds"] < workload["rounds_wanted"]:
            yield f"left out for lack of time: {name}: {workload['rounds_wanted'] - workload['rounds']} rounds"
        for one in own_errors(workload):
            yield f"{name}, {workload['labels'][one]} FAILED: {workload['errors'][one]}"
        missing = [workload["labels"][one] for one, error in workload["errors"].items() if error == NO_TIME]
        if missing:
            yield f"left out for lack of time: {name}: {'; '.join(missing)}"


def _event_lines(events: Json) -> list[str]:
    costs, scatter = events["costs"], events["scatter"]
    made = ", ".join(f"{count} after {steps} steps" for steps, count in events["made"].items())
    rows: list[Row] = [
        ("events recorded a step", f"{events['recorded']:.1f}"),
        ("queries a step", f"{events['queried']:.2f}"),
        ("waits in all steps", f"{events['waited']:.0f}"),
        ("events made", made),
        ("steps given up", str(events["skipped"] or "none")),
        ("record by hand", f"{costs['record_ns'] / 1e3:.2f} µs"),
        ("reading through the clock", f"{costs['read_ns'] / 1e3:.2f} µs"),
        ("resolving a reading", f"{costs['resolve_ns'] / 1e3:.2f} µs"),
    ]
    for name, label in (("queued", "behind a kernel"), ("idle", "device idle")):
        p50, p95, least = (scatter[f"{name}_{which}_ns"] / 1e3 for which in ("p50", "p95", "least"))
        rows.append((f"two events in a row, {label}", f"{p50:.2f} µs, p95 {p95:.2f}, least {least:.2f}"))
    return columns(("events, 40 tiny layers", ""), rows, left=2)


def _default_lines(runs: Json) -> list[str]:
    rows: list[Row] = []
    for name, run in runs.items():
        wall, processor = (
            ratio(run["turns"]["pairs"][clock]["own"], run["turns"]["pairs"][clock]["bare"]) for clock in CLOCKS
        )
        extra = [
            f"{100 * (one.value - 1):.2f} % [{100 * (one.low - 1):.2f}, {100 * (one.high - 1):.2f}]"
            for one in (wall, processor)
        ]
        recorded = f"{run['recorded']} of {run['steps']}, {run['rows']} rows, {run['step_ms']:.1f} ms"
        rows.append((f"{run['title']}, {name}", recorded, *extra, f"{100 * run['overhead']:.2f} %"))
    return columns(("one line", "steps recorded", "overhead, wall", "processor", "by the account"), rows, left=2)


def _device_lines(device: Json) -> list[str]:
    peak, telemetry, capacity = device["peak_tflops"], device["telemetry"], device["capacity_bytes"]
    known = device["no_peak"] if peak is None else ", ".join(f"{kind} {value:g}" for kind, value in peak.items())
    if telemetry is None:
        seen = device["no_telemetry"] or "none for this kind of device"
    else:
        seen = ", ".join(f"{name} {value}" for name, value in telemetry.items() if value is not None)
    rows: list[Row] = [
        ("memory", "unknown" if capacity is None else f"{capacity / 2**30:.1f} GiB"),
        ("peak TFLOP/s", str(known)),
        ("telemetry", seen),
    ]
    return [f"{name:<14}{text}" for name, text in rows]


def _check_lines(results: Json) -> list[str]:
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
    for name, check in results.get("kernels", {}).items():
        measured = check["measured_ns"]
        text = "no span" if measured is None else f"{measured / 1e6:.3f} ms, really {check['expected_ns'] / 1e6:.3f} ms"
        rows.append((f"known kernel, {name}", text, _word(check)))
    return columns(("promise", "measured", ""), rows, left=3)


def _word(check: Json) -> str:
    return "pass" if check["passed"] else "FAIL"


def passed(results: Json) -> bool:
    """Whether all promises hold, and neither a part nor a variant of autoprof has failed."""
    checked = [check for part in ("never_waits", "kernels") for check in results.get(part, {}).values()]
    tests = [results["tests"]] if "tests" in results else []
    broken = [one for workload in results.get("workloads", {}).values() for one in own_errors(workload)]
    return not results.get("failed") and not broken and all(check["passed"] for check in (*checked, *tests))


def own_errors(workload: Json) -> list[str]:
    """Return the variants of autoprof that raised; those of other tools may, and time may have been short."""
    return [
        name
        for name, error in workload["errors"].items()
        if error != NO_TIME and workload["families"][name] == "autoprof"
    ]
