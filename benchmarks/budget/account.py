"""The cost of a run by its own steps and against bare runs; the results of one budget on one step length."""

from __future__ import annotations

import gc
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from .. import stats
from .means import Observed, Reference, Verdict, estimates, judge, observe, reference
from .runs import (
    FEWEST,
    FULL_S,
    LESS,
    OUTLIER,
    SECONDS,
    STRETCH_S,
    Run,
    Work,
    light_path_ns,
    run_bare,
    run_stretch,
    run_with,
)
from .witness import Integers

ALLOWED: Final = 1.2
"""The overhead that is allowed, in budgets."""
BARE, RECORDED, SWITCHED = 0, 1, 2
AROUND: Final = 32
"""Unsampled steps on either side that estimate a recorded step's bare time."""


@dataclass(frozen=True, slots=True)
class Cell:
    """The results of one budget on one step length."""

    step_ms: float
    bare_ms: float
    budget: float
    modules: int
    steps: int
    recorded: float
    by_steps: dict[str, float]
    by_runs: dict[str, float]
    own_clock: float
    sampling: dict[str, float]
    means: dict[str, float]
    standard_error: dict[str, float]
    near: Verdict
    names: list[dict[str, Any]]
    outliers: int

    @property
    def kept(self) -> bool:
        """Whether the overhead is within the bound."""
        return self.by_steps["value"] <= ALLOWED * self.budget


def kinds_of_steps(run: Run) -> npt.NDArray[np.int64]:
    """Classify each step: ``BARE`` (unsampled), ``RECORDED``, or ``SWITCHED`` (hooks were switched in it).

    At the end of a gap's last step the hooks go on.
    """
    kinds = np.zeros(len(run.steps_ns), dtype=np.int64)
    for frame in run.frames:
        if frame.gap_steps:
            kinds[frame.step - 2 : frame.step - 1] = SWITCHED
        kinds[frame.step - 1 : frame.step] = RECORDED
    return kinds


def overhead_by_steps(run: Run, light_ns: float) -> float:
    """Return the overhead of a run by its own bare steps; ``light_ns`` is ``session.step()`` after one of those.

    Steps beyond ``OUTLIER`` times the median of their kind are excluded; a step that autoprof makes long is not.
    """
    kinds, times = kinds_of_steps(run), run.steps_ns
    usual = np.zeros(len(times), dtype=bool)
    for kind in (BARE, RECORDED, SWITCHED):
        of_kind = kinds == kind
        if of_kind.any():
            usual |= of_kind & (times <= OUTLIER * np.median(times[of_kind]))
    bare = np.flatnonzero(usual & (kinds == BARE))
    if not len(bare):
        return float("nan")
    extra = light_ns * len(bare)
    for step in np.flatnonzero(usual & (kinds != BARE)).tolist():
        position = int(np.searchsorted(bare, step))
        around = bare[max(position - AROUND, 0) : position + AROUND]
        extra += float(times[step] - times[around].mean()) + light_ns
    return extra / (float(times[usual].sum()) - extra)


def measure(work: Work, budgets: Sequence[float], rounds: int, scale: float = 1.0) -> Iterator[Cell]:
    """Run all budgets and bare runs interleaved, with stretches of full record, and yield a cell for each budget.

    ``scale`` makes all runs shorter or longer.
    """
    steps = max(round(scale * SECONDS[work.ms] * 1e3 / work.ms), 60)
    light_ns = light_path_ns(work)
    runs: dict[float, list[Run]] = {budget: [] for budget in budgets}
    bare: list[Integers] = []
    full: list[Observed] = []
    draw = random.Random(0)
    for _ in range(rounds):
        order: list[Any] = [*budgets, "bare"]
        draw.shuffle(order)
        for variant in order:
            full += _stretches(work, scale)
            gc.collect()
            if variant == "bare":
                bare.append(run_bare(work, max(steps // LESS, 60)))
            else:
                runs[variant].append(run_with(work, steps, variant))
        full += _stretches(work, scale)
    recorded = reference(full)
    for budget in budgets:
        yield _cell(work, budget, runs[budget], recorded, bare, light_ns)


def _stretches(work: Work, scale: float) -> list[Observed]:
    length = max(round(STRETCH_S * 1e3 / work.ms), FEWEST)
    pairs = max(round(scale * FULL_S[work.ms] * 1e3 / (2 * length * work.ms)), 1)
    gc.collect()
    return [observe(run_stretch(work, length)) for _ in range(pairs)]


def _cell(
    work: Work, budget: float, runs: Sequence[Run], full: Reference, bare: Sequence[Integers], light_ns: float
) -> Cell:
    def usual_mean(times: Integers) -> float:
        return float(times[times < OUTLIER * np.median(times)].mean())

    steps = sum(len(run.steps_ns) for run in runs)
    found = estimates([observe(run) for run in runs], full)
    compared = [usual_mean(run.steps_ns) / usual_mean(times) - 1 for run, times in zip(runs, bare, strict=True)]
    return Cell(
        step_ms=work.ms,
        bare_ms=median([float(np.median(times)) for times in bare]) / 1e6,
        budget=budget,
        modules=sum(1 for _ in work.model.modules()) - 1,
        steps=steps,
        recorded=sum(len(run.frames) for run in runs) / steps,
        by_steps=asdict(stats.median([overhead_by_steps(run, light_ns) for run in runs])),
        by_runs=asdict(stats.median(compared)),
        own_clock=median([run.summary.overhead for run in runs]),
        sampling=_spread([one.sampling for one in found]),
        means=_spread([one.mean for one in found]),
        standard_error=_spread([one.error for one in found]),
        near=judge(found),
        names=[asdict(one) for one in found],
        outliers=sum(int((run.steps_ns > OUTLIER * np.median(run.steps_ns)).sum()) for run in runs),
    )


def _spread(values: Sequence[float]) -> dict[str, float]:
    sizes = [abs(value) for value in values]
    return {"median": median(sizes), "worst": max(sizes)} if sizes else {"median": float("nan"), "worst": float("nan")}
