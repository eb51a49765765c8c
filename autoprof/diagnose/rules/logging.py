"""Rule ``logging``: logging, metrics and printing inside the step take time."""

from __future__ import annotations

import re
from typing import Final

from ..._units import format_ms
from ...frame import Phase
from ...summary import Finding, Summary
from .._calls import CallStatistics
from .._evidence import Evidence
from .._experiment import less_often
from .._rule import Defect, Rule
from .._thresholding import ExceededBound, abstain, describe_longest, dominant_name, threshold_rows, threshold_time

MAX_SHARE: Final = 0.05
"""Logging does not improve the model, so all of its time can be gained."""
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
    found = threshold_rows("logging", run, rows, MAX_SHARE)
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
    found = threshold_time("logging", run, calls.interval, calls.mean_cost_ns, MAX_SHARE)
    if not isinstance(found, ExceededBound):
        return found
    return found.finding(
        f"printing and logging take {found}: {calls.describe_sites()}",
        _ADVICE,
        name=calls.dominant_location,
        evidence={"sites": calls.sites_evidence()},
    )


def train_with_metrics(broken: bool) -> Summary:
    """Compute metrics for 200 ms in every step; the healthy twin takes 1 ms."""
    import autoprof

    from ...demo.defects import MS, four_layers, train
    from ...testing import FakeClock

    clock = FakeClock()

    def compute_metrics(_number: int) -> None:
        with autoprof.span("Logging/Metrics"):
            clock.advance(200 * MS if broken else 1 * MS)

    return train(four_layers(clock), clock, in_step=compute_metrics)


def train_with_log_lines(broken: bool) -> Summary:
    """Log a line in every step over a slow connection; the healthy twin logs every twentieth step."""
    import io
    import logging

    from ...demo.defects import MS, four_layers, train
    from ...testing import FakeClock

    clock = FakeClock()

    class SlowStream(io.StringIO):
        """A stream that takes 120 ms for each text."""

        def write(self, text: str) -> int:
            clock.advance(120 * MS)
            return super().write(text)

    logger = logging.getLogger("autoprof.demo.defects")
    handler = logging.StreamHandler(SlowStream())
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False

    def log(number: int) -> None:
        if broken or number % 20 == 0:
            logger.info("step %d", number)

    try:
        return train(four_layers(clock), clock, in_step=log)
    finally:
        logger.removeHandler(handler)


RULE = Rule(
    "logging",
    judge,
    order=130,
    defects=(
        Defect("metrics in every step", train_with_metrics),
        Defect("a log line in every step", train_with_log_lines),
    ),
    experiment=less_often,
)
