"""Ctrl-C, and a time limit of the user's, at any moment: the exception reaches the user, all else stays whole."""

import itertools
import json
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from attached import hooks_of, open_sessions, optimizer_hooks
from engine_laws import check_laws, count, pass_on_each_step
from moments import Strike
from torch import nn

import autoprof
from autoprof import Phase
from autoprof.capture import recorder as recording
from autoprof.testing import FakeClock, ListSink, open_session

CONFIG: dict[str, Any] = {
    "targets": [{"match": ".*", "memory": True}],
    "sample": {"warmup": 0, "budget": None},
    "flops": "off",
    "output": "runs",
    "sinks": {"jsonl": {"flush_s": 0}, "log": {}},
}
NAMES = {"Sequential": 1, "0": 1, "1": 1}


class TimeLimit(Exception):
    """What a signal handler of the user's raises: an ``Exception``, as people write them."""


def limit(number: int, frame: Any) -> None:
    """Be that handler."""
    raise TimeLimit


SIGNALS: dict[str, tuple[int, Any, type[BaseException]]] = {
    "ctrl-c": (signal.SIGINT, signal.default_int_handler, KeyboardInterrupt),
    "time-limit": (signal.SIGTERM, limit, TimeLimit),
}


@pytest.fixture(params=SIGNALS)
def struck(request: pytest.FixtureRequest) -> Iterator[tuple[Callable[[], None], type[BaseException]]]:
    """Yield what sends a signal, and the exception that its handler raises."""
    number, handler, error = SIGNALS[request.param]
    before = signal.signal(number, handler)
    yield lambda: signal.raise_signal(number), error
    signal.signal(number, before)


@pytest.fixture(params=[pytest.param(1, marks=pytest.mark.slow, id="each-line"), pytest.param(97, id="each-97th-line")])
def stride(request: pytest.FixtureRequest) -> int:
    """How many lines lie between two moments: all of them take minutes."""
    return int(request.param)


@pytest.fixture(
    params=[pytest.param(1, marks=pytest.mark.slow, id="each-line"), pytest.param(499, id="each-499th-line")]
)
def long_stride(request: pytest.FixtureRequest) -> int:
    """How many lines lie between two moments of work that has thousands of them."""
    return int(request.param)


@pytest.fixture(autouse=True)
def always_delivered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have each step resolved and written at its end: more of our own work to strike at."""
    pass_on_each_step(monkeypatch)


class Run:
    """A model, its optimizer and an open session in the middle of training."""

    def __init__(self, *sinks: Any, **changes: Any) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.sink = ListSink()
        clock = FakeClock(tick_ns=1)
        self.session = open_session(
            self.model, {**CONFIG, **changes}, clock=clock, optimizer=self.optimizer, sinks=[self.sink, *sinks]
        )

    def train(self, end_step: bool = True) -> None:
        """Do everything that a step does."""
        with autoprof.span("Loss"):
            loss = self.model(torch.ones(1, 2)).sum()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.session.log(loss=loss)
        if end_step:
            self.session.step()

    def check_bare(self) -> None:
        """Assert that nothing of autoprof's is left."""
        for module in self.model.modules():
            assert not any(hooks_of(module).values())
        assert not any(hooks_of(self.optimizer).values())
        assert recording.active is None
        assert not open_sessions()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert not hasattr(nn.Module, "__prepare_scriptable__")

    def check_files(self, error: type[BaseException] = KeyboardInterrupt) -> None:
        """Assert that every file is whole and says the same as the others; what is no Ctrl-C may cost a step."""
        exact = error is KeyboardInterrupt
        assert self.session.folder is not None
        run = autoprof.read_run(self.session.folder)
        frames = run.frames
        steps = [frame.step for frame in frames]
        assert frames.bad_lines == 0
        assert run.info["ended"] == "closed"
        assert run.summary is not None
        assert steps == sorted(set(steps))
        if exact:
            assert self.sink.summary == run.summary
            assert run.summary.steps + run.summary.warmup_steps == len(steps) == len(self.sink.frames)
        else:  # struck between the statistics and the sinks, or as one of them was about to be closed
            assert self.sink.summary in (run.summary, None)
            assert 0 <= run.summary.steps + run.summary.warmup_steps - len(self.sink.frames) <= 1
            assert 0 <= len(steps) - len(self.sink.frames) <= 1


def every_moment(strike: Callable[[], object], stride: int | None) -> Iterator[Strike]:
    """Yield a ``Strike`` for each line of ours in turn, until the block runs to its end unstruck.

    ``stride`` lines lie between two of them; ``None`` is each line where it first runs, so a loop is struck once.
    """
    struck: set[tuple[str, int]] = set()
    for at in itertools.count(1, stride) if stride else itertools.repeat(1):
        moment = Strike(at, strike, None if stride else struck)
        yield moment
        if not moment.where:
            assert max(moment.lines, len(struck)) > 20
            return


def strike_all(
    make: Callable[[], Run], block: Callable[[Run], Any], struck: Any, check: Callable[[Run], None], stride: int | None
) -> None:
    """Strike at every moment of a block, each time in a run of its own; the exception must come out unchanged."""
    strike, error = struck
    for moment in every_moment(strike, stride):
        run = make()
        found: BaseException | None = None
        try:
            with moment:
                block(run)
        except error as caught:
            found = caught
        assert bool(moment.where) == (found is not None), f"the exception was lost at {moment.where}"
        assert found is None or (type(found) is error and found.__cause__ is None)
        try:
            check(run)
        except BaseException as failure:
            failure.add_note(f"struck at {moment.where}") if hasattr(failure, "add_note") else None
            raise


