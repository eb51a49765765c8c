"""Throughput, the epoch's length and the time to the end, from logged scalars or the model's inputs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from autoprof._metrics.throughput import LOGGED, RECOGNISED
from autoprof.summary import Summary
from autoprof.testing import FakeClock, ListSink, open_session

STEP_NS = 1_000_000_000
CONFIG = {"sinks": {}, "step": "manual", "sample": {"warmup": 1, "budget": None}, "flops": "off"}


def trained(model: nn.Module, *steps: Any, config: Any = None, loader: Any = None, **logged: Any) -> Summary:
    """Train one step of a second for each of ``steps``, which makes the model's calls; return the run's summary."""
    clock = FakeClock()
    with open_session(model, {**CONFIG, **(config or {})}, clock=clock) as session:
        batches = None if loader is None else iter(session.loader(loader))
        for step in steps:
            if batches is not None:
                next(batches)
            step(model)
            session.log(**logged)
            clock.advance(STEP_NS)
            session.step()
    return session.summary()


def batch(size: int, *more: int) -> Any:
    """Return a step that calls the model once on a batch of this size."""
    return lambda model: model(torch.ones(size, *(more or (4,)))).sum().backward()


def test_the_batch_size_is_recognised_where_nobody_logs_it() -> None:
    """It is the size that goes in and comes out; the summary says where it came from."""
    summary = trained(nn.Linear(4, 4), *[batch(8)] * 4)
    assert (summary.throughput, summary.throughput_unit) == (8.0, "samples")
    assert summary.progress is not None
    assert summary.progress.source == RECOGNISED


@pytest.mark.parametrize("unit", ["samples", "tokens", "frames"])
def test_what_is_logged_counts_and_not_what_would_be_recognised(unit: str) -> None:
    """Samples, tokens or frames."""
    summary = trained(nn.Linear(4, 4), *[batch(8)] * 4, **{unit: 100})
    assert (summary.throughput, summary.throughput_unit) == (100.0, unit)
    assert summary.progress is not None
    assert summary.progress.source == LOGGED


def test_a_size_that_does_not_come_out_is_not_taken_for_the_batch() -> None:
    """A sequence first, a graph, a table of anchors: the batch dimension is unknown."""

    class Pools(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).mean(0)

    assert trained(Pools(4, 4), *[batch(8)] * 3).throughput is None


def test_a_batch_in_a_mapping_is_found() -> None:
    """As language models are called and answer."""

    class Named(nn.Linear):
        def forward(self, *, features: Tensor) -> dict[str, Tensor]:
            return {"logits": super().forward(features)}

    def step(model: nn.Module) -> None:
        model(features=torch.ones(6, 4))["logits"].sum().backward()

    assert trained(Named(4, 4), *[step] * 3).throughput == 6.0


def test_micro_batches_of_one_step_add_up() -> None:
    """Each has a backward of its own."""

    def step(model: nn.Module) -> None:
        for size in (8, 8, 2):
            model(torch.ones(size, 4)).sum().backward()

    summary = trained(nn.Sequential(nn.Linear(4, 4)), *[step] * 3, config={"targets": [{"match": ".+"}]})
    assert summary.throughput == 18.0


def test_a_model_called_twice_for_one_backward_has_no_known_batch() -> None:
    """Two views of the same samples look like a batch in two halves."""

    def step(model: nn.Module) -> None:
        (model(torch.ones(8, 4)) - model(torch.zeros(8, 4))).sum().backward()

    summary = trained(nn.Sequential(nn.Linear(4, 4)), *[step] * 3, config={"targets": [{"match": ".+"}]})
    assert summary.throughput is None


def test_calls_that_do_not_train_hold_no_samples() -> None:
    """A forward in eval mode, or one without gradients."""

    def step(model: nn.Module) -> None:
        with torch.no_grad():
            model(torch.ones(5, 4))

    assert trained(nn.Linear(4, 4), *[step] * 3).throughput is None


def test_a_smaller_last_batch_counts_as_what_it_is() -> None:
    """Samples over time, not the usual batch over the usual step."""
    assert trained(nn.Linear(4, 4), batch(1), batch(8), batch(8), batch(2)).throughput == 6.0


def test_the_epoch_is_as_long_as_the_loader() -> None:
    """Batches of the loader over those that a step fetches, by the median of the recorded steps."""
    pace = trained(nn.Linear(4, 4), *[batch(8)] * 4, loader=[0] * 50).progress
    assert pace is not None
    assert (pace.epoch_steps, pace.epoch_ns) == (50.0, 50 * STEP_NS)


def test_a_loader_without_a_length_makes_no_epoch() -> None:
    """A stream has none."""
    pace = trained(nn.Linear(4, 4), *[batch(8)] * 4, loader=iter([0] * 50)).progress
    assert pace is not None
    assert pace.epoch_steps is None


def test_the_time_to_the_end_follows_from_the_number_of_steps() -> None:
    """``session.log(total_steps=…)`` says it; it is no scalar of a step."""
    sink, clock = ListSink(), FakeClock()
    model = nn.Linear(4, 4)
    with open_session(model, CONFIG, clock=clock, sinks=[sink]) as session:
        for number in range(5):
            if not number:
                session.log(total_steps=100)
            batch(8)(model)
            clock.advance(STEP_NS)
            session.step()
    pace = session.summary().progress
    assert pace is not None
    assert (pace.total_steps, pace.remaining_steps, pace.remaining_ns) == (100, 95, 95 * STEP_NS)
    assert all("total_steps" not in frame.scalars for frame in sink.frames)


@pytest.mark.parametrize("nonsense", [float("nan"), float("inf"), -3, 0])
def test_a_length_that_is_none_is_not_taken(nonsense: float) -> None:
    """Nothing fails, nothing is foretold."""
    pace = trained(nn.Linear(4, 4), *[batch(8)] * 2, total_steps=nonsense).progress
    assert pace is not None
    assert pace.remaining_ns is None


def test_shapes_that_never_repeat_do_not_make_the_run_grow() -> None:
    """Shapes beyond the limit have no samples, and use no memory."""
    summary = trained(nn.Linear(4, 4), *[batch(1 + size) for size in range(200)])
    assert summary.throughput is not None
    assert summary.steps == 199
