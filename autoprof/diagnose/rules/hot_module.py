"""Rule ``hot-module``: one module takes half of the step, several times as long as its siblings."""

from __future__ import annotations

from collections import Counter
from typing import Final

from ..._stats.intervals import Interval
from ..._stats.name_lines import Line, name_lines
from ..._units import format_percent
from ...frame import TRAINING_LANE
from ...summary import Finding, Summary
from .._evidence import Evidence
from .._rule import Defect, Rule
from .._thresholding import abstain, classify, inconclusive

MAX_SHARE: Final = 0.5
"""A module that takes half of the step determines the length of the step."""
MAX_TIMES: Final = 3.0
"""A hot module takes this many times as long as its longest sibling; below that the modules are merely unequal."""


def judge(run: Evidence) -> Finding | None:
    """Find the innermost module that dominates its siblings."""
    if not _may_be_hot(run):
        return None
    modules = [line for line in name_lines(run.summary).roots if _is_module(line)]
    while len(modules) == 1 and (inner := _modules_in(modules[0])):
        modules = inner
    if len(modules) < 2:
        return abstain("hot-module", "spans of two modules side by side", "name the model's children as targets")
    hot, sibling = _longest_two(modules)
    while len(inner := _modules_in(hot)) >= 2:  # a hot module inside a hot module is more specific
        inner_hot, inner_sibling = _longest_two(inner)
        if not _dominates(run, inner_hot, inner_sibling):
            break
        hot, sibling = inner_hot, inner_sibling
    share = _share(run, hot)
    times = _times(run, hot, sibling)
    evidence = {
        "share": round(share.middle, 4),
        "times_next": round(times.middle, 2),
        "next": sibling.name,
        "bound": MAX_SHARE,
    }
    if classify(times, MAX_TIMES) == "below" or classify(share, MAX_SHARE) == "below":
        return None
    if not _dominates(run, hot, sibling):
        return inconclusive("hot-module", share, MAX_SHARE, evidence)
    return Finding(
        "hot-module",
        "warning",
        f"{hot.name} takes {format_percent(share.middle)} of the step, {times.middle:.1f} x as long as {sibling.name}, "
        "the longest module beside it",
        "look there first: make its children targets to see which part takes the time; the possible gain was not "
        "measured",
        hot.name,
        max(hot.rows, key=lambda row: row.total_ns).phase,
        evidence={**evidence, "ns": hot.total_ns // run.summary.steps, "steps": run.summary.steps},
    )


def _may_be_hot(run: Evidence) -> bool:
    """Return whether any name takes a quarter of the step: only then is the tree built, the costliest part."""
    by_name: Counter[str] = Counter()
    for row in run.summary.rows:
        if row.lane == TRAINING_LANE and row.fqn is not None:
            by_name[row.name] += row.total_ns
    return len(by_name) < 2 or 2 * max(by_name.values()) > MAX_SHARE * run.summary.total_step_ns


def _is_module(line: Line) -> bool:
    return any(row.fqn is not None for row in line.rows)


def _modules_in(line: Line) -> list[Line]:
    return [child for child in line.children if _is_module(child)]


def _longest_two(modules: list[Line]) -> tuple[Line, Line]:
    first, second, *_ = sorted(modules, key=lambda line: (-line.total_ns, line.name))
    return first, second


def _dominates(run: Evidence, hot: Line, sibling: Line) -> bool:
    much_longer = classify(_times(run, hot, sibling), MAX_TIMES) == "above"
    return much_longer and classify(_share(run, hot), MAX_SHARE) == "above"


def _times(run: Evidence, hot: Line, sibling: Line) -> Interval:
    """Return how many times as long as its sibling a module takes."""
    share = _share(run, hot)
    low, middle, high = (max(part, 1e-9) for part in _share(run, sibling))
    return Interval(share.low / high, share.middle / middle, share.high / low)


def _share(run: Evidence, line: Line) -> Interval:
    """Return a line's share of the step, with the relative uncertainty of its longest row."""
    longest = max(line.rows, key=lambda row: row.total_ns)
    row, share = run.row_time(longest).over(run.step_time), line.total_ns / max(run.summary.total_step_ns, 1)
    middle = max(row.middle, 1e-9)
    return Interval(share * row.low / middle, share, share * row.high / middle)


def train_with_hot_layer(broken: bool) -> Summary:
    """Make one of four layers ten times as long as the others; the healthy twin has equal layers."""
    from ...demo.defects import Layer, four_layers, train
    from ...testing import FakeClock

    clock = FakeClock()
    model = four_layers(clock)
    model[1] = Layer(clock, forward_ms=600 if broken else 60)
    return train(model, clock)


RULE = Rule("hot-module", judge, order=50, defects=(Defect("one module ten times the others", train_with_hot_layer),))
