"""The statistics of the benchmarks, on samples whose answer is known."""

import math

import pytest

from benchmarks.stats import cost_ratio, median, ratio


def test_the_estimate_is_the_median_and_the_interval_holds_it() -> None:
    """A far outlier moves neither the median nor its interval to itself."""
    estimate = median([10, 11, 12, 13, 14, 15, 16, 17, 1000])
    assert estimate.value == 14
    assert estimate.low <= 14 <= estimate.high < 1000


def test_a_ratio_is_paired_within_rounds() -> None:
    """A round that is ten times slower for both changes nothing."""
    estimate = ratio([110, 1100, 110, 11], [100, 1000, 100, 10])
    assert (estimate.value, estimate.low, estimate.high) == pytest.approx((1.1, 1.1, 1.1))


def test_a_cost_ratio_compares_what_comes_on_top_of_bare() -> None:
    """1130 and 1100 over 1000 are 1.3 times the cost, not 1.03."""
    assert cost_ratio([1130] * 8, [1100] * 8, [1000] * 8).value == pytest.approx(1.3)


def test_a_cost_that_is_not_above_nothing_has_no_ratio() -> None:
    """Dividing by a cost of zero or less would make a number up."""
    estimate = cost_ratio([1130, 1130], [1000, 990], [1000, 1000])
    assert math.isnan(estimate.value)
