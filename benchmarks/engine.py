"""The one place that reaches behind autoprof's public names: recording alone, and marks without a model."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import compress
from typing import Any

from torch import nn

import autoprof
from autoprof import Phase, StepFrame
from autoprof._capture.marks import (
    BACKWARD_END,
    BACKWARD_START,
    ENTER,
    GRAPH_BEGIN,
    GRAPH_END,
    KIND_MASK,
    LEAVE,
    PURE_VARIABLE,
    VALUE_KINDS,
    uses_extension,
)
from autoprof.frame import MODULE_PHASES
from autoprof.testing import ListSink

OPTIONS = {"sinks": {}, "step": "manual", "sample": {"every": 1, "warmup": 0, "budget": None}}
_PHASES = frozenset(MODULE_PHASES)


def marks_are_in() -> str:
    """Return the language of the marks: C or Python."""
    return "C" if uses_extension() else "Python"


@contextmanager
def in_python() -> Iterator[None]:
    """Have the sessions opened meanwhile make their marks in Python throughout."""
    before = os.environ.get(PURE_VARIABLE)
    os.environ[PURE_VARIABLE] = "1"
    try:
        yield
    finally:
        os.environ.pop(PURE_VARIABLE)
        if before is not None:
            os.environ[PURE_VARIABLE] = before


def throw_marks_away(session: Any) -> None:
    """Take the open step's marks as ``session.step`` would, and drop them; the rest is the cost of recording.

    The model's calls are taken as well: until then it has a second hook, which finds the first of them.
    """
    taken = session._recorder.take()
    session._metrics._root.take(taken)
    if session._steps._clock.device_type is not None:
        read = (code & KIND_MASK not in VALUE_KINDS for code in taken.codes)
        session._steps._clock.release(list(compress(taken.readings, read)))


def deliver(session: Any) -> None:
    """Resolve the steps that the session has put off, and write them."""
    session._pipeline.flush()


class Synthetic:
    """A session whose marks come from here: module calls, forward and backward, of a model that need not run.

    ``spans`` is the number of spans a step has: half of them forward, half backward, in blocks of four under one
    outer module, and the backward pass itself.
    """

    def __init__(self, spans: int, *, extra: Sequence[Any] = (), **changes: Any) -> None:
        model = nn.Sequential(nn.Identity())
        session: Any = autoprof.instrument(model, {**OPTIONS, **changes}, sinks=extra)
        self.session = session
        self._recorder = session._recorder
        self.calls = max(1, spans // 2)
        labels = [f"model/block{i // 4}/layer{i % 4}" if i % 4 else f"model/block{i // 4}" for i in range(self.calls)]
        self._codes = [self._recorder.label(name, name.replace("/", "."), Phase.FORWARD, _PHASES) for name in labels]

    def feed(self, order: Sequence[int] | None = None) -> None:
        """Append the marks of one step: the calls in ``order``, each fourth around the three after it."""
        mark, next_ordinal = self._recorder.mark, self._recorder.next_ordinal
        calls = []
        outer: tuple[int, int] | None = None
        for i, position in enumerate(order if order is not None else range(self.calls)):
            code, ordinal = self._codes[position], next_ordinal()
            if i % 4 == 0:
                if outer is not None:
                    mark(outer[0] | outer[1] | LEAVE)
                outer = ordinal, code
                mark(ordinal | code | ENTER)
            else:
                mark(ordinal | code | ENTER)
                mark(ordinal | code | LEAVE)
            calls.append(ordinal)
        if outer is not None:
            mark(outer[0] | outer[1] | LEAVE)
        graph = next_ordinal()
        mark(graph | GRAPH_BEGIN)
        for ordinal in reversed(calls):
            mark(ordinal | BACKWARD_START)
            mark(ordinal | BACKWARD_END)
        mark(graph | GRAPH_END)

    def feed_anew(self, draw: random.Random) -> None:
        """Append the marks of a step as no step was before: the calls in a new order."""
        self.feed(draw.sample(range(self.calls), self.calls))

    def step(self) -> None:
        """End the step: resolution, frame, aggregation."""
        self.session.step()

    def flush(self) -> None:
        """Have the steps that wait resolved and delivered."""
        deliver(self.session)

    def check(self) -> None:
        """Raise when the session lost a step or switched a part of itself off: then a number would mean nothing."""
        summary = self.session.summary()
        if summary.notes or summary.skipped or summary.dropped:
            raise RuntimeError(f"the session under test failed: {summary.notes} {summary.skipped} {summary.dropped}")

    def close(self) -> None:
        """Close the session."""
        self.session.close()


def frames_of(spans: int, count: int) -> list[StepFrame]:
    """Return resolved steps with about this many spans each."""
    sink = ListSink()
    synthetic = Synthetic(spans, extra=[sink])
    try:
        for i in range(count):
            synthetic.feed()
            synthetic.session.log(loss=1.0 / (i + 1), lr=1e-3, samples=8)
            synthetic.step()
    finally:
        synthetic.close()
    return sink.frames
