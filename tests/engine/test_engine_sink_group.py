"""Frames and summaries go to the sinks: each that fails is switched off, and a live summary is for those due."""

from typing import Any

import pytest

from autoprof._core.notes import Notes
from autoprof._session.sink_group import MAX_SHOW_NS, SHOW_SHARE, SinkGroup
from autoprof.frame import StepFrame
from autoprof.summary import Summary
from autoprof.testing import ListSink, make_frame

MS = 1_000_000


class Summaries:
    """Compute summaries, each of which takes some time; they are numbered."""

    def __init__(self, ns: int = 0) -> None:
        self.ns = ns
        self.now_ns = 10**12
        self.begun = 0

    def __call__(self) -> Summary:
        self.begun += 1
        self.now_ns += self.ns
        return Summary.empty((f"summary {self.begun}",))


class Sink(ListSink):
    """A sink of every kind: live, calibrated. It notes its calls, and fails in one of them."""

    def __init__(self, fails: str = "") -> None:
        super().__init__()
        self.calls: list[Any] = []
        self.fails = fails
        self.ready = False
        """Whether calls count: what a sink can do is found by asking for it."""

    def _note(self, call: str, *what: Any) -> None:
        if not self.ready:
            return
        self.calls.append((call, *what))
        if call == self.fails:
            raise ValueError(call)

    def write(self, frame: StepFrame) -> None:
        self._note("write", frame.step)

    def calibrate(self, limit_ns: int) -> None:
        self._note("calibrate", limit_ns)

    def due(self) -> bool:
        self._note("due")
        return True

    def show(self, summary: Summary, step: int) -> None:
        self._note("show", summary.notes, step)

    def close(self, summary: Summary) -> None:
        self._note("close", summary.notes)

    def of(self, *names: str) -> list[Any]:
        """Return the calls of these names."""
        return [call for call in self.calls if call[0] in names]


def frame(step: int) -> StepFrame:
    """Return a frame without spans."""
    return make_frame([], step=step, duration_ns=1000)


def outputs(*sinks: Any, summaries: Summaries | None = None) -> tuple[SinkGroup, Notes, Summaries]:
    """Return outputs to these sinks, whose seconds are those of the summaries."""
    notes, source = Notes(), summaries or Summaries()
    out = SinkGroup(sinks, source, notes, lambda: source.now_ns)
    for sink in sinks:
        sink.ready = True
    return out, notes, source


@pytest.mark.parametrize("fails", ["write", "calibrate", "due", "show"])
def test_a_sink_that_fails_is_closed_with_the_summary_so_far_and_called_no_more(fails: str) -> None:
    """A note says so, once; the others go on."""
    broken, whole = Sink(fails), Sink()
    out, notes, _ = outputs(broken, whole)
    for step in (1, 2):
        out.calibrate(step)
        out.write(frame(step))
        out.show()
    out.close(Summary.empty(("the end",)))
    assert len(broken.of(fails)) == 1
    assert broken.calls[-1][0] == "close"
    assert broken.calls[-1][1][0].startswith("summary ")
    assert len(broken.of("close")) == 1
    assert notes.all == (f"Sink is off after ValueError: {fails}",)
    assert len(whole.of(fails)) >= 2
    assert whole.calls[-1] == ("close", ("the end",))


# Live summaries.


@pytest.mark.parametrize(("ns", "pause_ns"), [(0, 0), (10 * MS, round(10 * MS / SHOW_SHARE)), (10**10, MAX_SHOW_NS)])
def test_a_summary_that_takes_long_is_computed_the_less_often(ns: int, pause_ns: int) -> None:
    """It takes a fiftieth of the time; nobody waits for longer than a second."""
    sink = Sink()
    out, _, source = outputs(sink, summaries=Summaries(ns))
    out.write(frame(1))
    began_ns = source.now_ns
    out.show()
    out.write(frame(2))
    source.now_ns = max(began_ns + pause_ns - 1, began_ns)
    out.show()
    assert source.begun == (1 if pause_ns else 2)
    source.now_ns = began_ns + pause_ns
    out.show()
    assert source.begun == 2
