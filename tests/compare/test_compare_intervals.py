"""How sure a ratio is: the intervals, and how often they say what is not so."""

from math import exp, log

import numpy as np
import pytest
from compare_builders import noise
from scipy import stats

from autoprof.base.stats.intervals import t_tail
from autoprof.frontends.compare.candidates import Candidate, give_verdicts
from autoprof.frontends.compare.contrast import Estimate, contrast, estimate_run
from autoprof.frontends.compare.data import Change


def run(values: np.ndarray, *, ranks: int = 1, is_mean: bool = False) -> Estimate:
    return estimate_run([values] * ranks, is_mean=is_mean)


def of_steps(a: np.ndarray, b: np.ndarray) -> Estimate:
    return contrast([run(a)], [run(b)])


def rare(seed: int) -> np.ndarray:
    """Return 300 steps of which one in ten, drawn at random, is long."""
    return np.where(np.random.default_rng(seed).random(300) < 0.1, 50.0, 1.0)


@pytest.mark.parametrize("freedom", [1.0, 3.7, 60.0])
@pytest.mark.parametrize("t", [0.0, 1.0, 8.0, 30.0])
def test_students_t_is_that_of_the_tables(t: float, freedom: float) -> None:
    """Our tail is scipy's, also far out, where a hundred rows are judged."""
    assert t_tail(t, freedom) == pytest.approx(stats.t.sf(t, freedom), rel=1e-5)


@pytest.mark.parametrize("memory", [0.0, 0.5, 0.9])
def test_autocorrelated_steps_are_no_difference(memory: float) -> None:
    """Of 400 pairs of equal runs no more than 5 % (and chance) seem to differ, however alike neighbours are."""
    alarms = 0
    for seed in range(400):
        a, b = noise(200, 2 * seed, memory=memory), noise(200, 2 * seed + 1, memory=memory)
        alarms += of_steps(a, b).p_differs() < 0.05
    assert alarms <= stats.binom.ppf(0.999, 400, 0.05)


def test_the_interval_holds_the_truth() -> None:
    """In at least 95 % of runs that are 3 % slower, less chance, 3 % is inside."""
    inside = 0
    for seed in range(300):
        low, high = of_steps(noise(150, 2 * seed, memory=0.6), 1.03 * noise(150, 2 * seed + 1, memory=0.6)).interval()
        inside += low <= log(1.03) <= high
    assert inside >= stats.binom.ppf(0.001, 300, 0.95)


def test_a_real_difference_is_found() -> None:
    """3 % in 2 % of noise, 200 steps: found in nearly every pair."""
    pairs = [(noise(200, 2 * seed), 1.03 * noise(200, 2 * seed + 1)) for seed in range(50)]
    assert sum(of_steps(*pair).p_differs() < 0.05 for pair in pairs) >= 48


def test_equal_rows_fail_no_limit() -> None:
    """``--fail-over`` at 0 % is the hardest limit; it is corrected for the number of rows as well."""
    tables, failed = 20, 0
    for table in range(tables):
        seeds = range(80 * table, 80 * table + 80, 2)
        pairs = [of_steps(noise(120, seed), noise(120, seed + 1)) for seed in seeds]
        family = [Candidate(Change(str(at), None, "ns", 1, 1), one) for at, one in enumerate(pairs)]
        failed += any(change.over for change in give_verdicts(family, 0.02, 0.0))
    assert failed <= stats.binom.ppf(0.999, tables, 0.05)


def test_runs_of_one_side_lend_their_variation_to_the_other() -> None:
    """One run against several: a difference must stand out from how much those several differ."""
    base = [run(level * noise(60, at)) for at, level in enumerate((1.0, 1.04, 0.97, 1.02))]
    assert contrast(base, [run(1.05 * noise(60, 9))]).p_differs() > 0.05
    assert contrast(base, [run(1.5 * noise(60, 9))]).p_differs() < 0.01


def test_runs_that_agree_by_luck_are_no_surer_than_their_steps() -> None:
    """Two runs a side with the same median to the last digit still have the noise of their steps."""
    values = noise(40, 1, spread=0.1)
    low, high = contrast([run(values)] * 2, [run(1.01 * values)] * 2).interval()
    assert low < 0 < high


def test_ranks_that_wait_for_one_another_are_one_observation() -> None:
    """Eight ranks with the same steps are as sure as one."""
    values, other = noise(100, 1), 1.02 * noise(100, 2)
    eight = contrast([run(values, ranks=8)], [run(other, ranks=8)])
    assert eight.interval() == pytest.approx(of_steps(values, other).interval())


def test_a_mean_shows_rare_events() -> None:
    """What is in each fiftieth step is in no median; the mean of all steps has it."""
    steps = np.arange(1000)
    often, seldom = (np.where(steps % every == 0, 100.0, 0.0) for every in (50, 500))
    seen = contrast([run(often, is_mean=True)], [run(seldom, is_mean=True)])
    assert exp(seen.log) == pytest.approx(0.1)
    assert seen.p_differs() < 0.05


def test_equal_means_of_rare_events_raise_no_alarm() -> None:
    """Equal sides differ in at most 5 % of pairs, and chance."""
    pairs = [(run(rare(2 * seed), is_mean=True), run(rare(2 * seed + 1), is_mean=True)) for seed in range(400)]
    alarms = sum(contrast([a], [b]).p_differs() < 0.05 for a, b in pairs)
    assert alarms <= stats.binom.ppf(0.999, 400, 0.05)
