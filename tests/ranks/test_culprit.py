"""The slow rank among values with noise: named with its row and its kind, and no healthy rank accused."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from rank_builders import MS, USUAL_MS, make_records, noisy_rows, with_fault

from autoprof import ranks as rank_comparison
from autoprof.base.frame import Phase
from autoprof.ranks import RankComparison, RankRecord, SlowRank, SpanKey, phrase_slow
from autoprof.ranks.record import COMM_ROW, OUTSIDE_ROW

MIDDLE_FORWARD, MIDDLE_BACKWARD = ("middle", Phase.FORWARD), ("middle", Phase.BACKWARD)
OPTIMIZER, DATA = ("Optimizer", Phase.OPTIMIZER), ("Data", Phase.DATA)


def compare_ranks(records: list[RankRecord]) -> RankComparison:
    """Compare these ranks, of which none is absent."""
    return rank_comparison.compare_ranks(dict(enumerate(records)))


def always(_step: int) -> bool:
    """Return True: a persistent fault."""
    return True


def seventh(step: int) -> bool:
    """Return whether a fault that recurs every 7 steps is in this step."""
    return step % 7 == 3


def once(step: int) -> bool:
    """Return whether a single fault is in this step."""
    return step == 37


def named(comparison: RankComparison) -> list[tuple[int, str, SpanKey]]:
    """Return the slow ranks: number, kind and row."""
    return [(one.rank, one.kind, (one.name, one.phase)) for one in comparison.slow]


def only(comparison: RankComparison) -> SlowRank:
    """Return the single slow rank."""
    (one,) = comparison.slow
    return one


@pytest.mark.parametrize(("ranks", "steps"), [(2, 60), (4, 10), (4, 256), (8, 60)])
def test_no_rank_of_100_healthy_runs_is_accused(ranks: int, steps: int) -> None:
    """Processors differ by some percent, and any row may wait 40 ms for one; all ranks communicate late at times."""
    found = [compare_ranks(make_records(noisy_rows(seed, ranks, steps))) for seed in range(100)]
    assert not [one for one in found if one.slow]


@pytest.mark.parametrize("key", [MIDDLE_FORWARD, MIDDLE_BACKWARD, OPTIMIZER, DATA, OUTSIDE_ROW])
@pytest.mark.parametrize("ranks", [2, 4])
def test_a_persistent_fault_is_named_in_its_row(key: SpanKey, ranks: int) -> None:
    """Ten milliseconds of a step of 22, in each of 10 runs."""
    for seed in range(10):
        found = compare_ranks(with_fault(seed, key, 10.0, always, ranks=ranks, rank=1))
        assert named(found) == [(1, "persistent", key)]
        assert only(found).excess_ns.middle == pytest.approx(10 * MS, rel=0.1)


@pytest.mark.parametrize("key", [MIDDLE_FORWARD, MIDDLE_BACKWARD, OPTIMIZER, DATA])
def test_a_recurring_fault_is_named_with_its_period(key: SpanKey) -> None:
    """Most steps are as usual, so that no median shows it."""
    for seed in range(10):
        found = compare_ranks(with_fault(seed, key, 20.0, seventh))
        assert named(found) == [(2, "recurring", key)]
        assert only(found).period == 7


def test_a_fault_in_irregular_steps_recurs_without_a_period() -> None:
    """Steps 5, 11, 12, 23, 38, 41, 55."""
    found = compare_ranks(with_fault(3, MIDDLE_FORWARD, 30.0, {5, 11, 12, 23, 38, 41, 55}.__contains__))
    assert named(found) == [(2, "recurring", MIDDLE_FORWARD)]
    assert only(found).period is None
    assert set(only(found).steps) >= {5, 11, 12, 23, 38, 41, 55}


@pytest.mark.parametrize("key", [MIDDLE_FORWARD, MIDDLE_BACKWARD, OPTIMIZER, DATA, OUTSIDE_ROW])
def test_a_single_pause_is_named_with_its_step(key: SpanKey) -> None:
    """Half a second in one step."""
    for seed in range(10):
        found = compare_ranks(with_fault(seed, key, 500.0, once))
        assert named(found) == [(2, "one-off", key)]
        assert only(found).steps[0] in (36, 37)  # a smaller delay may be its neighbour
        assert only(found).late <= 3


SPREAD = [key for key in USUAL_MS if key[1] in (Phase.FORWARD, Phase.BACKWARD)]


def with_larger_batches(seed: int, ms: float, when: Callable[[int], bool]) -> list[RankRecord]:
    """Make the records of ranks of which rank 2 takes longer in some steps, by a part of ``ms`` in each module."""
    rows = noisy_rows(seed, 4, 60)
    usual_ms = sum(USUAL_MS[key] for key in SPREAD)
    late = np.array([when(step) for step in range(1, 61)])
    for key in SPREAD:
        rows[2][key] = rows[2][key] + late * ms * USUAL_MS[key] / usual_ms
    return make_records(rows)


def test_one_long_batch_is_named_though_no_row_alone_takes_long() -> None:
    """0.25 s in seven rows, the largest of them 80 ms."""
    for seed in range(10):
        found = compare_ranks(with_larger_batches(seed, 250.0, once))
        assert named(found) == [(2, "one-off", ("encoder", Phase.BACKWARD))]
        assert 37 in only(found).steps
    said = phrase_slow(compare_ranks(with_larger_batches(0, 250.0, once)))
    assert "once, in step 37, spread over its rows, most of all encoder (backward" in said


def test_a_rank_that_is_stopped_now_and_then_is_named_wherever_it_stops() -> None:
    """Every seventh step a tenth of a second: while it fetches data, or outside of all spans, in turns."""
    for seed in range(10):
        rows = noisy_rows(seed, 4, 34)
        for step in range(3, 34, 7):
            rows[2][DATA if step % 2 else OUTSIDE_ROW][step - 1] += 100.0
        found = compare_ranks(make_records(rows))
        assert [(one.rank, one.kind, one.period) for one in found.slow] == [(2, "recurring", 7)]


def test_a_long_step_of_two_ranks_accuses_none() -> None:
    """The machine has stalled both."""
    rows = noisy_rows(0, 4, 60)
    for key in SPREAD:
        for rank in (1, 2):
            rows[rank][key][36] += 30.0
    assert compare_ranks(make_records(rows)).slow == ()


def test_two_slow_ranks_are_both_named() -> None:
    """Each with its row; making the slower one faster gains only the difference."""
    rows = noisy_rows(5, 4, 60)
    rows[0][MIDDLE_FORWARD] += 10.0
    rows[3][OPTIMIZER] += 6.0
    found = compare_ranks(make_records(rows))
    assert named(found) == [(0, "persistent", MIDDLE_FORWARD), (3, "persistent", OPTIMIZER)]
    assert found.slow[0].gain_ns == pytest.approx(4 * MS, rel=0.1)
    assert found.slow[1].gain_ns == 0


def test_a_rank_that_is_slow_in_a_part_of_the_run_is_not_called_persistent() -> None:
    """It was slow from step 30 to step 45."""
    found = compare_ranks(with_fault(2, MIDDLE_FORWARD, 40.0, range(30, 46).__contains__))
    assert named(found) == [(2, "one-off", MIDDLE_FORWARD)]
    assert only(found).late >= 15
    assert only(found).steps[0] == 30


def test_the_wait_for_a_rank_inside_of_a_module_accuses_no_other_rank() -> None:
    """A synchronised normalisation in ``decoder``: three ranks wait there while the fourth computes ``middle``."""
    rows = noisy_rows(4, 4, 60)
    rows[1][MIDDLE_FORWARD] += 10.0
    for rank in (0, 2, 3):
        rows[rank]["decoder", Phase.FORWARD] += 10.0
    assert named(compare_ranks(make_records(rows))) == [(1, "persistent", MIDDLE_FORWARD)]


def test_of_two_ranks_one_of_which_waits_inside_of_a_module_none_is_accused() -> None:
    """Both are slow by the same time, in different rows: either may be the wait."""
    rows = noisy_rows(4, 2, 60)
    rows[1][MIDDLE_FORWARD] += 10.0
    rows[0]["decoder", Phase.FORWARD] += 10.0
    found = compare_ranks(make_records(rows))
    assert found.slow == ()
    assert found.unclear is not None
    assert "decoder (forward) on one rank, middle (forward) on the other" in found.unclear


def test_time_outside_of_spans_is_only_blamed_if_the_others_wait() -> None:
    """A rank may wait there itself, in a call that no probe sees."""
    rows = noisy_rows(6, 4, 60)
    for rank in (0, 1, 3):
        rows[rank][COMM_ROW] = np.full(60, 1.0)
    rows[2][OUTSIDE_ROW] += 10.0
    records = make_records(rows)
    even = np.full(60, 2 * MS)
    records = [replace(one, rows={**one.rows, COMM_ROW: even}) for one in records]
    assert compare_ranks(records).slow == ()


def test_a_dead_rank_is_named_and_the_others_are_compared() -> None:
    """It has recorded three steps."""
    records = with_fault(1, MIDDLE_FORWARD, 10.0, always)
    dead = records[0].select(np.arange(1, 4))
    found = compare_ranks([dead, *records[1:]])
    assert named(found) == [(2, "persistent", MIDDLE_FORWARD)]
    assert found.absent == (0,)
    assert found.compared == (1, 2, 3)


def test_too_few_common_steps_are_no_comparison() -> None:
    """Most ranks have recorded other steps."""
    records = make_records(noisy_rows(0, 4, 60))
    parts = [one.select(np.arange(1 + 15 * at, 16 + 15 * at)) for at, one in enumerate(records)]
    assert "10 needed, 0 so far" in (compare_ranks(parts).missing or "")


# Rows of ranks that have recorded other modules.


def split(record: RankRecord, key: SpanKey, steps: slice = slice(None)) -> RankRecord:
    """Record a row's time in two rows inside it, in some of the steps."""
    inner = [(f"{key[0]}/{part}", key[1]) for part in "ab"]
    zero = np.zeros_like(record.rows[key])
    rows = {**record.rows, inner[0]: zero.copy(), inner[1]: zero.copy(), key: record.rows[key].copy()}
    rows[inner[0]][steps] = 2 * rows[key][steps] // 3
    rows[inner[1]][steps] = rows[key][steps] // 3
    rows[key][steps] = 1
    return replace(record, rows=rows, parents={**record.parents, inner[0]: key, inner[1]: key})


