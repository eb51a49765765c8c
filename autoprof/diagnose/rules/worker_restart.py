"""Rule ``worker-restart``: the loader's worker processes are started again for each epoch, and epochs are short."""

from __future__ import annotations

from typing import Final

from ..._stats.intervals import Interval
from ..._units import format_ms
from ...frame import Phase
from ...summary import Finding
from .._evidence import Evidence
from .._experiment import Experiment
from .._rule import Rule
from .._thresholding import ExceededBound, abstain, threshold_time

MAX_SHARE: Final = 0.05
"""With ``persistent_workers`` nothing of it is left but the first batch, so all of this time can be gained."""
MIN_STARTS: Final = 3
"""Starts after the first one of the run; two may be two phases of a program."""


def judge(run: Evidence) -> Finding | None:
    """Judge the time from a start to its first batch, spread over the batches of its epoch."""
    loader = run.summary.loader
    starts, batches = loader.get("starts", 0), loader.get("starts", 0) + loader.get("fetches", 0)
    if starts < MIN_STARTS:
        return None if run.rows.get(Phase.DATA) else abstain("worker-restart", "data spans", "use torch's DataLoader")
    each = Interval(loader["start_min_ns"], loader["start_ns"] / starts, loader["start_max_ns"])
    fetches = (run.summary.micro_steps or 1) * starts / batches
    time = Interval(*(part * fetches for part in each))
    step = Interval.exact(run.summary.step_mean_ns)
    found = threshold_time("worker-restart", run, time, time.middle, MAX_SHARE, Phase.DATA, step=step)
    if not isinstance(found, ExceededBound):
        return found
    number = loader["workers"]
    workers = "1 worker process is" if number == 1 else f"{number} worker processes are"
    return found.finding(
        f"{workers} started again about every {round(batches / starts)} batches; "
        f"{format_ms(each.middle)} pass until the first batch of each start, {found}",
        "DataLoader(..., persistent_workers=True) keeps them between epochs; or make epochs longer",
        evidence={"starts": starts, "batches": batches, "workers": loader["workers"]},
    )


RULE = Rule(
    "worker-restart",
    judge,
    order=12,
    experiment=Experiment("loader.persistent_workers", value=True),
)
