"""The means of recorded steps against a clock of the program's own, on runs whose error is known."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import nn

import autoprof
from autoprof import Phase, Span, StepFrame
from autoprof.testing import ListSink, make_frame
from benchmarks.budget import witness as witness_module
from benchmarks.budget.means import Estimate, Observed, Reference, estimates, judge, observe, reference
from benchmarks.budget.runs import Run
from benchmarks.budget.witness import Chain, Witness

LAYERS = 2
USUAL_NS = np.array([1000, 2000, 3000, 4000])
"""Forwards of both layers, then their backwards."""
HOOKS_NS = 500
INSIDE_NS = 300
"""What hooks add to a layer, and what of it lies between autoprof's own readings."""


def a_run(
    recorded: Callable[[int], bool],
    length: Callable[[int], float] = lambda step: 1.0,
    hooks_ns: int = HOOKS_NS,
    inside_ns: int = INSIDE_NS,
    steps: int = 400,
) -> Run:
    """Return a run whose step ``i`` takes ``length(i)`` times the usual, with hooks where it is recorded."""
    layers = np.array([USUAL_NS * length(i) for i in range(steps)]).round().astype(np.int64)
    frames, left = [], 0
    for i in range(steps):
        if not recorded(i):
            left += 1
            continue
        frames.append(a_frame(i + 1, layers[i] + inside_ns, left))
        layers[i] += hooks_ns
        left = 0
    return Run(layers.sum(axis=1), layers, frames, None)


