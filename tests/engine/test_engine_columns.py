"""Parts of resolving by themselves: lanes of threads, micro-steps, launch lag, columns of memory, hidden spans."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autoprof import Phase
from autoprof._capture.marks import codes as marks
from autoprof._capture.marks.codes import Label
from autoprof._capture.marks.mark_batch import MarkBatch
from autoprof._resolve import RawStep
from autoprof._resolve.grad_accumulation import MicroStepCounter
from autoprof._resolve.launch_lag import DRIFT_PPM, LaunchLag
from autoprof._resolve.memory import MemoryColumns, memory_columns
from autoprof.frame import NOT_MEASURED, Layout
from autoprof.testing import FakeClock, FakeDevice

NONE = NOT_MEASURED
TRAINING, OTHER, THIRD = 11, 22, 33
"""Identifiers of threads."""


# Lanes of threads.


def batch_of(codes: list[int], readings: list[Any], multithreaded: bool) -> MarkBatch:
    """Return the marks of a step."""
    return MarkBatch(np.array(codes, np.int64).tobytes(), readings, TRAINING, multithreaded, 0)


def step_of(*marked: tuple[int, int], places: dict[int, int] | None = None, home: int = 0) -> RawStep:
    """Return a step of (thread, kind); ``places`` has the device on which a thread's marks lie."""
    device = FakeDevice(FakeClock())
    clock = device.device_clock()

    def read(index: int) -> Any:
        with device.on(index):
            return clock.read()

    codes: list[int] = []
    readings: list[Any] = []
    for thread, kind in marked:
        if thread != TRAINING:
            codes.append(marks.THREAD)
            readings.append(thread)
        codes.append(kind)
        readings.append(5 if kind in marks.VALUE_KINDS else read((places or {}).get(thread, 0)))
    batch = batch_of(codes, readings, len({thread for thread, _ in marked} | {TRAINING}) > 1)
    return RawStep(1, 0, 1, clock, read(home), read(home), batch)


def test_the_thread_that_runs_the_backward_belongs_to_the_training_thread() -> None:
    """Its marks are those of a pass; the mark that names it lies on its lane."""
    step = step_of((TRAINING, marks.ENTER), (OTHER, marks.BACKWARD_START), (OTHER, marks.BACKWARD_END))
    assert step.lanes() == (0, 0, 0, 0, 0)


@pytest.mark.parametrize("kind", [marks.ENTER, marks.RESUME, marks.LOGGED])
def test_a_thread_with_work_of_its_own_has_a_lane_of_its_own(kind: int) -> None:
    """Each one, in the order in which they came."""
    step = step_of((OTHER, kind), (TRAINING, marks.ENTER), (THIRD, marks.ENTER), (OTHER, marks.BACKWARD_START))
    assert step.lanes() == (1, 1, 0, 2, 2, 1, 1)


@pytest.mark.parametrize(("home", "lanes"), [(0, (2, 2, 0, 0, 2, 2)), (1, (0, 0, 2, 2, 0, 0))])
def test_of_several_backward_threads_that_of_the_steps_device_is_the_trainings(
    home: int, lanes: tuple[int, ...]
) -> None:
    """The others have lanes of their own."""
    step = step_of(
        (THIRD, marks.BACKWARD_START),
        (OTHER, marks.BACKWARD_START),
        (THIRD, marks.BACKWARD_END),
        places={OTHER: 0, THIRD: 1},
        home=home,
    )
    assert step.lanes() == lanes


# Micro-steps.

MODEL, UPDATE, CLIP = range(3)
LABELS = [
    Label("model", "model", Phase.FORWARD, frozenset(Phase)),
    Label("SGD", None, Phase.OPTIMIZER, frozenset(Phase)),
    Label("SGD/clip", None, Phase.OPTIMIZER, frozenset(Phase)),
]


def micro_steps(text: str) -> int | None:
    """Count in a step written in letters: f is a forward, b the backward pass of the last one, 1 and 2 of the first
    and second one, u a pass in which no call is followed, p and P a pass's begin and end, [ and ] an optimizer step's,
    { and } its closure's, k clipping.
    """
    counter = MicroStepCounter(LABELS)
    calls = 0

    def add(kind: int, index: int = 0, ordinal: int = 0) -> None:
        counter.add(kind, index, ordinal)

    for letter in text:
        if letter == "f":
            calls += 1
            add(marks.ENTER, MODEL, calls)
            add(marks.LEAVE, MODEL, calls)
        elif letter in "b12u":
            add(marks.GRAPH_BEGIN, 0, 90)
            if letter != "u":
                add(marks.BACKWARD_START, MODEL, int(letter) if letter.isdigit() else calls)
            add(marks.GRAPH_END, 0, 90)
        elif letter == "k":
            add(marks.ENTER, CLIP)
            add(marks.LEAVE, CLIP)
        else:
            kind, index = LETTERS[letter]
            add(kind, index, 92 if kind in (marks.GRAPH_BEGIN, marks.GRAPH_END) else 0)
    return counter.result


