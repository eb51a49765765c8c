"""Durations of any program: children and self add up to their parent, with any nesting."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from compat_builders import MS, Program
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autoprof.compat._durations import Duration, Nesting
from autoprof.compat.timing_logger import TimingLogger
from autoprof.frame import Phase
from autoprof.summary import Summary
from autoprof.testing import FakeClock

Tree = tuple[str, int, list["Tree"]]  # type: ignore[misc]
NAMES = st.sampled_from(["A", "B", "C", "A/x", "A/y", "B/x", "A/x/deep"])
LEAVES = st.tuples(NAMES, st.integers(0, 50), st.just([]))
TREES = st.recursive(LEAVES, lambda inner: st.tuples(NAMES, st.integers(0, 50), st.lists(inner, max_size=3)))


@contextmanager
def program() -> Iterator[Program]:
    """Make a logger without files."""
    clock = FakeClock()
    with TimingLogger(enable_file=False, enable_console=False, clock=clock, stream=io.StringIO()) as logger:
        yield Program(logger, clock)


def run(one: Program, tree: Tree) -> None:
    """Run a name, its parts first, then for itself."""
    name, ms, inside = tree
    with one.timed(name):
        for part in inside:
            run(one, part)
        one.wait(ms)


def check(summary: Summary) -> None:
    """Children and self are the parent, phases are the step, nothing is negative."""
    training = [row for row in summary.rows if row.lane == 0]
    for row in training:
        inside = sum(child.total_ns for child in training if child.parent == row.name)
        assert row.self_ns == row.total_ns - inside >= 0
    assert sum(summary.phases.values()) == summary.total_step_ns
    assert all(ns >= 0 for ns in summary.phases.values())
    if training:
        assert summary.phases[Phase.USER] == sum(row.self_ns for row in training)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.lists(TREES, max_size=4), min_size=1, max_size=4))
def test_the_nested_times_of_any_program_add_up(steps: list[list[Tree]]) -> None:
    """Names that recur, nest in themselves, change places between steps; with and without wholes."""
    with program() as one:
        for trees in steps:
            for tree in trees:
                run(one, tree)
            one.wait(3)
            one.logger.step()
        summary = one.logger.summary()
    check(summary)
    assert summary.steps == len(steps)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.tuples(NAMES, st.integers(0, 2000)), max_size=6), min_size=1, max_size=4))
def test_the_nested_times_of_replayed_durations_add_up(steps: list[list[tuple[str, int]]]) -> None:
    """Durations that no clock has seen: a step is as long as its longest outer name."""
    with program() as one:
        for durations in steps:
            for name, ms in durations:
                one.logger.log_timing(name, ms)
            one.logger.step()
        summary = one.logger.summary()
    check(summary)
    longest = 0
    for durations in steps:
        names = {name for name, _ in durations}
        outer = [n for n in names if not any(n.startswith(f"{other}/") for other in names)]
        longest += max((sum(ms for n, ms in durations if n == name) for name in outer), default=0)
    assert summary.total_step_ns == longest * MS


def test_names_that_ran_one_after_the_other_do_not_contain_one_another() -> None:
    """Also when they are logged a little late."""
    with program() as one:
        for name in ("a", "b", "c"):
            start_ns = one.clock.now_ns
            one.wait(10)
            ms = (one.clock.now_ns - start_ns) / MS
            one.wait(0.01)
            one.logger.log_timing(name, ms)
        one.logger.step()
        assert {row.parent for row in one.logger.summary().rows} == {None}


def test_a_part_logged_a_little_late_is_still_inside() -> None:
    """The whole begins after its first part by the microseconds that the calls took."""
    nesting = Nesting()
    nesting.observe([Duration("part", 10 * MS, 10 * MS + 2000, 1), Duration("whole", 20 * MS, 20 * MS + 9000, 1)], 0, 1)
    assert nesting.parents == {"part": "whole", "whole": None}


def test_names_that_contain_each_other_in_turn_are_siblings() -> None:
    """No ring: neither is the other's part."""
    nesting = Nesting()
    first = [Duration("a", 5 * MS, 8 * MS, 1), Duration("b", 10 * MS, 10 * MS, 1)]
    nesting.observe(first, 0, 1)
    nesting.observe([one._replace(name={"a": "b", "b": "a"}[one.name]) for one in first], 0, 2)
    assert nesting.parents == {"a": None, "b": None}


@pytest.mark.parametrize("count", [33, 500])
def test_many_durations_in_a_step_are_not_compared(count: int) -> None:
    """Comparing all pairs would cost its square; the time they cover is known all the same."""
    nesting = Nesting()
    durations = [Duration(f"n{at}", MS, (at + 1) * MS, 1) for at in range(count)]
    assert nesting.observe(durations, 0, 1) == count * MS
    assert nesting.parents == {}


def test_a_summary_can_be_printed_after_close() -> None:
    """In either order."""
    stream = io.StringIO()
    with TimingLogger(enable_file=False, enable_console=False, stream=stream) as logger:
        logger.log_timing("forward", 1.0)
        logger.step()
    logger.print_summary()
    assert "Timing Summary (Total 1 steps)" in stream.getvalue()