def started(**changes: Any) -> Run:
    """Return a run after its first step."""
    run = Run(**changes)
    run.train()
    return run


@pytest.mark.parametrize("step", ["auto", "manual"])
def test_struck_at_any_moment_of_a_step_the_run_closes_whole(step: str, struck: Any, stride: int) -> None:
    """Forward, backward, optimizer, logging, our own work at the step's end."""

    def check(run: Run) -> None:
        run.session.close()
        run.check_bare()
        run.check_files(struck[1])
        for frame in run.sink.frames:
            check_laws(frame)

    strike_all(lambda: started(step=step), lambda run: run.train(end_step=step == "manual"), struck, check, stride)


def test_struck_at_any_moment_of_a_step_the_same_session_goes_on(struck: Any, stride: int) -> None:
    """As in a notebook, or with a time limit a batch: no step is lost but the one that was struck, in part."""

    def check(run: Run) -> None:
        for _ in range(3):
            run.train()
        run.session.close()
        run.check_bare()
        run.check_files(struck[1])
        assert not [note for note in run.session.summary().notes if "off" in note]
        for frame in run.sink.frames:
            check_laws(frame)
        for frame in run.sink.frames[-2:]:
            assert count(frame, Phase.FORWARD) == NAMES
            assert count(frame, Phase.BACKWARD) == NAMES

    strike_all(started, lambda run: run.train(), struck, check, stride)


def test_struck_at_any_moment_of_close_a_second_close_ends_it(struck: Any, long_stride: int) -> None:
    """So does the end of the process."""

    def check(run: Run) -> None:
        run.session.close()
        run.check_bare()
        run.check_files(struck[1])

    strike_all(started, lambda run: run.session.close(), struck, check, long_stride)


def test_struck_at_any_moment_of_a_pause_the_run_closes_whole(struck: Any, stride: int) -> None:
    """Into it, inside it, out of it."""

    def block(run: Run) -> None:
        with run.session.pause():
            run.model(torch.ones(1, 2))

    def check(run: Run) -> None:
        run.train()
        run.session.close()
        run.check_bare()
        run.check_files(struck[1])

    strike_all(started, block, struck, check, stride)


def test_ctrl_c_at_any_moment_of_set_up_leaves_nothing(long_stride: int, tmp_path: Path) -> None:
    """No hook, no session, no folder; the user gets the exception and no session to close."""
    Run().session.close()  # what is imported when it is first needed is imported now
    for moment in every_moment(lambda: signal.raise_signal(signal.SIGINT), long_stride):
        sessions: list[autoprof.Session] = []
        before = set((tmp_path / "runs").iterdir())
        model = nn.Linear(2, 2)
        try:
            with moment:
                sessions.append(open_session(model, CONFIG, clock=FakeClock()))
        except KeyboardInterrupt:
            pass
        if sessions:
            assert not moment.where, f"the exception was lost at {moment.where}"
            sessions[0].close()
            continue
        assert not any(hooks_of(model).values()), moment.where
        assert recording.active is None, moment.where
        assert not open_sessions(), moment.where
        assert not optimizer_hooks(), moment.where
        assert not hasattr(nn.Module, "__prepare_scriptable__"), moment.where
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler, moment.where
        assert set((tmp_path / "runs").iterdir()) == before, moment.where


def test_ctrl_c_while_the_cost_of_the_start_is_counted_leaves_nothing() -> None:
    """All is built by then."""
    model = nn.Linear(2, 2)

    def now_ns() -> int:
        if open_sessions() and sys._getframe(1).f_code.co_name == "__exit__":
            raise KeyboardInterrupt
        return 0

    with pytest.raises(KeyboardInterrupt):
        open_session(model, CONFIG, clock=FakeClock(), processor_ns=now_ns)
    assert not any(hooks_of(model).values())
    assert not open_sessions()


def test_a_second_ctrl_c_does_not_wait_for_our_own_work() -> None:
    """A sink that hangs can be left: the first one waits for it, the second one gets out."""

    class Hangs:
        def write(self, frame: Any) -> None:
            signal.raise_signal(signal.SIGINT)
            reached.append("after the first")
            signal.raise_signal(signal.SIGINT)
            reached.append("after the second")

        def close(self, summary: Any) -> None:
            pass

    reached: list[str] = []
    run = Run(Hangs())
    with pytest.raises(KeyboardInterrupt):
        run.train()
    assert reached == ["after the first"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    run.session.close()
    run.check_bare()
    info = json.loads((run.session.folder / "run.json").read_text())
    assert info["ended"] == "closed"


def test_a_handler_that_raises_on_an_end_from_outside_ends_no_recording() -> None:
    """The program saves a checkpoint, say, and trains on: its exception comes when our own work is done."""
    number = signal.SIGTERM
    before = signal.signal(number, limit)
    try:

        class Ends(ListSink):
            def write(self, frame: Any) -> None:
                super().write(frame)
                if frame.step == 2:
                    signal.raise_signal(number)

        sink = Ends()
        run = Run(sink)
        run.train()
        with pytest.raises(TimeLimit):
            run.train()
        run.train()
        run.session.close()
        run.check_bare()
        assert [frame.step for frame in sink.frames] == [1, 2, 3]
        assert signal.getsignal(number) is limit
    finally:
        signal.signal(number, before)