@pytest.mark.parametrize("steps", [slice(None), slice(20, None)], ids=["always", "from step 20 on"])
def test_a_rank_with_finer_rows_is_not_slower_for_it(steps: slice) -> None:
    """Rank 1 has opened ``encoder``; its time is the same."""
    records = make_records(noisy_rows(7, 4, 60))
    records[1] = split(records[1], ("encoder", Phase.BACKWARD), steps)
    assert compare_ranks(records).slow == ()


def test_a_slow_rank_with_finer_rows_is_named_by_the_row_inside() -> None:
    """The others have the row around it."""
    records = with_fault(7, ("encoder", Phase.FORWARD), 10.0, always, rank=1)
    records[1] = split(records[1], ("encoder", Phase.FORWARD))
    assert named(compare_ranks(records)) == [(1, "persistent", ("encoder/a", Phase.FORWARD))]


def test_a_rank_without_modules_is_compared_by_the_whole() -> None:
    """Its modules' time is outside of all spans."""
    records = make_records(noisy_rows(8, 4, 60))
    modules = [key for key in USUAL_MS if key[1].traits.in_module]
    rows: dict[SpanKey, Any] = {key: ns for key, ns in records[3].rows.items() if key not in modules}
    rows[OUTSIDE_ROW] = rows[OUTSIDE_ROW] + sum(records[3].rows[key] for key in modules)
    records[3] = replace(records[3], rows=rows)
    assert compare_ranks(records).slow == ()