LETTERS = {
    "p": (marks.GRAPH_BEGIN, 0),
    "P": (marks.GRAPH_END, 0),
    "[": (marks.ENTER, UPDATE),
    "]": (marks.LEAVE, UPDATE),
    "{": (marks.LEAVE, UPDATE),  # a closure suspends the optimizer's span
    "}": (marks.RESUME, UPDATE),
}


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", None),
        ("f[]", None),
        ("fbfbfb[]", 3),
        ("fbfb[]fbfbfb[]fb[]", 3),
        ("fbbb[]", 1),  # several losses of one forward
        ("ff12[]", 2),  # all forwards before all passes
        ("fufu[]", 2),
        ("fuu[]", 1),  # a pass of which no call is followed is a further one where no forward came before it
        ("fbkfbk[]k", 2),
        ("fb[]b[]", 1),
        ("fpfbP[]", 1),  # a pass inside a pass
        ("fbfp", 2),  # a pass that the step's end cuts
        ("[{fb}]", 1),  # one closure: its pass is the micro-step
        ("fbfb[{fb}]", 3),  # and the last one where others came before
        ("[{fb}{fb}{fb}]", 1),  # line search
        ("fb[{fb}]fb[{fb}]", 2),
        ("fb[{fb}]fbfbfb[]", 3),
        ("fb[{}]", 1),
        ("fb}]", 1),  # the step began in the optimizer's closure
    ],
)
def test_micro_steps_are_forwards_and_their_backward_passes_before_one_optimizer_step(
    text: str, count: int | None
) -> None:
    """The most of the step; None where there was no pass."""
    assert micro_steps(text) == count


# Launch lag.


def lag_of(lag: LaunchLag, begun_ns: int, host: list[int], ns: list[int], device: list[int] | None = None) -> list[int]:
    """Return the lag at each mark of a step whose last mark is its end."""
    of = np.array([0] * len(host) if device is None else device)
    return lag.of(begun_ns, np.array(host), np.array(ns), of, len(host) - 1).tolist()


def test_a_step_inherits_the_zero_of_the_one_before() -> None:
    """Its queue never ran dry: the lag is that of the end of the step before, and what was added since."""
    lag = LaunchLag()
    assert lag_of(lag, 0, [0, 1000], [0, 1400]) == [0, 400]
    assert lag_of(lag, 1000, [0, 1000], [0, 1300]) == [400, 700]
    assert lag_of(lag, 2000, [0, 1000], [0, 900]) == [700, 600]
    assert lag_of(lag, 3000, [0, 1000], [0, 300]) == [700, 0]
    assert lag_of(lag, 4000, [0, 1000], [0, 1000]) == [0, 0]


def test_the_inherited_zero_rises_as_fast_as_clocks_may_drift() -> None:
    """With the length of each step that has passed."""
    lag, second = LaunchLag(), 1_000_000_000
    lag_of(lag, 0, [0, second], [0, second + 900_000])
    assert lag_of(lag, second, [0, 0], [0, 0]) == [900_000 - second * DRIFT_PPM // 1_000_000] * 2


# Memory.


def columns(positions: list[list[int]], parents: list[int], *values: list[int]) -> list[MemoryColumns]:
    """Return the columns of each step; ``positions`` has six rows, for start and end."""
    size = len(parents)
    layout = Layout(("x",) * size, (None,) * size, (Phase.FORWARD,) * size, tuple(parents), (1,) * size, (0,) * size)
    return memory_columns(np.array(positions), layout, np.array(values))


def lists(found: MemoryColumns) -> list[list[int] | None]:
    """Return the columns as lists."""
    return [None if column is None else column.tolist() for column in found]


def test_a_span_without_a_peak_reached_the_levels_at_its_ends() -> None:
    """The host reads one value at each; each step has its own."""
    positions = [[0], [NONE], [NONE], [1], [NONE], [NONE]]
    found = columns(positions, [-1], [5, 9], [7, 3])
    assert [lists(one) for one in found] == [[[5], [9], [9], None, None], [[7], [3], [7], None, None]]


@pytest.mark.parametrize(
    ("before", "after", "peak", "bound"),
    [
        (100, 130, 130, 130),  # the running peak grew inside
        (100, 100, 60, 100),  # it did not: between the level at the end and the running peak
        (100, 80, 60, NONE),  # it was reset inside
    ],
)
def test_the_running_peak_is_a_spans_own_where_it_grew_and_else_a_bound(
    before: int, after: int, peak: int, bound: int
) -> None:
    """Its level is 50 at the start and 60 at the end."""
    (found,) = columns([[0], [1], [2], [3], [4], [5]], [-1], [50, before, 300, 60, after, 250])
    assert lists(found) == [[50], [60], [peak], [bound], [300]]


def test_a_span_reached_what_those_in_it_reached_whatever_their_depth() -> None:
    """Also where it was not measured itself; a lower one changes nothing."""
    rows = [[NONE, 0, 2, 4], [NONE] * 4, [NONE] * 4, [NONE, 1, 3, 5], [NONE] * 4, [NONE] * 4]
    (found,) = columns(rows, [-1, 0, 1, 0], [10, 20, 90, 30, 5, 6])
    assert found.memory_peak_bytes is not None
    assert found.memory_peak_bytes.tolist() == [90, 90, 90, 6]
    (last,) = columns([[0, 1], [NONE] * 2, [NONE] * 2, [0, 1], [NONE] * 2, [NONE] * 2], [-1, 0], [10, 20])
    assert last.memory_peak_bytes is not None
    assert last.memory_peak_bytes.tolist() == [20, 20]
    only = found.only(np.array([2, 3]))
    assert lists(only) == [[90, 5], [30, 6], [90, 6], None, None]
