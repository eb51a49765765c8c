"""Frames and summaries go to the sinks: each that fails is switched off, and a live summary is for those due."""

from typing import Any

import pytest

from autoprof.base.frame import StepFrame
from autoprof.base.notes import Notes
from autoprof.base.summary import Summary
from autoprof.session.sink_group import SinkGroup
from autoprof.testing import ListSink, make_frame


class Summaries:
    """Compute summaries, which are numbered."""

    def __init__(self) -> None:
        self.begun = 0

    def __call__(self) -> Summary:
        self.begun += 1
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


def outputs(*sinks: Any) -> tuple[SinkGroup, Notes, Summaries]:
    """Return outputs to these sinks."""
    notes, source = Notes(), Summaries()
    out = SinkGroup(sinks, source, notes)
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
