"""Steps in a row are added up at once; the statistics are those of the same steps one by one."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

import pytest
import torch
from engine_laws import EVERYTHING, Watched, everything
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn

import autoprof
from autoprof._resolve import group
from autoprof._stats import Aggregate
from autoprof._stats import cut_statistics as folding
from autoprof._stats.unit_rates import UnitRates
from autoprof.frame import FrameRun, Gap
from autoprof.summary import Summary
from autoprof.testing import FakeClock, make_frame

ITS_OWN = {"overhead", "overhead_ns", "metrics", "memory", "findings", "held"}
"""Fields that are measured on the machine, not by the fake clock; findings quote them."""


class Block(nn.Module):
    """Two layers, the second as often as told."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x: torch.Tensor, times: int) -> torch.Tensor:
        x = self.first(x)
        for _ in range(times):
            x = self.second(x)
        return x


def train(*, memory: bool, hidden: bool, alone: bool, every: int = 1) -> tuple[Summary, list[int]]:
    """Train steps of two lengths in any order; return the summary and the numbers of steps in the runs."""
    lengths: list[int] = []
    add = Aggregate.add_run

    def note(aggregate: Aggregate, run: FrameRun) -> None:
        lengths.append(len(run.frames) if run.plain else 0)
        add(aggregate, run)

    model, clock = Block(), FakeClock(tick_ns=1)
    targets = [{"match": "first", "memory": memory}, *([] if hidden else [{"match": "second"}])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Aggregate, "add_run", note)
        patch.setattr(folding, "BLOCK_STEPS", 8)
        if alone:
            patch.setattr(group, "_is_plain", lambda _raw: False)
        sample = {**EVERYTHING["sample"], "every": every}
        with Watched(model, clock=clock, config=everything(targets=targets, sample=sample)) as watched:
            for at in range(48):
                clock.advance(at * at % 7)
                loss = model(torch.ones(1, 2), 2 if at in (5, 6, 21) else 1).sum()
                clock.advance(at % 5)
                if at == 9:
                    autoprof.log_timing("elsewhere", 3)
                loss.backward()
                if at > 30:
                    watched.session.log(samples=at, loss=at / 3)
                watched.step()
        return watched.sink.summary, lengths  # type: ignore[return-value]


def described(summary: Summary) -> dict[str, Any]:
    """Return the fields that the fake clock decides."""
    found = {field.name: getattr(summary, field.name) for field in fields(summary) if field.name not in ITS_OWN}
    rows = [asdict(row) for row in summary.rows]
    found["rows"] = [{key: row[key] for key in row if not key.endswith("_bytes")} for row in rows]
    return found


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("memory", [False, True])
def test_steps_in_a_row_count_as_each_alone_does(memory: bool, hidden: bool) -> None:
    """Blocks of 8 steps, runs of up to 26 or 38, logged durations, units that begin in the middle of a run."""
    together, lengths = train(memory=memory, hidden=hidden, alone=False)
    alone, each = train(memory=memory, hidden=hidden, alone=True)
    assert described(together) == described(alone)
    assert together.steps == 48
    assert set(each) == {0}
    assert max(lengths) == (0 if memory else 38 if hidden else 26)


def test_a_run_has_the_gap_before_each_of_its_steps() -> None:
    """Every second step is recorded: units logged in the others, their time, and autoprof's own work count alike."""
    together, lengths = train(memory=False, hidden=False, alone=False, every=2)
    alone, _ = train(memory=False, hidden=False, alone=True, every=2)
    for summary in (together, alone):  # a gap has the time of autoprof's own work, by the machine's clock
        assert summary.run_ns > summary.unsampled_ns > 0
    assert {**described(together), "run_ns": 0} == {**described(alone), "run_ns": 0}
    assert (together.steps, together.unsampled_steps) == (24, 24)
    assert max(lengths) > 8


LOGGED = st.sampled_from([{}, {"samples": 8.0}, {"samples": 0.1, "tokens": 3.0}, {"samples": float("nan")}])
GAPS = st.sampled_from([Gap(), Gap(), Gap(3, 20, 1)])


@example(groups=[*[({"samples": 0.1}, [Gap()] * 5, False)] * 4, ({"samples": 8.0}, [Gap()] * 3, False)])
@given(
    groups=st.lists(st.tuples(LOGGED, st.lists(GAPS, min_size=1, max_size=5), st.booleans()), min_size=1, max_size=8)
)
def test_steps_that_log_alike_add_up_as_one_by_one(groups: list[tuple[dict[str, float], list[Gap], bool]]) -> None:
    """Units that begin late, that are no numbers or no integers, warm-up steps between the runs, gaps inside them."""
    together, alone = UnitRates(), UnitRates()
    for units, gaps, warmup in groups:
        count = len(gaps)
        if warmup:
            for rates in (together, alone):
                rates.add(make_frame([], duration_ns=5, warmup=True))
        run = FrameRun(range(count), [units] * count, [units] * count, list)
        run.duration_ns, run.gaps = [7] * count, gaps
        together.add_run(run, run.scalars, run.gap_scalars)
        for steps, ns, overhead_ns in gaps:
            gap = {"gap_steps": steps, "gap_ns": ns, "gap_overhead_ns": overhead_ns, "gap_scalars": units}
            alone.add(make_frame([], duration_ns=7, scalars=units, **gap))
    (unit, rate), (other_unit, other_rate) = together.latest(), alone.latest()
    assert (unit, rate) == (other_unit, other_rate if other_rate is None else pytest.approx(other_rate))
