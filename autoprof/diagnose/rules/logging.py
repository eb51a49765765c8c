"""Rule ``logging``: logging, metrics and printing inside the step take time.

Finds, above a bound:

- ``print``, ``logging``, TensorBoard and wandb, by line; user spans with log, metric, print, ... in their name: 10 %.
"""

from __future__ import annotations

import re
from typing import Final

from ...base.frame import Phase
from ...base.summary import Finding
from ...base.units import format_ms
from .. import (
    CallStatistics,
    Evidence,
    ExceededBound,
    Rule,
    abstain,
    describe_longest,
    dominant_name,
    less_often,
    threshold_rows,
    threshold_time,
)

LOGGING_NAME: Final = re.compile(
    r"(?<![a-z])(log|logs|logger|logging|metric|metrics|print|tensorboard|wandb|mlflow|tqdm|progress|report)"
    r"(?![a-z]|_prob|_softmax|_likelihood|_sum)",
    re.IGNORECASE,
)
"""Words that identify a user span as logging; a logarithm is excluded."""
_ADVICE: Final = "log only every tenth step; keep sums on the device and read them (.item()) only then"


def judge(run: Evidence) -> Finding | None:
    """Judge the calls that log and the user spans that are named like logging."""
    user_rows, calls = run.rows.get(Phase.USER), run.facts.logs
    rows = [row for row in user_rows or [] if LOGGING_NAME.search(row.name)]
    if user_rows is None and calls is None:
        return abstain("logging", "user spans", 'wrap the logging code in with autoprof.span("Logging"):')
    spans_ns = sum(row.self_ns for row in rows) / run.summary.steps
    if calls is not None and calls.sites and calls.mean_ns >= spans_ns:  # calls inside such spans count once
        return _judge_calls(run, calls)
    if not rows:
        return None
    found = threshold_rows("logging", run, rows)
    if not isinstance(found, ExceededBound):
        return found
    has_calls = calls is not None and calls.sites
    inside = f", {format_ms(calls.mean_ns)} of it in {calls.describe_sites()}" if calls and has_calls else ""
    return found.finding(
        f"logging and metrics take {found}{describe_longest(run, rows)}{inside}",
        _ADVICE,
        name=dominant_name(rows),
        evidence={"sites": calls.sites_evidence()} if calls is not None else {},
    )


def _judge_calls(run: Evidence, calls: CallStatistics) -> Finding | None:
    found = threshold_time("logging", run, calls.interval, calls.mean_cost_ns)
    if not isinstance(found, ExceededBound):
        return found
    return found.finding(
        f"printing and logging take {found}: {calls.describe_sites()}",
        _ADVICE,
        name=calls.dominant_location,
        evidence={"sites": calls.sites_evidence()},
    )


RULE = Rule("logging", judge, order=130, experiment=less_often)
