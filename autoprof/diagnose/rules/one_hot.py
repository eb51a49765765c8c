"""Rule ``one-hot``: one-hot rows are multiplied with a matrix, which reads a row of it for each.

Finds, above a bound:

- lines in the forward of a model that multiply one-hot rows with a matrix: 10 % of the step in the forward.
"""

from __future__ import annotations

from ...base.frame import Phase
from ...base.stats.intervals import Interval
from ...base.summary import Finding
from .. import Evidence, ExceededBound, Rule, edit_module, threshold_time
from .._evidence import NUMBER, LineTime


def judge(run: Evidence) -> Finding | None:
    """Judge the time of these lines in the forwards, which their backward takes as well."""
    lines = () if run.summary.work is None else run.summary.work.one_hot
    found = [one for one in run.lines_in_forward() if any(_is_of(one, line) for line in lines)] if lines else []
    ns = sum(one.ns for one in found)
    judged = threshold_time("one-hot", run, Interval.exact(ns), ns, phase=Phase.FORWARD) if found else None
    if not isinstance(judged, ExceededBound):
        return judged
    longest = max(found, key=lambda one: (one.ns, one.row.name))
    source = f" (`{longest.line.source}`)" if longest.line.source else ""
    return judged.finding(
        f"the forward of {longest.row.name} multiplies one-hot rows with a matrix, at {longest.line.location}{source}: "
        f"{judged}, beside its backward",
        "nn.Embedding, or the matrix indexed by the numbers, reads the rows without a product",
        name=longest.row.name,
        evidence={"lines": [{"where": longest.line.location, "function": longest.line.function}]},
    )


def _is_of(time: LineTime, line: tuple[str, str, int]) -> bool:
    """Return whether a time is that of a line in the module that it was noted in, or in one around it."""
    fqn, file, number = line
    is_around = not time.row.fqn or f"{NUMBER.sub('*', fqn)}.".startswith(f"{NUMBER.sub('*', time.row.fqn)}.")
    return is_around and (time.line.file, time.line.line) == (file, number)


RULE = Rule("one-hot", judge, order=51, experiment=edit_module)
