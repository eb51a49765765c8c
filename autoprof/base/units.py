"""Nanoseconds, bytes, rates and fractions as text. The only place where units are converted for display."""

from __future__ import annotations

from math import ceil, isfinite
from typing import Final

NS_PER_MS: Final = 1_000_000
NS_PER_S: Final = 1_000_000_000

UNITS: Final = ("samples", "tokens", "frames")
"""Scalars that count the work of a step (``session.log(tokens=…)``); throughput is that of the first one logged."""
INPUT_SCALAR: Final = "input_elements"
"""The elements of the tensors that the model's calls of a step were given, where several ranks train."""

_TIMES: Final = ((NS_PER_S, "s"), (NS_PER_MS, "ms"), (1_000, "µs"))
_SIZES: Final = (("B", 0), ("KiB", 1), ("MiB", 1), ("GiB", 2), ("TiB", 2))


def format_ns(ns: float) -> str:
    """Format a duration in its largest fitting unit: ``280.0 ms``, ``12.3 µs``, ``1.2 s``, ``85 ns``."""
    size = abs(ns)
    for scale, unit in _TIMES:
        if size >= 0.99995 * scale:  # 999.96 µs would be rounded to 1000.0 µs
            return f"{ns / scale:.1f} {unit}"
    return f"{ns:.0f} ns"


def format_ms(ns: float, limit_ns: float = 0.0) -> str:
    """Format a duration in milliseconds whatever its size, for columns that are compared by eye: ``0.01 ms``.

    A duration below the clock's limit ``limit_ns`` becomes ``<0.02 ms``: the limit, rounded up.
    """
    if abs(ns) < limit_ns:
        return f"<{above(limit_ns / NS_PER_MS, 2)} ms"
    ms = ns / NS_PER_MS
    if ms and abs(ms) < 0.005:
        return "<0.01 ms" if ms > 0 else ">-0.01 ms"
    return f"{ms:.2f} ms" if abs(ms) < 9.995 else f"{ms:.1f} ms"


def format_short(ns: float, limit_ns: float = 0.0, unit_ns: int = NS_PER_MS, *, none: str = "-") -> str:
    """Format a duration as a number of its column's unit in at most five characters; no time is ``none``."""
    if not ns:
        return none
    if ns < limit_ns:
        return "<" + above(limit_ns / unit_ns, 2 if limit_ns < 9.99 * unit_ns else 0)
    count = ns / unit_ns
    if count < 0.005:
        return "<0.01"
    if count < 99.95:
        return f"{count:.2f}" if count < 9.995 else f"{count:.1f}"
    return f"{count:.0f}" if count < 99_999.5 else f"{count / 1000:.0f}k"


def format_bytes(count: float) -> str:
    """Format bytes in powers of 1024: ``512 B``, ``21.2 MiB``, ``1.26 GiB``."""
    size = float(count)
    for unit, digits in _SIZES:
        if abs(size) < 1024 - 0.5 * 10**-digits:
            return f"{size:.{digits}f} {unit}"
        size /= 1024
    return f"{size:.2f} PiB"


def above(value: float, digits: int) -> str:
    """Format a positive upper bound, rounded up to ``digits`` decimals."""
    scaled = round(value * 10**digits, 6)  # 0.07 x 100 is a little more than 7
    return f"{ceil(scaled) / 10**digits:.{digits}f}"


def format_percent(fraction: float, limit: float = 0.0) -> str:
    """Format a fraction: ``45.2 %``; a fraction that would round to zero becomes ``<0.1 %``.

    One below ``limit``, the clock's limit as a fraction of the same whole, becomes ``<0.3 %``: the limit, rounded up.
    Zero stays ``0.0 %``: there was no such time.
    """
    if 0 < abs(fraction) < limit:
        return f"<{above(100 * limit, 1)} %"
    percent = 100 * fraction
    if percent and abs(percent) < 0.05:
        return "<0.1 %" if percent > 0 else ">-0.1 %"
    return f"{percent:.1f} %"


def format_round_percent(fraction: float, limit: float = 0.0) -> str:
    """Format a fraction as a whole number of percent without its sign; ``limit`` is as in ``format_percent``."""
    return f"<{above(100 * limit, 0)}" if 0 < abs(fraction) < limit else f"{100 * fraction:.0f}"


def format_rate(per_second: float, unit: str = "samples") -> str:
    """Format a rate with three significant digits: ``1.95 samples/s``, ``1234 tokens/s``."""
    digits = 2 if abs(per_second) < 9.995 else 1 if abs(per_second) < 99.95 else 0
    return f"{per_second:.{digits}f} {unit}/s"


def format_flops(count: float) -> str:
    """Format operations in powers of 1000 with three significant digits: ``1.23 TFLOP``, ``512 FLOP``."""
    powers = ("", "k", "M", "G", "T", "P")
    size, power = float(count), 0
    while abs(size) >= 999.5 and power < len(powers) - 1:
        size, power = size / 1000, power + 1
    digits = 0 if not power or abs(size) >= 99.95 else 1 if abs(size) >= 9.995 else 2
    return f"{size:.{digits}f} {powers[power]}FLOP"


def format_span(ns: float) -> str:
    """Format a long time: ``12 s``, ``4 min 10 s``, ``3 h 05 min``, ``2 d 4 h``."""
    if not isfinite(ns):
        return f"{ns} s"
    seconds = round(ns / NS_PER_S)
    if seconds < 60:
        return f"{ns / NS_PER_S:.1f} s" if ns < 9.95 * NS_PER_S else f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60:02d} s"
    minutes = round(seconds / 60)
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    hours = round(minutes / 60)
    return f"{hours // 24} d {hours % 24} h"


def format_count(count: float) -> str:
    """Format a count or a mean count, without decimals if it is whole: ``4``, ``1.5``."""
    return f"{count:.0f}" if abs(count - round(count)) < 0.05 else f"{count:.1f}"


def ordinal(number: int) -> str:
    """Return ``2nd``, ``8th``, ``11th``."""
    suffix = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"


def count(number: int, word: str) -> str:
    """Phrase a number of things: ``1 step``, ``12 steps``."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