# What it is.


def with_scalar(records: list[RankRecord], name: str, values: list[float]) -> list[RankRecord]:
    """Add a reading of each rank in every fifth step."""
    found = []
    for record, value in zip(records, values, strict=True):
        readings = np.full(len(record.steps), np.nan)
        readings[::5] = value
        found.append(replace(record, scalars={name: readings}))
    return found


def slower(seed: int, factor: float, keys: list[SpanKey]) -> list[RankRecord]:
    """Make rank 2 slower by a factor in some rows."""
    rows = noisy_rows(seed, 4, 60)
    for key in keys:
        rows[2][key] *= factor
    return make_records(rows)


EVERY = list(USUAL_MS)
SCALARS = {
    "clock": ("gpu_sm_clock_mhz", [1980.0, 1975.0, 1320.0, 1980.0], 2 / 3),
    "batches": ("tokens", [1000.0, 1010.0, 1500.0, 990.0], 1.5),
    "busy machine": ("host_cpu_waiting", [0.05, 0.04, 0.5, 0.06], 0.45),
}


@pytest.mark.parametrize(
    ("cause", "keys"),
    [
        ("data", [DATA]),
        ("module", [MIDDLE_FORWARD]),
        ("machine", EVERY),
        ("clock", EVERY),
        ("batches", SPREAD),
        ("busy machine", EVERY),
    ],
)
def test_the_cause_is_named(cause: str, keys: list[SpanKey]) -> None:
    """By the phase, by a reading that differs from the others', or by the number of rows that are slower."""
    records = with_fault(0, keys[0], 10.0, always) if len(keys) == 1 else slower(0, 1.8, keys)
    name, values, ratio = SCALARS.get(cause, (None, [], None))
    found = only(compare_ranks(records if name is None else with_scalar(records, name, values)))
    assert (found.rank, found.cause) == (2, cause)
    assert found.ratio == (None if ratio is None else pytest.approx(ratio, rel=0.02))


