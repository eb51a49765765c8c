"""What autoprof itself cost, found in two ways, in words."""

from __future__ import annotations

from .._units import format_percent, format_signed_percent
from ..summary import Summary


def price_lines(summary: Summary) -> list[str]:
    """Return both accounts of a run's cost, a line each."""
    own = f"{format_percent(summary.overhead)} of the time of all steps went to autoprof, by its own clock"
    paired = summary.paired
    if paired is None:
        return [own, "not known yet by comparing steps with hooks and without"]
    cost, low, high = (format_signed_percent(share) for share in paired.of_run)
    return [own, f"{cost} ({low} to {high}) by {paired.pairs} pairs of steps, hooked and bare"]


def price_by_pairs(summary: Summary) -> str:
    """Return the second account in short, ``(0.42 % by pairs)``; nothing where there is none."""
    return "" if summary.paired is None else f" ({format_signed_percent(summary.paired.of_run[0])} by pairs)"
