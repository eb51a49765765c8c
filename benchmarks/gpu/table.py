"""The one table of a run on a device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..table import Row, columns, machine_lines, workload_lines

Json = Mapping[str, Any]


def render(results: Json) -> str:
    """Render all results of a run."""
    lines = machine_lines(results)
    for workload in results["workloads"].values():
        host = {**workload, "blocks": workload["host_blocks"], "title": f"{workload['title']}: the host's own time"}
        whole = {**workload, "title": f"{workload['title']}: until the device has finished"}
        lines += ["", *workload_lines(whole), "", *workload_lines(host)]
    lines += ["", *_event_lines(results), "", *_check_lines(results)]
    return "\n".join(lines)


def _event_lines(results: Json) -> list[str]:
    events, costs = results["events"], results["costs"]
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
    return columns(("events, 40 tiny layers", ""), rows, left=2)


def _check_lines(results: Json) -> list[str]:
    rows: list[Row] = []
    for name, check in results["never_waits"].items():
        seen = check["error"] or (
            f"host {check['host_ns'] / 1e6:.1f} ms (bare {check['bare_ns'] / 1e6:.1f}) "
            f"behind a kernel of {check['device_ns'] / 1e6:.0f} ms"
        )
        rows.append((f"no synchronisation, {name}", seen, _word(check)))
    for name, check in results["kernels"].items():
        measured = check["measured_ns"]
        text = "no span" if measured is None else f"{measured / 1e6:.3f} ms, really {check['expected_ns'] / 1e6:.3f} ms"
        rows.append((f"known kernel, {name}", text, _word(check)))
    return columns(("promise", "measured", ""), rows, left=3)


def _word(check: Json) -> str:
    return "pass" if check["passed"] else "FAIL"


def passed(results: Json) -> bool:
    """Whether all promises hold."""
    return all(check["passed"] for part in ("never_waits", "kernels") for check in results[part].values())
