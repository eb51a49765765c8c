"""What a run cost, by its own steps and against bare runs; and how far sampled means lie from the full record."""

from __future__ import annotations

import gc
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from autoprof import StepFrame
from autoprof.governor import BURST

from .. import stats
from .runs import LESS, OUTLIER, SECONDS, Integers, Run, Work, light_path_ns, run_bare, run_with

ALLOWED: Final = 1.2
"""The overhead that is allowed, in budgets."""
NEAR: Final = 0.02
"""How far the means of sampled steps may lie from those of the full record."""
BARE, RECORDED, SWITCHED = 0, 1, 2
AROUND: Final = 32
"""Steps left alone on either side that say what a recorded step would have taken."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What one budget came to on one length of step."""

    step_ms: float
    budget: float
    modules: int
    steps: int
    recorded: float
    by_steps: dict[str, float]
    by_runs: dict[str, float]
    own_clock: float
    paired: dict[str, float] | None
    mean_error: float
    worst_error: float
    outliers: int

    @property
    def kept(self) -> bool:
        """Whether the overhead is within what is allowed."""
        return self.by_steps["value"] <= ALLOWED * self.budget

    @property
    def near(self) -> bool:
        """Whether the means of the sampled steps are those of the full record, the worst of them too."""
        return self.worst_error <= NEAR


def kinds_of_steps(run: Run) -> npt.NDArray[np.int64]:
    """Return what autoprof did in each step: ``BARE`` nothing but count, ``RECORDED`` it, ``SWITCHED`` around gaps.

    At the end of a gap's last step the hooks go on; after as many steps of a gap as were recorded before it, a session
    looks after what waits.
    """
    kinds = np.zeros(len(run.steps_ns), dtype=np.int64)
    burst = 0
    for frame in run.frames:
        if frame.gap_steps:
            kinds[frame.step - 2 : frame.step - 1] = SWITCHED
            compared = min(burst, BURST)
            if frame.gap_steps > compared:
                kinds[frame.step - 2 - frame.gap_steps + compared :][:1] = SWITCHED
            burst = 0
        kinds[frame.step - 1 : frame.step] = RECORDED
        burst += 1
    return kinds


def overhead_by_steps(run: Run, light_ns: float) -> float:
    """Return the overhead of a run by its own bare steps; ``light_ns`` is ``session.step()`` after one of those.

    Steps beyond ``OUTLIER`` times the median of their kind are left out: what autoprof makes long is no outlier.
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


def means(frames: Sequence[StepFrame]) -> dict[tuple[str, str], float]:
    """Return the mean of each name and phase over these steps, those of the machine left out."""
    length = median([frame.duration_ns for frame in frames])
    sums: dict[tuple[str, str], tuple[float, int]] = {}
    columns: dict[Any, list[Integers]] = {}
    for frame in frames:
        if frame.duration_ns <= OUTLIER * length and not frame.warmup:
            columns.setdefault(frame.layout, []).append(frame.host_ns)
    for layout, steps in columns.items():
        total = np.sum(steps, axis=0)
        keys = list(zip(layout.names, map(str, layout.phases), strict=True))
        for key in dict.fromkeys(keys):
            ns, count = sums.get(key, (0.0, 0))
            own = sum(int(total[at]) for at, one in enumerate(keys) if one == key)
            sums[key] = ns + own, count + len(steps)
    return {key: ns / count for key, (ns, count) in sums.items()}


def mean_errors(sampled: Sequence[StepFrame], theirs: dict[tuple[str, str], float], step_ns: float) -> list[float]:
    """Return how far the sampled means lie from the full record's, for what is above a hundredth of the step."""
    ours = means(sampled)
    return [abs(ours[key] / theirs[key] - 1) for key in theirs if key in ours and theirs[key] >= step_ns / 100]


def measure(work: Work, budgets: Sequence[float], rounds: int, scale: float = 1.0) -> Iterator[Cell]:
    """Run all budgets, the full record and bare runs in turns, and yield a cell for each budget.

    ``scale`` makes all runs shorter or longer.
    """
    steps = max(round(scale * SECONDS[work.ms] * 1e3 / work.ms), 60)
    fewer = max(steps // LESS, 60)
    light_ns = light_path_ns(work)
    variants: list[float | None] = [*budgets, None]
    runs: dict[float | None, list[Run]] = {budget: [] for budget in variants}
    bare: list[Integers] = []
    draw = random.Random(0)
    for _ in range(rounds):
        order: list[Any] = [*variants, "bare"]
        draw.shuffle(order)
        for variant in order:
            gc.collect()
            if variant == "bare":
                bare.append(run_bare(work, fewer))
            else:
                runs[variant].append(run_with(work, fewer if variant is None else steps, variant))
    full = means([frame for run in runs[None] for frame in run.frames])
    for budget in budgets:
        yield _cell(work, budget, runs[budget], full, bare, light_ns)


def _cell(
    work: Work,
    budget: float,
    runs: Sequence[Run],
    full: dict[tuple[str, str], float],
    bare: Sequence[Integers],
    light_ns: float,
) -> Cell:
    def usual_mean(times: Integers) -> float:
        return float(times[times < OUTLIER * np.median(times)].mean())

    last = runs[-1].summary
    frames = [frame for run in runs for frame in run.frames]
    errors = mean_errors(frames, full, work.ms * 1e6)
    compared = [usual_mean(run.steps_ns) / usual_mean(times) - 1 for run, times in zip(runs, bare, strict=True)]
    return Cell(
        step_ms=work.ms,
        budget=budget,
        modules=sum(1 for _ in work.model.modules()) - 1,
        steps=sum(len(run.steps_ns) for run in runs),
        recorded=len(frames) / sum(len(run.steps_ns) for run in runs),
        by_steps=asdict(stats.median([overhead_by_steps(run, light_ns) for run in runs])),
        by_runs=asdict(stats.median(compared)),
        own_clock=median([run.summary.overhead for run in runs]),
        paired=None if last.paired is None else dict(zip(("value", "low", "high"), last.paired.of_run, strict=True)),
        mean_error=median(errors) if errors else float("nan"),
        worst_error=max(errors, default=float("nan")),
        outliers=sum(int((run.steps_ns > OUTLIER * np.median(run.steps_ns)).sum()) for run in runs),
    )
