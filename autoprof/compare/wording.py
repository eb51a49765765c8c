"""The numbers and sentences of a comparison, the same in text, Markdown and figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from difflib import SequenceMatcher
from typing import Final

from .._units import NS_PER_S, format_bytes, format_ms
from ..frame import Phase
from .data import Change, Comparison, Verdict

MIN_SECONDS_NS: Final = 9_999_950_000
"""From here on times are in seconds: more digits of milliseconds would fill their column."""
MAX_POINTS: Final = 9_999.5
"""From here on percent are in thousands, from a thousand times as many on in millions."""
KEPT_WORDS: Final = 1
"""Words kept before and after each difference of two texts."""
KEPT_LETTERS: Final = 100
"""Letters kept before and after the difference of two long words, such as a path or JSON."""
HOUR_NS: Final = 3600 * NS_PER_S
_IN_LEGEND: Final = ("the interval is wider than", "not proven among")
"""Beginnings of the reasons that the legend explains."""


def value(change: Change, number: float | None) -> str:
    """Return a value with its unit, the same for both sides; samples per second without it."""
    if number is None:
        return "-"
    if change.unit == "bytes":
        return format_bytes(number)
    if change.unit == "ns":
        longest = max(abs(change.a or 0), abs(change.b or 0))
        if longest >= HOUR_NS:
            return f"{number / HOUR_NS:.2f} h"
        return f"{number / NS_PER_S:.2f} s" if longest >= MIN_SECONDS_NS else format_ms(number)
    return f"{number:.4g}" if number < 1e4 else f"{number:.0f}"


def percent(ratio: float | None) -> str:
    """Return a ratio as a change in percent: ``+4.1``, ``-0.03``; ``?`` for an infinite end."""
    if ratio is None:
        return "?"
    points = 100 * (ratio - 1)
    for scale, letter in ((1e6, "M"), (1e3, "k")):
        if abs(points) >= MAX_POINTS * scale / 1e3:
            return f"{points / scale:+.0f}{letter}"
    text = f"{points:+.0f}" if abs(points) >= 99.95 else f"{points:+.1f}"
    return text.replace("-0.0", "0.0").replace("+0.0", "0.0")


def interval(change: Change) -> str:
    """Return the interval of a change: ``[+3.2, +5.0]``; empty where there is none."""
    if change.ratio is None or (change.low is None and change.high is None and change.p is None):
        return ""
    return f"[{percent(change.low)}, {percent(change.high)}]"


def reason(change: Change) -> str:
    """Return why there is no verdict or which means are compared, unless the legend explains it."""
    return "" if change.why.startswith(_IN_LEGEND) else change.why


def label(change: Change) -> str:
    """Return the name of a change: ``VRT/Stage8 forward``, ``forward`` for a phase, ``rss peak`` for a reading."""
    if change.phase is None:
        reading = change.unit == "bytes" and change.name.endswith("_bytes")
        return change.name.removesuffix("_bytes").replace("_", " ") if reading else change.name
    if not change.name or change.name == str(change.phase):
        return str(change.phase)
    return f"{change.name} {change.phase}"


def by_phase(change: Change) -> int:
    """Return the sort key that puts the rows of one name in the order of a step."""
    return -1 if change.phase is None else list(Phase).index(change.phase)


def headline(comparison: Comparison) -> str:
    """Return the result for the whole step in one sentence."""
    step = comparison.whole[0]
    if step.ratio is None:
        return f"B against A: inconclusive, {step.why}"
    result = {
        "slower": "B is slower than A",
        "faster": "B is faster than A",
        "same": f"B is as fast as A, within ±{100 * comparison.margin:g} %",
    }.get(step.verdict, "B against A: inconclusive")
    return f"{result}: {percent(step.ratio)} % {interval(step)} a step"


def differing(a: str, b: str) -> tuple[str, str]:
    """Return the words in which two texts differ, with the words next to them; equal stretches become ``…``."""
    words = a.split(" "), b.split(" ")
    shown: tuple[set[int], set[int]] = (set(), set())
    for tag, a1, a2, b1, b2 in SequenceMatcher(None, *words, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        if a2 - a1 == b2 - b1 == 1:
            words[0][a1], words[1][b1] = _differing_letters(words[0][a1], words[1][b1])
        for at, begin, end in ((0, a1, a2), (1, b1, b2)):
            shown[at].update(range(max(begin - KEPT_WORDS, 0), min(end + KEPT_WORDS, len(words[at]))))
    first, second = (_elided(*side) for side in zip(words, shown, strict=True))
    return first, second


def _elided(words: list[str], shown: set[int]) -> str:
    """Return the words at the places ``shown``, and an ellipsis for each stretch of at least two others."""
    parts: list[str] = []
    beside = shown | {-1, len(words)}
    for at, word in enumerate(words):
        if at in shown or {at - 1, at + 1} <= beside:
            parts.append(word)
        elif not parts or parts[-1] != "…":
            parts.append("…")
    return " ".join(parts)


def _differing_letters(a: str, b: str) -> tuple[str, str]:
    """Return two long words from shortly before their first difference to shortly after their last."""
    shortest = min(len(a), len(b))
    head = next((at for at in range(shortest) if a[at] != b[at]), shortest)
    tail = next((at for at in range(shortest - head) if a[-1 - at] != b[-1 - at]), shortest - head)
    begin = head - KEPT_LETTERS if head > 2 * KEPT_LETTERS else 0
    end = tail - KEPT_LETTERS if tail > 2 * KEPT_LETTERS else 0
    first, second = ("…" * (begin > 0) + word[begin : len(word) - end] + "…" * (end > 0) for word in (a, b))
    return first, second


def tally(changes: Iterable[Change]) -> str:
    """Count verdicts: ``3 slower, 10 same``."""
    counts = Counter(change.verdict for change in changes)
    order: tuple[Verdict, ...] = ("slower", "faster", "inconclusive", "same")
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in order if counts[verdict])


def limit_result(comparison: Comparison, *, strict: bool = False) -> str:
    """Return the changes beyond the limit in one sentence; empty without a limit."""
    if comparison.limit is None:
        return ""
    limit = f"{100 * comparison.limit:g} %"
    proven = comparison.over_limit()
    possible = [change for change in comparison.over_limit(strict=True) if change.over == "unknown"]
    if proven:
        named = "; ".join(f"{label(change)} {percent(change.ratio)} % {interval(change)}" for change in proven[:5])
        text = f"FAIL: slower by more than {limit}: {named}"
        return text + (f"; and {len(proven) - 5} more" if len(proven) > 5 else "")
    if possible:
        rows = "1 row" if len(possible) == 1 else f"{len(possible)} rows"
        text = f"nothing is proven to be slower by more than {limit}, but {rows} may be: "
        text += ", ".join(map(label, possible[:5])) + (", …" if len(possible) > 5 else "")
        return f"FAIL (strict): {text}" if strict else f"pass: {text}"
    return f"pass: nothing is slower by more than {limit}, and nothing may be"
