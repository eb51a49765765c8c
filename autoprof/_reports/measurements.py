"""Progress, work and readings in words."""

from __future__ import annotations

from collections.abc import Iterator

from .._core.units import count, format_bytes, format_flops, format_percent, format_span
from ..frame import MODULE_PHASES, Phase
from ..summary import MetricStats, Summary, Work, WorkRow
from .text import fit, safe


def progress_text(summary: Summary) -> str:
    """Phrase the length of an epoch and the time to finish; empty where neither is known."""
    progress, phrases = summary.progress, []
    if progress is None:
        return ""
    if progress.epoch_steps is not None and progress.epoch_ns is not None:
        phrases.append(f"an epoch of {progress.epoch_steps:.0f} steps takes {format_span(progress.epoch_ns)}")
    if progress.remaining_steps is not None and progress.remaining_ns is not None:
        left = f": {format_span(progress.remaining_ns)}" if progress.remaining_steps else ""
        phrases.append(f"{progress.remaining_steps} of {progress.total_steps} steps to go{left}")
    return ", ".join(phrases)


def brief_work(work: Work | None) -> list[str]:
    """Phrase the rate of operations briefly, for the panel; empty where there is no figure."""
    if work is None or work.flops_per_s is None:
        return []
    phrases = [f"{format_flops(work.flops_per_s)}/s"]
    if work.mfu is not None and work.hfu is not None:
        phrases.append(f"MFU {format_percent(work.mfu)}")
        phrases += [f"HFU {format_percent(work.hfu)}"] if work.hfu > work.mfu else []
    return phrases


def brief_metrics(summary: Summary) -> list[str]:
    """Phrase the last readings of the GPU and of the host."""
    return brief_device_metrics(summary) + brief_host_metrics(summary)


def brief_device_metrics(summary: Summary) -> list[str]:
    """Phrase the last readings of the GPU; empty where there are none."""
    gauges, phrases = summary.metrics, []
    if (use := gauges.get("gpu_utilization")) is not None:
        phrases.append(f"GPU {100 * use.last:.0f} %")
    if (memory := gauges.get("gpu_memory_bytes")) is not None:
        phrases.append(format_bytes(memory.last))
    for name, unit in (("gpu_power_w", "W"), ("gpu_sm_clock_mhz", "MHz"), ("gpu_temperature_c", "°C")):
        if (gauge := gauges.get(name)) is not None:
            phrases.append(f"{gauge.last:.0f} {unit}")
    if (throttled := gauges.get("gpu_throttled")) is not None and throttled.mean:
        phrases.append(f"throttled {format_percent(throttled.mean)} of the time")
    return phrases


def brief_host_metrics(summary: Summary) -> list[str]:
    """Phrase the last readings of the host; empty where there are none."""
    cores = summary.metrics.get("host_cpu_cores")
    return [] if cores is None else [f"CPU {cores.last:.1f} cores"]


def work_sentence(work: Work) -> str:
    """Phrase the operations of a step, their rate and its share of the peak, or why there are none."""
    if work.reason is not None:
        return f"not counted: {work.reason}"
    parts = [f"{phase} {format_flops(flops)}" for phase in MODULE_PHASES if (flops := work.flops.get(str(phase)))]
    sentence = f"{', '.join(parts) or 'no counted operation'} a step"
    if work.flops_per_s is not None:
        sentence += f"; {format_flops(work.flops_per_s)}/s without recompute"
    if work.mfu is not None and work.hfu is not None:
        sentence += f"; MFU {format_percent(work.mfu)}, HFU {format_percent(work.hfu)} of the peak of {work.peak}"
    elif work.no_peak is not None:
        sentence += f"; no MFU: {work.no_peak}"
    return sentence


def device_phrases(summary: Summary, prefix: str) -> Iterator[str]:
    """Yield the readings over the run of ``gpu_`` or ``host_``, with their ranges."""
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
        yield f"throttled in {format_percent(throttled.mean)} of {count(throttled.readings, 'reading')}"
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
    """Yield the operations of each name in one step, with the shares of the peak; most operations first."""
    column = 10
    most = 16
    if work is None or not work.rows:
        return
    recomputed = any(row.flops.get(str(Phase.RECOMPUTE)) for row in work.rows)
    rated = any(row.mfu is not None for row in work.rows)
    phases = [phase for phase in MODULE_PHASES if recomputed or phase is not Phase.RECOMPUTE]
    heads = [*map(str, phases), "per s", *(["MFU", *(["HFU"] if recomputed else [])] if rated else [])]
    room = width - column * len(heads)
    yield fit("FLOP a step", room) + "".join(f"{head:>{column}}" for head in heads)
    rows = sorted(work.rows, key=lambda row: (-sum(row.flops.values()), row.name))
    for row in rows[:most]:
        cells = [_short(row.flops.get(str(phase), 0)) for phase in phases]
        cells.append("-" if row.flops_per_s is None else _short(row.flops_per_s))
        cells += _shares(row, recomputed) if rated else []
        yield fit(safe(row.name), room, ellipsis) + "".join(f"{cell:>{column}}" for cell in cells)
    if len(rows) > most:
        yield f"{ellipsis} and {count(len(rows) - most, 'more name')} with less work each"


def _shares(row: WorkRow, recomputed: bool) -> list[str]:
    shares = [row.mfu, *([row.hfu] if recomputed else [])]
    return ["-" if share is None else format_percent(share) for share in shares]


def _short(count: float) -> str:
    return format_flops(count).removesuffix("FLOP").rstrip() if count else "-"
