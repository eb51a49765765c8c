"""Compare the means of sampled steps with those of all steps, by the program's own clock, the witness.

Two runs of one program differ more than the bound, so every ratio comes from one run. In a run under a budget the
witness reads each layer in all steps, and so the share of the sampled ones. A full record comes from runs that sample
every step of each second stretch: there hooks make a layer ``factor`` times as long as in the stretches around, and a
name's own mean is ``ratio`` times the witness's mean of those. Of a run under a budget therefore

    full record = ratio x mean over all steps of the witness, sampled ones divided by factor.

The drift from run to run cancels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from autoprof import Phase, StepFrame

from .runs import OUTLIER, Run

Floats = npt.NDArray[np.float64]
Booleans = npt.NDArray[np.bool_]
Names = tuple[tuple[str, str], ...]

LEAST: Final = 0.01
"""The share of the step below which a name is not judged."""
NEAR: Final = 0.02
"""How far a mean of recorded steps may lie from that of the full record."""
DOUBT: Final = 0.05
"""The chance that one name of all is called too far off though none is."""

Verdict = Literal["pass", "FAIL", "open"]


@dataclass(frozen=True, slots=True)
class Observed:
    """A run with autoprof: the witness's layer times of all steps, autoprof's of the counted ones.

    ``layers_ns`` is steps × layers. ``recorded`` marks the steps with hooks, ``counted`` (indices) which of them are
    in the means, ``bursts`` to which burst each of those belongs. ``spans_ns`` is counted × names, ``layer_of`` a
    name's column in ``layers_ns``.
    """

    layers_ns: Floats
    recorded: Booleans
    counted: npt.NDArray[np.int64]
    bursts: npt.NDArray[np.int64]
    names: Names
    layer_of: npt.NDArray[np.int64]
    spans_ns: Floats


@dataclass(frozen=True, slots=True)
class Reference:
    """The cost of a full record: by layer (``factor``), and by name over the bare witness (``ratio``).

    ``error`` is the standard error of ``ratio``, as a part of it.
    """

    names: Names
    factor: Floats
    ratio: Floats
    error: Floats


@dataclass(frozen=True, slots=True)
class Estimate:
    """A name's mean: how far off the choice of steps is, and the mean itself, each minus 1; and the standard error."""

    name: str
    phase: str
    sampling: float
    mean: float
    error: float


