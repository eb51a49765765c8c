"""Progress, work and readings in words: for the summary, the panel, the log and the plain line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from .._units import format_bytes, format_flops, format_percent, format_rate, format_span
from ..frame import MODULE_PHASES, Phase
from ..summary import MetricStats, Summary, Work, WorkRow
from .text import fit, safe, wrap

ROOM: Final = 11
"""Cells of the words at the left edge of the summary's head."""
ROWS: Final = 16
"""Names in the table of work; the rest is counted in one line."""
_COLUMN: Final = 10


def measured_lines(summary: Summary, width: int) -> Iterator[str]:
    """Yield what stands at the head of a report beside times: throughput, work, readings; no line wider than width."""
    progress, work = summary.progress, summary.work
    if summary.throughput is not None:
        source = (
            f" (samples: {progress.source})"
            if progress is not None and progress.source not in ("", "session.log")
            else ""
        )
        yield from wrap("throughput", format_rate(summary.throughput, summary.throughput_unit) + source, width, ROOM)
    if said := progress_text(summary):
        yield from wrap("pace", said, width, ROOM)
    if work is not None:
        yield from wrap("work", _work_sentence(work), width, ROOM)
        for note in work.notes:
            yield from wrap("", note, width, ROOM)
    for head, prefix in (("GPU", "gpu_"), ("host", "host_")):
        if said := ", ".join(_phrases(summary, prefix)):
            yield from wrap(head, said, width, ROOM)


def progress_text(summary: Summary) -> str:
    """Phrase the epoch's length and the time to the end; empty where neither is known."""
    progress, said = summary.progress, []
    if progress is None:
        return ""
    if progress.epoch_steps is not None and progress.epoch_ns is not None:
        said.append(f"an epoch of {progress.epoch_steps:.0f} steps takes {format_span(progress.epoch_ns)}")
    if progress.remaining_steps is not None and progress.remaining_ns is not None:
        left = f": {format_span(progress.remaining_ns)}" if progress.remaining_steps else ""
        said.append(f"{progress.remaining_steps} of {progress.total_steps} steps to go{left}")
    return ", ".join(said)


def brief_work(work: Work | None) -> list[str]:
    """Phrase the work in a few words for a line that has little room; nothing where there is no figure."""
    if work is None or work.flops_per_s is None:
        return []
    said = [f"{format_flops(work.flops_per_s)}/s"]
    if work.mfu is not None and work.hfu is not None:
        said.append(f"MFU {format_percent(work.mfu)}")
        said += [f"HFU {format_percent(work.hfu)}"] if work.hfu > work.mfu else []
    return said


def brief_gauges(summary: Summary) -> list[str]:
    """Phrase the last readings of the GPU, and of the host where there is none."""
    gauges, said = summary.metrics, []
    if (use := gauges.get("gpu_utilization")) is not None:
        said.append(f"GPU {100 * use.last:.0f} %")
    if (memory := gauges.get("gpu_memory_bytes")) is not None:
        said.append(format_bytes(memory.last))
    for name, unit in (("gpu_power_w", "W"), ("gpu_sm_clock_mhz", "MHz"), ("gpu_temperature_c", "°C")):
        if (gauge := gauges.get(name)) is not None:
            said.append(f"{gauge.last:.0f} {unit}")
    if (throttled := gauges.get("gpu_throttled")) is not None and throttled.mean:
        said.append(f"throttled {format_percent(throttled.mean)} of the time")
    if (cores := gauges.get("host_cpu_cores")) is not None:
        said.append(f"CPU {cores.last:.1f} cores")
    return said


def _work_sentence(work: Work) -> str:
    if work.reason is not None:
        return f"not counted: {work.reason}"
    parts = [f"{phase} {format_flops(flops)}" for phase in MODULE_PHASES if (flops := work.flops.get(str(phase)))]
    said = f"{', '.join(parts) or 'none that counts'} a step"
    if work.flops_per_s is not None:
        said += f"; {format_flops(work.flops_per_s)}/s without recompute"
    if work.mfu is not None and work.hfu is not None:
        said += f"; MFU {format_percent(work.mfu)}, HFU {format_percent(work.hfu)} of the peak of {work.peak}"
    elif work.no_peak is not None:
        said += f"; no MFU: {work.no_peak}"
    return said


