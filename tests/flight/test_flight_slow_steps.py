"""The limit of slow steps: steps of heavy tails are healthy; where steps are steady, a slow one is found."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from autoprof._flight.ring import CAPACITY, NEVER
from autoprof._flight.slow_steps import MIN_STEPS, WARMUP, SlowSteps, unlikely_length

Lengths = npt.NDArray[np.float64]
N = 100_000
MS = 1e6


def slow_steps(lengths: Lengths, every: int = 100) -> list[int]:
    """Return the steps that are slow, where the limit is updated after each ``every`` steps."""
    steps, found, limits = np.maximum(lengths, 1000).astype(np.int64), list[int](), SlowSteps()
    for begin in range(0, len(steps), every):
        block = steps[begin : begin + every]
        for at in np.flatnonzero(block > limits.limit_ns).tolist():
            if block[at] > limits.limit_ns:
                found.append(begin + at)
                limits.add_slow(int(block[at]))
        end = begin + len(block)
        limits.update(steps[max(end - CAPACITY, 0) : end], end)
    return found


def steady(random: np.random.Generator, spread: float = 0.03, n: int = N) -> Lengths:
    return 20 * MS * (1 + spread * random.standard_normal(n))


def correlated(random: np.random.Generator) -> Lengths:
    drift = np.cumsum(random.standard_normal(N // 100)) * 0.01
    return steady(random) * np.exp(np.repeat(drift, 100))


def rare(random: np.random.Generator, share: float, factor: float) -> Lengths:
    return steady(random) * np.where(random.random(N) < share, factor, 1)


def collected(random: np.random.Generator) -> Lengths:
    return steady(random) + np.where(random.random(N) < 0.02, random.exponential(60e6, N), 0)


def every(random: np.random.Generator, period: int, factor: float) -> Lengths:
    lengths = steady(random)
    lengths[::period] *= factor
    return lengths


HEALTHY: dict[str, Callable[[np.random.Generator], Lengths]] = {
    "normal": steady,
    "log-normal": lambda random: 20 * MS * np.exp(0.5 * random.standard_normal(N)),
    "wide log-normal": lambda random: 20 * MS * np.exp(random.standard_normal(N)),
    "exponential": lambda random: 20 * MS * (1 + random.exponential(0.3, N)),
    "Pareto 2.5": lambda random: 20 * MS * (1 + 0.3 * random.pareto(2.5, N)),
    "Pareto 4": lambda random: 20 * MS * (1 + random.pareto(4, N)),
    "tiny steps": lambda random: 0.3 * MS * (1 + 0.3 * random.pareto(3, N)),
    "garbage collection": collected,
    "a tenth is longer": lambda random: rare(random, 0.1, 5),
    "a thousandth is longer": lambda random: rare(random, 0.001, 5),
    "each hundredth logs": lambda random: every(random, 100, 4),
    "each thousandth saves": lambda random: every(random, 1000, 8),
    "correlated": correlated,
}  # fmt: skip
"""Lengths of the healthy steps of a run."""


@pytest.mark.parametrize("kind", HEALTHY)
def test_at_most_one_of_100_000_healthy_steps_is_slow(kind: str) -> None:
    """Whatever the distribution: what repeats is no news."""
    assert len(slow_steps(HEALTHY[kind](np.random.default_rng(18)))) <= 1


def test_a_slow_step_is_found_where_steps_are_steady() -> None:
    """One of twice the length, in step 50,000, and a longer one later; one of the same length is no news."""
    lengths = steady(np.random.default_rng(1))
    lengths[50_000] *= 2.5
    lengths[70_000] *= 2.5
    lengths[90_000] *= 9
    assert slow_steps(lengths) == [50_000, 90_000]


def test_nothing_is_slow_in_the_first_steps() -> None:
    """They compile and allocate; a limit needs some steps after them."""
    limits = SlowSteps()
    lengths = np.full(WARMUP + MIN_STEPS - 1, 10_000_000, dtype=np.int64)
    limits.update(lengths, len(lengths))
    assert (limits.limit_ns, limits.usual_ns) == (NEVER, 10_000_000)
    lengths = np.append(lengths, 10_000_000)
    limits.update(lengths, len(lengths))
    assert limits.limit_ns == 40_000_000


def test_the_warm_up_sets_no_limit() -> None:
    """A first step of a minute does not hide a slow one."""
    lengths = np.full(500, 100_000_000, dtype=np.int64)
    lengths[:3] = 60_000_000_000
    limits = SlowSteps()
    limits.update(lengths, 500)
    assert limits.limit_ns == 150_000_000


def test_the_extrapolated_length_is_that_of_the_distribution_at_least() -> None:
    """For a power law the length that one in a million exceeds is known: the estimate errs to the long side."""
    random = np.random.default_rng(2)
    for exponent in (3.0, 6.0):
        exact = 1e6 ** (1 / exponent)
        found = [unlikely_length(1 + random.pareto(exponent, 1000)) for _ in range(50)]  # type: ignore[arg-type]
        assert sum(length < exact for length in found) <= 1
    assert unlikely_length(np.ones(10, dtype=np.int64)) == float("inf")
