"""Steps in a row are added up at once; the statistics are those of the same steps one by one."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from autoprof._stats.unit_rates import UnitRates
from autoprof.frame import FrameRun, Gap
from autoprof.testing import make_frame

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