def _phrases(summary: Summary, prefix: str) -> Iterator[str]:
    gauges = summary.metrics

    def of(name: str) -> MetricStats | None:
        return gauges.get(prefix + name)

    if (use := of("utilization")) is not None:
        yield f"busy {_range(use, 100, ' %')}"
    if (memory := of("memory_bytes")) is not None:
        yield f"memory {format_bytes(memory.mean)} (most {format_bytes(memory.high)})"
    if (power := of("power_w")) is not None:
        limit = of("power_limit_w")
        yield f"power {_range(power, 1, ' W')}" + (f" of {limit.last:.0f} W" if limit is not None else "")
    if (clock := of("sm_clock_mhz")) is not None:
        most = of("sm_clock_max_mhz")
        yield f"SM clock {_range(clock, 1, ' MHz')}" + (f" of {most.last:.0f} MHz" if most is not None else "")
    if (memory_clock := of("memory_clock_mhz")) is not None:
        yield f"memory clock {_range(memory_clock, 1, ' MHz')}"
    if (heat := of("temperature_c")) is not None:
        yield _range(heat, 1, " °C")
    if (throttled := of("throttled")) is not None:
        yield f"throttled in {format_percent(throttled.mean)} of {throttled.readings} readings"
        for name, gauge in gauges.items():
            if name.startswith("gpu_throttled_by_") and gauge.mean:
                cause = name.removeprefix("gpu_throttled_by_").replace("_", " ")
                yield f"by {cause} in {format_percent(gauge.mean)}"
    if (cores := of("cpu_cores")) is not None:
        yield f"this process kept {cores.mean:.1f} processors busy ({cores.low:.1f} to {cores.high:.1f})"
    if (busy := of("cpu_busy")) is not None:
        yield f"the machine {_range(busy, 100, ' %')} busy"


def _range(gauge: MetricStats, scale: float, unit: str) -> str:
    if f"{gauge.low * scale:.0f}" == f"{gauge.high * scale:.0f}":
        return f"{gauge.mean * scale:.0f}{unit}"
    return f"{gauge.mean * scale:.0f}{unit} ({gauge.low * scale:.0f} to {gauge.high * scale:.0f})"


def work_table(work: Work | None, width: int, ellipsis: str) -> Iterator[str]:
    """Yield the work of each name in one step, and what became of the peak: the most work first."""
    if work is None or not work.rows:
        return
    again = any(row.flops.get(str(Phase.RECOMPUTE)) for row in work.rows)
    rated = any(row.mfu is not None for row in work.rows)
    phases = [phase for phase in MODULE_PHASES if again or phase is not Phase.RECOMPUTE]
    heads = [*map(str, phases), "per s", *(["MFU", *(["HFU"] if again else [])] if rated else [])]
    room = width - _COLUMN * len(heads)
    yield fit("FLOP a step", room) + "".join(f"{head:>{_COLUMN}}" for head in heads)
    rows = sorted(work.rows, key=lambda row: (-sum(row.flops.values()), row.name))
    for row in rows[:ROWS]:
        cells = [_short(row.flops.get(str(phase), 0)) for phase in phases]
        cells.append("-" if row.flops_per_s is None else _short(row.flops_per_s))
        cells += _shares(row, again) if rated else []
        yield fit(safe(row.name), room, ellipsis) + "".join(f"{cell:>{_COLUMN}}" for cell in cells)
    if len(rows) > ROWS:
        yield f"{ellipsis} and {len(rows) - ROWS} more names with less work each"


def _shares(row: WorkRow, again: bool) -> list[str]:
    shares = [row.mfu, *([row.hfu] if again else [])]
    return ["-" if share is None else format_percent(share) for share in shares]


def _short(count: float) -> str:
    return format_flops(count).removesuffix("FLOP").rstrip() if count else "-"