def test_larger_batches_are_the_cause_where_they_explain_the_excess() -> None:
    """The part of the excess that they cost is said; a rank with a little more data that is much slower has another."""
    longer = slower(0, 1.8, SPREAD)
    found = only(compare_ranks(with_scalar(longer, "input_elements", [1000.0, 1000.0, 1800.0, 1000.0])))
    assert (found.cause, found.amount) == ("batches", "input_elements")
    assert found.explained == pytest.approx(1, abs=0.1)
    said = phrase_slow(compare_ranks(with_scalar(longer, "input_elements", [1000.0, 1000.0, 1800.0, 1000.0])))
    assert re.search(r"Its batches are larger: 1\.80 times the others' input elements, which explains all of it", said)
    found = only(compare_ranks(with_scalar(longer, "input_elements", [1000.0, 1000.0, 1100.0, 1000.0])))
    assert (found.cause, found.amount) == ("machine", "")


def test_the_same_work_that_takes_longer_is_said() -> None:
    """The amounts of data are known, and are those of the others."""
    ranks = compare_ranks(with_scalar(slower(0, 1.8, SPREAD), "tokens", [1000.0, 990.0, 1010.0, 1000.0]))
    assert ". It has as many tokens as the others. It is slower in nearly all rows" in phrase_slow(ranks)


def test_a_slow_network_accuses_no_rank() -> None:
    """All ranks communicate longer."""
    rows = noisy_rows(0, 4, 60)
    for of_rank in rows:
        of_rank[COMM_ROW] = np.full(60, 30.0)
    records = make_records([{key: ms for key, ms in of_rank.items() if key != COMM_ROW} for of_rank in rows])
    longer = [
        replace(one, step_ns=one.step_ns + 30 * MS, rows={**one.rows, COMM_ROW: one.rows[COMM_ROW] + 30 * MS})
        for one in records
    ]
    found = compare_ranks(longer)
    assert found.slow == ()
    assert found.pure_comm_ns == pytest.approx(32 * MS, rel=0.01)