def a_frame(step: int, ns: npt.NDArray[np.int64], gap: int) -> StepFrame:
    """Return a step of both layers, a module inside the first one that takes half of it, and one of another kind."""
    spans, at = [], 0
    for column, took in enumerate(ns.tolist()):
        phase = Phase.FORWARD if column < LAYERS else Phase.BACKWARD
        spans.append(Span(str(column % LAYERS), str(column % LAYERS), phase, None, at, took))
        at += took
    spans.append(Span("0/norm", "0.norm", Phase.FORWARD, 0, 0, int(ns[0]) // 2))
    spans.append(Span("Optimizer", None, Phase.OPTIMIZER, None, at, 700))
    return make_frame(spans, step=step, duration_ns=at + 700, gap_steps=gap)


def full_record(**changes: int) -> Reference:
    """Return what stretches tell, each half bare and half recorded, some slower than others."""
    stretches = [
        observe(a_run(lambda i: i >= 20, lambda _, slow=slow: slow, steps=40, **changes))  # type: ignore[misc]
        for slow in (1.0, 1.0, 1.0, 1.0)
    ]
    return reference(stretches)


def found(run: Run, full: Reference | None = None) -> dict[tuple[str, str], Estimate]:
    """Return the estimates of one run by name and phase."""
    return {(one.name, one.phase): one for one in estimates([observe(run)], full or full_record())}


def every_tenth(step: int) -> bool:
    """Record two of twenty steps."""
    return step % 20 in (0, 1)


def test_sampled_steps_like_all_others_are_off_by_nothing() -> None:
    """Of every name in a layer, that of the module inside too; the optimizer is in none."""
    estimate = found(a_run(every_tenth))
    assert set(estimate) == {
        ("0", "forward"), ("1", "forward"), ("0", "backward"), ("1", "backward"), ("0/norm", "forward"),
    }  # fmt: skip
    for one in estimate.values():
        assert one.sampling == pytest.approx(0.0, abs=1e-9)
        assert one.mean == pytest.approx(0.0, abs=1e-3)


def test_hooks_that_add_a_constant_are_no_error() -> None:
    """A full record holds them as well: a layer of 1000 ns that autoprof reads as 1900 is right, if that reads so."""
    dear = {"hooks_ns": 1500, "inside_ns": 900}
    estimate = found(a_run(every_tenth, **dear), full_record(**dear))
    assert all(abs(one.mean) < 1e-3 and abs(one.sampling) < 1e-9 for one in estimate.values())


def test_a_machine_that_is_slower_in_one_run_is_no_error() -> None:
    """Twice as slow, hooks too, in all steps of the run: two full records would differ by all of it."""
    estimate = found(a_run(every_tenth, lambda _: 2.0, hooks_ns=2 * HOOKS_NS, inside_ns=2 * INSIDE_NS))
    assert all(abs(one.mean) < 1e-3 and abs(one.sampling) < 1e-9 for one in estimate.values())


def test_recording_only_slow_steps_is_found() -> None:
    """A tenth of the steps takes twice as long, and just those are recorded: the mean of all is 1.1 times the usual."""
    estimate = found(a_run(every_tenth, lambda step: 2.0 if every_tenth(step) else 1.0))
    longest = estimate["1", "backward"]
    # The witness: recorded steps 8000 + hooks, taken as bare ones that hooks made longer by their usual factor.
    factor = 4500 / 4000
    mean = 0.9 * 4000 + 0.1 * 8500 / factor
    assert longest.sampling == pytest.approx(8500 / (mean * factor) - 1)
    assert longest.sampling > 0.7
    # Autoprof: 8000 + 300 where a full record would say 4300 of each 4000.
    assert longest.mean == pytest.approx(8300 / (mean * 4300 / 4000) - 1)
    assert longest.mean > 0.7
    assert judge(list(estimate.values())) == "FAIL"


def test_readings_that_are_longer_in_a_burst_are_found() -> None:
    """Hooks in cold caches: 400 ns more inside each span than in a full record, which the witness sees as well."""
    estimate = found(a_run(every_tenth, hooks_ns=HOOKS_NS + 400, inside_ns=INSIDE_NS + 400))
    assert estimate["0", "forward"].mean == pytest.approx(1700 / 1300 - 1, rel=0.15)
    assert estimate["1", "backward"].mean == pytest.approx(4700 / 4300 - 1, rel=0.15)
    assert all(one.mean > 0 for one in estimate.values())


def test_a_reading_that_is_wrong_while_the_steps_are_right_is_found() -> None:
    """The choice of steps is faultless, yet autoprof's readings in this run are 400 ns too long."""
    estimate = found(a_run(every_tenth, inside_ns=INSIDE_NS + 400))
    assert estimate["0", "forward"].sampling == pytest.approx(0.0, abs=1e-9)
    assert estimate["0", "forward"].mean == pytest.approx(1700 / 1300 - 1, abs=1e-3)


def test_what_the_machine_interrupts_is_left_out_of_both() -> None:
    """One sampled and one unsampled step that each took fifty times as long."""
    estimate = found(a_run(every_tenth, lambda step: 50.0 if step in (40, 47) else 1.0))
    assert all(abs(one.mean) < 1e-3 and abs(one.sampling) < 1e-9 for one in estimate.values())


def test_the_standard_error_is_that_of_bursts() -> None:
    """Bursts of two equal steps, half of them a tenth up, half a tenth down: 20 bursts, 0.1 / sqrt(20) and a little."""
    run = observe(a_run(every_tenth, lambda step: 1.1 if step // 20 % 2 else 0.9, hooks_ns=0, inside_ns=0))
    full = full_record(hooks_ns=0, inside_ns=0)
    one = next(one for one in estimates([run], full) if one.name == "1")
    assert len(np.unique(run.bursts)) == 20
    assert one.error == pytest.approx(0.1 / np.sqrt(19), rel=1e-6)


def test_several_runs_are_taken_together_each_by_its_own_witness() -> None:
    """One is slow as a whole, one is quick; neither is off."""
    runs = [observe(a_run(every_tenth, lambda _, slow=slow: slow, hooks_ns=0, inside_ns=0)) for slow in (1.0, 3.0)]  # type: ignore[misc]
    full = full_record(hooks_ns=0, inside_ns=0)
    assert all(abs(one.mean) < 1e-3 for one in estimates(runs, full))


def test_settling_steps_have_hooks_but_are_not_counted() -> None:
    """As the summary leaves them out of its means."""
    run = a_run(every_tenth)
    object.__setattr__(run.frames[0], "warmup", True)
    seen = observe(run)
    assert seen.recorded[0]
    assert 0 not in seen.counted
    assert len(seen.counted) == len(run.frames) - 1


def an_estimate(mean: float, error: float) -> Estimate:
    """Return the estimate of one name."""
    return Estimate("0", "forward", 0.0, mean, error)


@pytest.mark.parametrize(
    ("mean", "error", "verdict"),
    [(0.019, 0.05, "pass"), (-0.021, 0.01, "open"), (-0.06, 0.01, "FAIL"), (0.06, 0.03, "open")],
)
def test_a_mean_is_near_or_surely_off_or_neither(mean: float, error: float, verdict: str) -> None:
    """Beyond 2 % by less than the interval is called neither."""
    assert judge([an_estimate(mean, error), an_estimate(0.0, error)]) == verdict
    assert judge([]) == "open"


class Ticking(nn.Module):
    """A layer whose forward takes so much of the clock and whose backward twice that."""

    def __init__(self, clock: list[int], ticks: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.clock, self.ticks = clock, ticks

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.clock[0] += self.ticks
        made = x * self.weight
        made.register_hook(self.backward)
        return made * 1.0

    def backward(self, _gradient: torch.Tensor) -> None:
        """Take time."""
        self.clock[0] += 2 * self.ticks


def test_the_witness_reads_each_layers_forward_and_backward(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers of 1, 10 and 100 ticks: what each took is in its own column, step by step."""
    clock = [0]
    monkeypatch.setattr(witness_module, "perf_counter_ns", lambda: clock[0])
    witness = Witness(3)
    model = Chain(witness, *(Ticking(clock, ticks) for ticks in (1, 10, 100)))
    witness.begin(2)
    for _ in range(2):
        model(torch.ones(1, requires_grad=True)).sum().backward()
        witness.read()
        clock[0] += 7
    assert witness.times().tolist() == 2 * [[1, 10, 100, 2, 20, 200]]


def test_the_witness_of_half_a_step_says_so() -> None:
    """A layer that was left out would shift all that comes after."""
    witness = Witness(3)
    witness.read()
    with pytest.raises(RuntimeError, match="no whole steps"):
        witness.times()


def test_autoprof_sees_the_same_with_a_witness_and_without() -> None:
    """Names, phases and parents of a step."""
    seen = []
    for make in (lambda *layers: Chain(Witness(2), *layers), nn.Sequential):
        model, sink = make(nn.Linear(2, 2), nn.Linear(2, 2)), ListSink()
        with autoprof.instrument(model, {"targets": [{"match": ".+"}], "sinks": {}}, sinks=[sink]) as session:
            model(torch.ones(1, 2)).sum().backward()
            session.step()
        layout = sink.frames[0].layout
        seen.append((layout.names, layout.phases, layout.parents))
    assert seen[0] == seen[1]


def test_observed_columns_follow_the_names() -> None:
    """A forward belongs to its layer's first column, a backward to that in the other half."""
    seen: Observed = observe(a_run(every_tenth))
    of = dict(zip(seen.names, seen.layer_of.tolist(), strict=True))
    assert of["0", "forward"] == of["0/norm", "forward"] == 0
    assert (of["1", "forward"], of["0", "backward"], of["1", "backward"]) == (1, 2, 3)
