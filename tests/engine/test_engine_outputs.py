"""Frames and summaries go to the sinks: each that fails is switched off, and a live summary takes a part of a step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from autoprof._notes import Notes
from autoprof._session.outputs import PART_S, SHARE, Outputs
from autoprof.frame import StepFrame
from autoprof.summary import Summary
from autoprof.testing import ListSink, make_frame

S = 1_000_000_000


class Summaries:
    """Yield a summary in parts, each of which takes some seconds; the last has all notes."""

    def __init__(self, parts: int = 1, part_s: float = 0.0, error: Exception | None = None) -> None:
        self.count, self.part_s, self.error = parts, part_s, error
        self.now_s = 100.0
        self.begun = 0

    def parts(self) -> Iterator[Summary]:
        self.begun += 1
        for part in range(1, self.count + 1):
            self.now_s += self.part_s
            if self.error is not None and part == self.count:
                raise self.error
            yield Summary.empty((f"part {part}",))


class Sink(ListSink):
    """A sink of every kind: live, refreshed, limited, calibrated. It notes its calls, and fails in one of them."""

    def __init__(self, fails: str = "", *, due: int = 10**9) -> None:
        super().__init__()
        self.calls: list[Any] = []
        self.fails = fails
        self.ready = False
        """Whether calls count: what a sink can do is found by asking for it."""
        self.dues = due
        self.limit: str | None = None

    def _note(self, call: str, *what: Any) -> None:
        if not self.ready:
            return
        self.calls.append((call, *what))
        if call in self.fails.split():
            raise ValueError(call)

    def write(self, frame: StepFrame) -> None:
        self._note("write", frame.step)

    def calibrate(self, limit_ns: int) -> None:
        self._note("calibrate", limit_ns)

    def due(self, idle_s: float | None = None) -> bool:
        self._note("due", idle_s)
        self.dues -= 1
        return self.dues >= 0

    def show(self, summary: Summary, step: int) -> None:
        self._note("show", summary.notes, step)

    def refresh(self) -> None:
        self._note("refresh")

    @property
    def limit_note(self) -> str | None:
        self._note("limit_note")
        return self.limit

    def close(self, summary: Summary) -> None:
        self._note("close", summary.notes)

    def of(self, *names: str) -> list[Any]:
        """Return the calls of these names."""
        return [call for call in self.calls if call[0] in names]


def frame(step: int, duration_ns: int = 1000) -> StepFrame:
    """Return a frame without spans."""
    return make_frame([], step=step, duration_ns=duration_ns)


def outputs(*sinks: Any, summaries: Summaries | None = None) -> tuple[Outputs, Notes, Summaries]:
    """Return outputs to these sinks, whose seconds are those of the summaries."""
    notes, source = Notes(), summaries or Summaries()
    out = Outputs(sinks, source, notes, lambda: source.now_s)
    for sink in sinks:
        sink.ready = True
    return out, notes, source


def write(out: Outputs, one: StepFrame) -> None:
    """Pass a frame to all sinks, one after the other."""
    for _ in out.write_in_parts(one):
        pass


def test_every_sink_receives_every_frame() -> None:
    """In their order."""
    first, second = Sink(), ListSink()
    out, _, _ = outputs(first, second)
    for step in (1, 2):
        write(out, frame(step))
    assert first.of("write") == [("write", 1), ("write", 2)]
    assert [one.step for one in second.frames] == [1, 2]


def test_a_frame_goes_to_one_sink_at_a_time_and_to_none_that_has_failed_meanwhile() -> None:
    """The rest may come at the end of another step; the limits of the sinks are read then."""
    first, second, third = Sink(), Sink("refresh"), Sink()
    out, _, _ = outputs(first, second, third)
    parts = out.write_in_parts(frame(1))
    counts = []
    for _ in parts:
        counts.append(len(first.of("write") + second.of("write") + third.of("write")))
        if len(counts) == 1:
            assert first.of("limit_note") == []
            out.rest(1.0)  # the second one fails in it
    assert counts == [1, 2]
    assert second.of("write") == []
    assert len(first.of("limit_note")) == len(third.of("limit_note")) == 1


class PartedSink(Sink):
    """A sink that writes and shows in three parts each."""

    def write_in_parts(self, frame: StepFrame) -> Iterator[None]:
        for part in range(3):
            self._note("write", frame.step, part)
            yield

    def show_in_parts(self, summary: Summary, step: int) -> Iterator[None]:
        for part in range(3):
            self._note("show", step, part)
            yield


def test_a_sink_that_works_in_parts_has_one_at_a_time() -> None:
    """Between them short steps may pass."""
    sink, other = PartedSink(due=1), Sink(due=0)
    out, _, source = outputs(sink, other)
    seen = [(len(sink.of("write")), len(other.of("write"))) for _ in out.write_in_parts(frame(4))]
    assert list(dict.fromkeys(seen)) == [(1, 0), (2, 0), (3, 0), (3, 1)]
    source.part_s = 1.0
    while out.show():
        source.now_s += 1.0
    assert sink.of("show") == [("show", 4, 0), ("show", 4, 1), ("show", 4, 2)]


def test_a_sink_that_is_off_does_no_further_part() -> None:
    """It has failed in a drawing between two parts of a frame."""
    sink, other = PartedSink("refresh"), Sink()
    out, _, _ = outputs(sink, other)
    parts = out.write_in_parts(frame(1))
    next(parts)
    out.rest(1.0)
    list(parts)
    assert sink.of("write") == [("write", 1, 0)]
    assert other.of("write") == [("write", 1)]


@pytest.mark.parametrize("fails", ["write", "calibrate", "due", "show", "refresh", "limit_note"])
def test_a_sink_that_fails_is_closed_with_the_summary_so_far_and_called_no_more(fails: str) -> None:
    """A note says so, once; the others go on."""
    broken, whole = Sink(fails), Sink()
    out, notes, _ = outputs(broken, whole)
    for step in (1, 2):
        out.calibrate(step)
        write(out, frame(step))
        out.show()
        out.rest(1.0)
    out.close(Summary.empty(("the end",)))
    assert len(broken.of(fails)) == 1
    assert broken.calls[-1] == ("close", ("part 1",))
    assert len(broken.of("close")) == 1
    assert notes.all == (f"Sink is off after ValueError: {fails}",)
    assert len(whole.of(fails)) >= 2
    assert whole.calls[-1] == ("close", ("the end",))


def test_the_sinks_of_rank_0_are_closed_without_a_summary_on_another_rank() -> None:
    """One that shows something at its end shows nothing; a failure of one costs nothing, and the rest goes on."""

    class Shown(Sink):
        def discard(self) -> None:
            self._note("discard")

    broken, shown, plain, own = Sink("close"), Shown(), Sink(), Sink()
    out, notes, _ = outputs(broken, shown, plain, own)
    out.discard([broken, shown, plain])
    write(out, frame(1))
    out.close(Summary.empty(("the end",)))
    assert broken.calls == plain.calls == [("close", ())]
    assert shown.calls == [("discard",)]
    assert own.of("write", "close") == [("write", 1), ("close", ("the end",))]
    assert notes.all == ()


def test_a_sink_that_fails_while_there_is_no_summary_receives_an_empty_one() -> None:
    """With the notes so far."""
    sink = Sink("write")
    out, notes, _ = outputs(sink, summaries=Summaries(error=KeyError("gone")))
    write(out, frame(1))
    assert sink.calls[-1] == ("close", notes.all)


def test_a_sink_that_fails_again_when_it_is_closed_costs_nothing_more() -> None:
    """The note names its first failure."""
    broken, whole = Sink("write close"), Sink()
    out, notes, _ = outputs(broken, whole)
    for step in (1, 2):
        write(out, frame(step))
    assert broken.of("write", "close") == [("write", 1), ("close", ("part 1",))]
    assert len(whole.of("write")) == 2
    assert notes.all == ("Sink is off after ValueError: write",)


def test_a_sink_hears_a_limit_of_the_clock_once() -> None:
    """And each one that differs; zero is none yet."""
    sink = Sink()
    out, _, _ = outputs(sink)
    for limit_ns in (0, 0, 5, 5, 0, 5):
        out.calibrate(limit_ns)
    assert sink.calls == [("calibrate", 5), ("calibrate", 0), ("calibrate", 5)]


def test_a_limit_that_a_sink_has_reached_is_noted_once() -> None:
    """It is asked no more then; the sink goes on."""
    sink, other = Sink(), Sink()
    out, notes, _ = outputs(sink, other)
    write(out, frame(1))
    sink.limit = "the folder is full"
    for step in (2, 3):
        write(out, frame(step))
    assert notes.all == ("the folder is full",)
    assert (len(sink.of("limit_note")), len(other.of("limit_note"))) == (2, 3)
    assert len(sink.of("write")) == 3


# Live summaries.


def test_a_live_sink_is_asked_once_after_each_frame_and_shown_the_summary_of_that_step() -> None:
    """Without a frame since there is nothing new."""
    sink = Sink()
    out, _, _ = outputs(sink)
    assert not out.show()
    write(out, frame(7))
    assert out.show()
    assert not out.show()
    assert sink.of("due", "show") == [("due", None), ("show", ("part 1",), 7)]


def test_where_no_sink_is_live_there_is_no_summary() -> None:
    """It would be computed for nobody."""
    out, _, source = outputs(ListSink())
    write(out, frame(1))
    assert not out.show()
    assert out.rest(1.0)
    assert source.begun == 0


def test_only_the_sinks_that_are_due_are_shown_the_summary() -> None:
    """It is computed once for all of them, and not where none is due."""
    now, later, also = Sink(), Sink(due=0), Sink(due=1)
    out, _, source = outputs(now, later, also)
    for step in (1, 2):
        write(out, frame(step))
        assert out.show()
    assert source.begun == 2
    assert [len(sink.of("show")) for sink in (now, later, also)] == [2, 0, 1]
    never, _, source = outputs(Sink(due=0))
    write(never, frame(1))
    assert not never.show()
    assert source.begun == 0


@pytest.mark.parametrize(
    ("duration_ns", "ends"),
    [
        (1_000, [False] * 5 + [True]),  # 0.25 ms at the end of a short step
        (round(2.5 * PART_S / SHARE * S), [False, True]),  # 2 % of a long one
    ],
)
def test_a_live_summary_takes_a_part_of_each_step(duration_ns: int, ends: list[bool]) -> None:
    """It goes on at the end of the next step, is shown with the step it began at, and asks nobody meanwhile."""
    sink = Sink(due=1)
    out, _, source = outputs(sink, summaries=Summaries(parts=5, part_s=PART_S * 1.001))
    write(out, frame(1, duration_ns))
    found = []
    for step in range(2, 2 + len(ends)):
        assert out.show()
        found.append(bool(sink.of("show")))
        write(out, frame(step, duration_ns))
    assert found == ends
    assert sink.of("due", "show") == [("due", None), ("show", ("part 5",), 1)]
    assert source.begun == 1


def test_before_a_gap_a_live_summary_goes_on_until_it_is_shown_and_then_ages() -> None:
    """``rest`` returns False where a part is left; the sink is asked with the seconds of the gap."""
    sink = Sink(due=1)
    out, _, _ = outputs(sink, summaries=Summaries(parts=3, part_s=PART_S * 1.001))
    write(out, frame(1, 10**12))
    assert [out.rest(9.0) for _ in range(5)] == [False, False, False, True, True]
    assert sink.of("due", "show", "refresh") == [
        ("due", 9.0),
        ("show", ("part 3",), 1),
        ("refresh",),
        ("due", 9.0),
        ("refresh",),
    ]


def test_a_summary_that_fails_switches_the_sinks_off_that_it_was_for() -> None:
    """Not those that were not due; nothing of it is left for the next one."""
    asked, later = Sink(due=1), Sink(due=0)
    out, notes, source = outputs(asked, later, summaries=Summaries(parts=2, error=KeyError("gone")))
    write(out, frame(1))
    assert out.show()
    assert len(asked.of("close")) == 1
    assert later.of("close") == []
    assert notes.all == ("Sink is off after KeyError: 'gone'",)
    source.error, later.dues = None, 1
    write(out, frame(2))
    assert out.show()
    assert later.of("show") == [("show", ("part 2",), 2)]


# The end.


def test_at_the_end_a_summary_in_progress_is_shown_and_all_sinks_are_closed() -> None:
    """In their order, whatever fails; a failure is noted."""
    live, broken, last = Sink(due=1), Sink("close", due=0), Sink(due=0)
    out, notes, _ = outputs(live, broken, last, summaries=Summaries(parts=4, part_s=1.0))
    write(out, frame(1))
    out.show()
    assert live.of("show") == []
    out.close(Summary.empty(("the end",)))
    assert live.of("show", "close") == [("show", ("part 4",), 1), ("close", ("the end",))]
    assert len(broken.of("close")) == 1
    assert last.of("close") == [("close", ("the end",))]
    assert notes.all == ("at the end of the run: ValueError: close",)
    out.close(Summary.empty(()))
    assert len(last.of("close")) == 1


def test_at_the_end_nobody_is_asked_for_a_live_summary() -> None:
    """The last summary is for all."""
    sink = Sink()
    out, _, source = outputs(sink)
    write(out, frame(1))
    out.close(Summary.empty(()))
    assert sink.of("due", "show") == []
    assert source.begun == 0


def test_a_fork_forgets_the_sinks() -> None:
    """They belong to its parent: none is called again."""
    sink = Sink()
    out, _, _ = outputs(sink)
    write(out, frame(1))
    out.abandon()
    before = list(sink.calls)
    write(out, frame(2))
    out.calibrate(9)
    assert not out.show()
    assert out.rest(1.0)
    out.close(Summary.empty(()))
    assert sink.calls == before