def observe(run: Run) -> Observed:
    """Lay a run's frames beside its witness."""
    steps, layers = run.layers_ns.shape
    recorded = np.zeros(steps, dtype=np.bool_)
    counted, bursts, rows, burst = [], [], [], 0
    names = _names(run.frames)
    layouts: dict[Any, Floats] = {}
    for frame in run.frames:
        burst += frame.gap_steps > 0
        if frame.step > steps:
            continue
        recorded[frame.step - 1] = True
        if not frame.warmup:
            if frame.layout not in layouts:
                layouts[frame.layout] = _columns(frame, names)
            counted.append(frame.step - 1)
            bursts.append(burst)
            rows.append(frame.host_ns @ layouts[frame.layout])
    return Observed(
        layers_ns=run.layers_ns.astype(np.float64),
        recorded=recorded,
        counted=np.array(counted, dtype=np.int64),
        bursts=np.array(bursts, dtype=np.int64),
        names=names,
        layer_of=np.array([_layer(name, phase, layers // 2) for name, phase in names], dtype=np.int64),
        spans_ns=np.array(rows, dtype=np.float64).reshape(len(rows), len(names)),
    )


def _names(frames: Sequence[StepFrame]) -> Names:
    """Return the names inside layers: their own and those of nested modules."""
    layouts = dict.fromkeys(frame.layout for frame in frames)
    keys = (key for layout in layouts for key in zip(layout.names, layout.phases, strict=True))
    wanted = (Phase.FORWARD, Phase.BACKWARD)
    return tuple(
        dict.fromkeys((name, str(phase)) for name, phase in keys if phase in wanted and name.split("/")[0].isdigit())
    )


def _layer(name: str, phase: str, layers: int) -> int:
    return int(name.split("/")[0]) + (layers if phase == Phase.BACKWARD else 0)


def _columns(frame: StepFrame, names: Names) -> Floats:
    """Return the matrix that adds a step's spans up by name."""
    index = {key: column for column, key in enumerate(names)}
    adds = np.zeros((len(frame.layout), len(names)))
    for row, (name, phase) in enumerate(zip(frame.layout.names, frame.layout.phases, strict=True)):
        column = index.get((name, str(phase)))
        if column is not None:
            adds[row, column] = 1.0
    return adds


def usual(ns: Floats) -> Floats:
    """Return the values (steps × columns) with the machine's interruptions replaced by NaN."""
    return np.where(ns <= OUTLIER * np.nanmedian(ns, axis=0), ns, np.nan) if len(ns) else ns


def _clean(run: Observed) -> tuple[Floats, Floats]:
    """Return the witness and the counted spans without interrupted steps, by layer: both or none."""
    witness = run.layers_ns.copy()
    for kind in (run.recorded, ~run.recorded):
        witness[kind] = usual(witness[kind])
    spans = usual(run.spans_ns)
    spans[np.isnan(witness[run.counted][:, run.layer_of])] = np.nan
    return witness, spans


def reference(stretches: Sequence[Observed]) -> Reference:
    """Return the cost of a full record, from runs with sampled stretches between others.

    The standard error is that of a ratio of means over stretches (Cochran, "Sampling Techniques", 3rd edition, 6.4).
    """
    names, layer_of = stretches[0].names, stretches[0].layer_of
    bare, hooked, spans = [], [], []
    for run in stretches:
        witness, said = _clean(run)
        bare.append(np.nanmean(witness[~run.recorded], axis=0))
        hooked.append(np.nanmean(witness[run.counted], axis=0))
        spans.append(np.nanmean(said, axis=0))
    bare_of = np.array(bare)[:, layer_of]
    ratio = np.mean(spans, axis=0) / bare_of.mean(axis=0)
    apart = np.array(spans) - ratio * bare_of
    count = len(stretches)
    error = np.sqrt((apart**2).sum(axis=0) / (count * max(count - 1, 1))) / np.mean(spans, axis=0)
    return Reference(names, np.mean(hooked, axis=0) / np.mean(bare, axis=0), ratio, error)


def estimates(runs: Sequence[Observed], full: Reference) -> list[Estimate]:
    """Return how far the means of these runs lie from the full record's, by name, and how sure that is.

    The standard error is that of a mean over bursts, whose steps resemble one another (Cochran, 9.1), and the
    reference's. Names below ``LEAST`` of the step are left out.
    """
    sampled, spans, bursts = [], [], []
    for number, run in enumerate(runs):
        chosen = [run.names.index(name) for name in full.names]
        witness, said = _clean(run)
        as_bare = np.where(run.recorded[:, None], witness / full.factor, witness)
        mean = np.nanmean(as_bare, axis=0)
        sampled.append(witness[run.counted] / (mean * full.factor))
        spans.append(said[:, chosen] / (mean[run.layer_of[chosen]] * full.ratio))
        bursts.append(run.bursts + number * (1 << 32))
        judged = np.nanmean(said[:, chosen], axis=0) >= LEAST * mean.sum()
    of_layer = np.nanmean(np.concatenate(sampled), axis=0)
    values, clusters = np.concatenate(spans), np.unique(np.concatenate(bursts), return_inverse=True)[1]
    means = np.nanmean(values, axis=0)
    with np.errstate(invalid="ignore"):  # a row that was recorded in no step has no mean
        errors = np.hypot(_standard_error(values, clusters) / means, full.error)
    return [
        Estimate(name, phase, float(of_layer[layer]) - 1, float(means[at]) - 1, float(errors[at]))
        for at, ((name, phase), layer) in enumerate(zip(full.names, runs[0].layer_of, strict=True))
        if judged[at]
    ]


def judge(found: Sequence[Estimate]) -> Verdict:
    """Return the verdict on the means; ``open`` if the worst is beyond the bound without significance.

    A name is surely off by more than ``NEAR`` where the whole interval of its mean is; with so many names it is wider
    than for one (Bonferroni).
    """
    if not found:
        return "open"
    if all(abs(one.mean) <= NEAR for one in found):
        return "pass"
    wide = NormalDist().inv_cdf(1 - DOUBT / (2 * len(found)))
    return "FAIL" if any(abs(one.mean) - wide * one.error > NEAR for one in found) else "open"


def _standard_error(values: Floats, clusters: npt.NDArray[np.int64]) -> Floats:
    apart = np.nan_to_num(values - np.nanmean(values, axis=0))
    count = int(clusters.max()) + 1
    sums = np.zeros((count, values.shape[1]))
    np.add.at(sums, clusters, apart)
    known = (~np.isnan(values)).sum(axis=0)
    return np.asarray(np.sqrt((sums**2).sum(axis=0) * count / max(count - 1, 1)) / known)
