"""What tells training from validation, by itself: events come in, ends of steps and pauses come out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import optimizer as torch_optimizer

from autoprof import Phase
from autoprof._capture.marks import ENTER, KIND_MASK, LEAVE, PAUSE, UNPAUSE
from autoprof._capture.recorder import Recorder
from autoprof._process.signals import DeferSignals
from autoprof._session import training_state
from autoprof._session.loader_use import Feeds
from autoprof._session.observers import ExcludedTime
from autoprof._session.step_tracker import Following
from autoprof._session.training_state import MAX_BLOCKS, MAX_ENTRIES, MAX_OWNERS, MAX_PLACES, MIN_UPDATES, TrainingState
from autoprof.summary import UNGRADED, VALIDATION
from autoprof.testing import FakeClock

RECORDED, UNSAMPLED, AFTER_GAP = Following.RECORDED, Following.UNSAMPLED, Following.AFTER_GAP
X = torch.ones(1, 2)


@pytest.fixture(autouse=True)
def hooks_in() -> None:
    """Run each test once: no mark of a module is made here."""


class Net(nn.Module):
    """Two layers, and one that is no part of the forward."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.teacher = nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Any:
        return self.second(self.first(x))


class Loader:
    """A source of batches."""


class Steps:
    """A step tracker that notes what it is told; after each step follows what the test says."""

    def __init__(self, recorder: Recorder, clock: FakeClock, sampling: Any, *following: Following) -> None:
        self.work = DeferSignals()
        self.open: Any = SimpleNamespace(start=clock.now_ns, warmup=False)
        self.pause_work_ns = 0
        self.ended = self.count = 0
        self.ends: list[tuple[int | None, int]] = []
        """The steps that ended: optimizer steps in each, and training steps that it held."""
        self.excluded_ns: list[int] = []
        self.notes: list[str] = []
        self.finished: dict[str, Any] = {}
        self.pauses = 0
        self._recorder, self._clock, self._sampling, self._following = recorder, clock, sampling, iter(following)

    def begin_work(self) -> None:
        """Do nothing: the time of autoprof's work is of no interest here."""

    end_work = begin_work

    @property
    def paused(self) -> bool:
        return self.pauses > 0

    def start(self) -> None:
        self.follow(RECORDED)

    def follow(self, following: Following) -> None:
        """Open a step of this kind."""
        self.open = SimpleNamespace(start=self._clock.now_ns, warmup=False) if following is RECORDED else None
        self._recorder.resume() if following is RECORDED else self._recorder.suspend()
        self._sampling.gap_remaining = 0 if following is not UNSAMPLED else 100

    def end(self, began_ns: int, optimizer_steps: int | None = None, held: int = 1) -> Following:
        assert began_ns == self._clock.now_ns
        self.ends.append((optimizer_steps, held))
        self.ended += 1
        self.count += 1
        following = next(self._following, RECORDED)
        self.follow(following)
        return following

    def pause(self, since: int | None = None) -> int:
        self.pauses += 1
        if since is None and self.pauses == 1:
            self._recorder.append(PAUSE, self._clock.now_ns, get_ident())
        return self._clock.now_ns if since is None else since

    def resume(self) -> int:
        self.pauses -= 1
        if not self.pauses:
            self._recorder.append(UNPAUSE, self._clock.now_ns, get_ident())
        return self._clock.now_ns

    def now_ns(self) -> int:
        return self._clock.now_ns

    def exclude_ns(self, ns: int) -> None:
        self.excluded_ns.append(ns)

    def exclude_open(self) -> None:
        self.open.warmup = True

    def warn_once(self, note: str) -> None:
        self.notes.append(note)

    def finish(self, **how: Any) -> None:
        self.finished = how

    def detach(self) -> None:
        self.open = None


class Bench:
    """A training state on a fake clock, and the events of a program."""

    def __init__(self, *following: Following, optimizers: tuple[Any, ...] = (), **more: Any) -> None:
        self.clock = FakeClock(1_000)
        self.recorder = Recorder(self.clock)
        self.model = Net()
        self.optimizer = sgd(self.model)
        self.sampling = SimpleNamespace(gap_remaining=0, flight=None, counted_ns=0)
        self.steps = Steps(self.recorder, self.clock, self.sampling, *following)
        self.excluded = ExcludedTime()
        self.expected_failures: set[str] = set()
        state: Any = TrainingState(
            self.model,
            optimizers,
            self.recorder,
            self.sampling,  # type: ignore[arg-type]
            self.steps,  # type: ignore[arg-type]
            self.excluded,
            **more,
        )
        self.state = state
        self.state.start()

    @property
    def ends(self) -> int:
        """The number of steps that have ended."""
        return len(self.steps.ends)

    @property
    def spent(self) -> list[tuple[str, int, int]]:
        """The excluded time: name, times and nanoseconds."""
        return [(one.name, one.calls, one.total_ns) for one in self.excluded.all()]

    def forward(self, module: nn.Module | None = None, *, graded: bool = True, ns: int = 10) -> None:
        """Call the model, or this module, which is reported."""
        with torch.set_grad_enabled(graded):
            self.state.forward_begins(self.model if module is None else module)
        self.clock.advance(ns)

    def call(self, fqn: str, ns: int = 10) -> None:
        """Call a module that is recorded, but not reported."""
        label = self.recorder.label(fqn, fqn, Phase.FORWARD)
        self.recorder.append(label | ENTER, self.clock.read(), get_ident())
        self.clock.advance(ns)
        self.recorder.append(label | LEAVE, self.clock.read(), get_ident())

    def backward(self) -> None:
        """Run a backward pass."""
        if self.state.enter(torch.autograd.backward, ()):
            self.state.leave()

    def update(self, optimizer: Any = None) -> None:
        """Step an optimizer, by default that of the model."""
        optimizer = self.optimizer if optimizer is None else optimizer
        if self.state.is_recording:
            self.state.optimizer_begins(optimizer)
        self.state.optimizer_stepped(optimizer)

    def fetch(self, source: Any, *, graded: bool = True, explicit: bool = False, ns: int = 3) -> None:
        """Fetch a batch."""
        with torch.set_grad_enabled(graded):
            self.state.report_fetch(source, explicit=explicit)
        label = self.recorder.label("Data", None, Phase.DATA)
        if self.state.is_recording:
            self.recorder.append(label | ENTER, self.clock.read(), get_ident())
            self.clock.advance(ns)
            self.recorder.append(label | LEAVE, self.clock.read(), get_ident())

    @contextmanager
    def block(self, ns: int = 7) -> Iterator[None]:
        """Run a block under ``no_grad``."""
        self.state.report_ungraded(begins=True)
        yield
        self.clock.advance(ns)
        self.state.report_ungraded(begins=False)

    def train(self, steps: int = 1) -> None:
        """Train so many iterations."""
        for _ in range(steps):
            self.forward(ns=0)
            self.call("first")
            self.backward()
            self.update()

    def kinds(self) -> list[int]:
        """Return the kinds of the marks of the open step."""
        return [code & KIND_MASK for code in list(self.recorder.buffer)[::2]]


def sgd(*modules: nn.Module) -> Any:
    """Return an optimizer of these modules."""
    return torch.optim.SGD([one for module in modules for one in module.parameters()], lr=0.01)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Bench]]:
    """Return a function that makes a bench; autoprof's own time is the bench's."""
    made: list[Bench] = []

    def make(*following: Following, **more: Any) -> Bench:
        one = Bench(*following, **more)
        monkeypatch.setattr(training_state, "perf_counter_ns", lambda: one.clock.now_ns)
        made.append(one)
        return one

    yield make
    for one in made:
        one.state.detach()
        assert set(one.recorder.failures) <= one.expected_failures
    assert not torch_optimizer._global_optimizer_pre_hooks
    assert not torch_optimizer._global_optimizer_post_hooks


Make = Callable[..., Bench]


# Where steps end.


def test_the_next_training_forward_after_an_update_ends_the_step(bench: Make) -> None:
    """Neither the first forward does, nor another one before the update."""
    one = bench()
    one.forward()
    one.forward()
    one.backward()
    one.update()
    assert one.ends == 0
    one.forward()
    assert one.steps.ends == [(1, 1)]


def test_a_fetch_of_a_loader_that_feeds_training_ends_the_step(bench: Make) -> None:
    """A loader whose use is unknown ends none, unless it was given to the session."""
    one, loader = bench(), Loader()
    one.fetch(loader)
    one.train()
    one.fetch(Loader())
    assert one.ends == 0
    one.fetch(loader)
    assert one.ends == 1
    one.train()
    one.fetch(Loader(), explicit=True)
    assert one.ends == 2


def test_a_backward_pass_ends_the_step_where_no_forward_was_seen(bench: Make) -> None:
    """A program may call what no hook is on."""
    one = bench()
    for _ in range(3):
        one.backward()
        one.update()
    assert one.ends == 2


def test_a_second_fetch_of_a_loader_ends_the_step_although_an_optimizer_is_missing(bench: Make) -> None:
    """Two optimizers were expected, and only one steps."""
    one, loader = bench(expected_optimizers=2), Loader()
    for _ in range(3):
        one.fetch(loader, explicit=True)
        one.train()
    assert one.ends == 2


def test_a_fetch_of_another_loader_does_not_end_a_step_without_an_optimizer_that_is_due(bench: Make) -> None:
    """A GAN's two halves may each have a loader."""
    one = bench(expected_optimizers=2)
    one.fetch(Loader(), explicit=True)
    one.train()
    one.fetch(Loader(), explicit=True)
    assert one.ends == 0


def test_a_step_whose_closure_was_preceded_by_a_fetch_ends_with_the_next_fetch(bench: Make) -> None:
    """Without a fetch it ends with the optimizer: a forward in the closure comes too late for it."""
    one, loader = bench(), Loader()

    def closure() -> None:
        one.state.optimizer_begins(one.optimizer)
        one.forward()
        one.backward()
        one.state.optimizer_stepped(one.optimizer)

    closure()
    assert one.ends == 1
    one.fetch(loader)
    closure()
    assert one.ends == 1
    one.fetch(loader)
    assert one.ends == 2


def test_a_forward_after_the_closure_of_a_step_with_a_forward_before_ends_it(bench: Make) -> None:
    """The step does not end with the optimizer: the program calls the model before its update."""
    one = bench()
    for _ in range(2):
        one.forward()
        one.state.optimizer_begins(one.optimizer)
        one.forward()
        one.state.optimizer_stepped(one.optimizer)
    assert one.ends == 1


def test_an_optimizer_inside_another_makes_no_update_of_its_own(bench: Make) -> None:
    """A wrapper may be a torch optimizer around the one that was made first."""
    one, outer = bench(), sgd(Net())
    for _ in range(2):
        one.forward()
        one.state.optimizer_begins(outer)
        one.update()
        assert one.state._updates_made == 0
        one.state.optimizer_stepped(outer)
    assert one.ends == 1


def test_an_exception_in_an_optimizer_does_not_hide_its_next_step(bench: Make) -> None:
    """That step began, and never ended."""
    one = bench()
    one.forward()
    one.state.optimizer_begins(one.optimizer)
    one.train(2)
    assert one.ends == 1


def test_an_optimizer_of_another_model_ends_no_step(bench: Make) -> None:
    """It holds none of this model's parameters."""
    one, other = bench(), sgd(Net())
    one.train()
    for _ in range(3):
        one.update(other)
    one.forward()
    assert one.steps.ends == [(1, 1)]
    one.backward()
    one.update(other)
    one.forward()
    assert one.ends == 1


def test_optimizers_without_parameters_of_the_model_count_where_none_has_any(bench: Make) -> None:
    """FSDP and DeepSpeed give an optimizer copies of the parameters."""
    one, copies = bench(), sgd(Net())
    for _ in range(3):
        one.forward()
        one.backward()
        one.update(copies)
    assert one.ends == 2
    one.update(SimpleNamespace())
    one.forward()
    assert one.ends == 3


def test_after_a_call_of_step_only_such_calls_end_steps(bench: Make) -> None:
    """The hooks on optimizers are gone from then on."""
    one = bench()
    assert torch_optimizer._global_optimizer_pre_hooks
    assert torch_optimizer._global_optimizer_post_hooks
    one.train()
    one.state.step()
    assert one.steps.ends == [(None, 1)]
    assert not torch_optimizer._global_optimizer_pre_hooks
    assert not torch_optimizer._global_optimizer_post_hooks
    one.forward()
    one.backward()
    one.forward()
    one.fetch(Loader(), explicit=True)
    assert one.ends == 1


# What a gap counts.


def test_the_steps_of_a_gap_are_counted_by_the_optimizer_that_stepped_last(bench: Make) -> None:
    """Each step of it is one of the gap; those of the other optimizer are none."""
    one = bench(RECORDED, RECORDED, UNSAMPLED)
    first, second = sgd(one.model.first), sgd(one.model.second)

    def iteration() -> None:
        one.forward()
        one.backward()
        one.update(first)
        one.update(second)
        one.update(second)

    for _ in range(4):
        iteration()
    assert one.steps.ends[-1] == (2, 1)
    assert not one.state.is_recording
    before = one.sampling.gap_remaining
    iteration()
    assert one.sampling.gap_remaining == before - 2


def test_optimizers_that_step_differently_often_leave_the_regular_one_to_count(bench: Make) -> None:
    """Those whose number changes from step to step count nothing."""
    one = bench(RECORDED, RECORDED, UNSAMPLED)
    regular, other = sgd(one.model.first), sgd(one.model.second)
    one.state._cycle.add = lambda *_args, **_more: None  # the ends are those of ``step``
    for extra in range(4):
        one.forward()
        one.backward()
        one.update(regular)
        for _ in range(extra):
            one.update(other)
        one.state._end_step()
    assert one.steps.ends == [(1, 1), (1, 1), (1, 1), (1, 1)]


def test_where_no_optimizer_steps_regularly_all_their_steps_count(bench: Make) -> None:
    """The numbers of the last recorded step are those of each step of the gap."""
    one = bench()
    first, second = sgd(one.model.first), sgd(one.model.second)
    for times in (1, 2, 3):
        one.forward()
        for _ in range(times):
            one.update(first)
            one.update(second)
        one.state._end_step()
    assert [updates for updates, _ in one.steps.ends] == [1, 4, 6]


def test_an_update_in_a_gap_is_counted_at_its_time(bench: Make) -> None:
    """Its last one ends the gap."""
    one = bench(UNSAMPLED)
    one.train(2)
    one.sampling.gap_remaining = 2
    one.clock.advance(50)
    one.update()
    assert (one.sampling.gap_remaining, one.sampling.counted_ns) == (1, one.clock.now_ns)
    assert one.ends == 1
    one.update()
    assert one.ends == 2


@pytest.mark.parametrize("auto", [True, False])
def test_a_flight_recorder_is_given_the_end_of_each_unsampled_step(bench: Make, auto: bool) -> None:
    """It reads the time itself."""
    one = bench(UNSAMPLED, UNSAMPLED, UNSAMPLED, auto=auto)
    one.sampling.flight, one.sampling.count_step = object(), lambda: 77
    one.train()
    one.forward() if auto else one.state.step()
    one.sampling.counted_ns = 0
    one.update() if auto else one.state.step()
    assert one.sampling.counted_ns == 77


def test_without_a_flight_recorder_a_call_of_step_in_a_gap_is_counted_by_the_step_tracker(bench: Make) -> None:
    """The same holds outside of gaps with one."""
    one = bench(UNSAMPLED, RECORDED, auto=False)
    one.state.step()
    one.state.step()
    assert one.sampling.counted_ns == 0
    one.sampling.flight, one.sampling.count_step = object(), lambda: 77
    one.state.step()
    assert (one.sampling.counted_ns, one.ends) == (0, 3)


def test_another_optimizer_takes_over_where_the_chosen_one_steps_no_more(bench: Make) -> None:
    """Its first step is counted then, too; the other's are none from then on."""
    one = bench(RECORDED, RECORDED, UNSAMPLED)
    first, second = sgd(one.model.first), sgd(one.model.second)
    for _ in range(4):
        one.forward()
        one.backward()
        one.update(second)
    one.sampling.gap_remaining = 100
    one.update(first)
    assert one.sampling.gap_remaining == 100
    one.update(second)
    one.update(first)
    assert one.sampling.gap_remaining == 99
    one.update(first)
    assert one.sampling.gap_remaining == 97
    one.update(first)
    assert one.sampling.gap_remaining == 96


def test_an_optimizer_of_another_model_takes_nothing_over(bench: Make) -> None:
    """However often it steps."""
    one = bench(UNSAMPLED)
    one.train(2)
    one.sampling.gap_remaining = 100
    other = sgd(Net())
    for _ in range(5):
        one.update(other)
    assert one.sampling.gap_remaining == 100


def test_after_a_gap_the_next_training_forward_begins_a_recorded_step(bench: Make) -> None:
    """Whatever was updated since."""
    one = bench(UNSAMPLED, AFTER_GAP)
    one.train(2)
    one.sampling.gap_remaining = 1
    one.update()
    assert one.state.is_recording
    assert one.steps.open is None
    one.forward()
    assert one.ends == 3
    assert one.steps.open is not None


def test_steps_that_an_optimizer_made_are_compared_with_those_found(bench: Make) -> None:
    """The note has both numbers, and says what to do."""
    one = bench()
    one.forward()
    for _ in range(4):
        one.update()
    one.forward()
    one.state.finish(patient=True)
    assert one.steps.notes == [
        "1 step was found, but one optimizer made 4 steps; to say where a step ends, open the session in the program "
        "(autoprof.instrument) and call session.step() at the end of each iteration"
    ]


@pytest.mark.parametrize(
    ("found", "made", "noted"),
    [
        (4, [5], False),
        (3, [5], True),
        (6, [5], False),
        (7, [5], True),
        (8, [5, 2], False),
        (9, [5, 2], True),
        (9, [], False),
        (0, [], False),
    ],
)
def test_the_end_of_a_run_may_hold_one_step_more_or_less_than_the_optimizers_made(
    bench: Make, found: int, made: list[int], noted: bool
) -> None:
    """As many steps are found as one optimizer makes, or as all of them make together."""
    one = bench()
    optimizers = [sgd(one.model.first), sgd(one.model.second)]
    for optimizer, times in zip(optimizers, made, strict=False):
        for _ in range(times):
            one.update(optimizer)
    one.steps.count = found
    one.state.finish(patient=True)
    assert [f"{found} steps were found" in note for note in one.steps.notes] == [True] * noted


def test_the_steps_of_an_optimizer_that_took_over_are_all_counted(bench: Make) -> None:
    """The one before it took over, too."""
    one = bench(RECORDED, UNSAMPLED)
    first, second = sgd(one.model.first), sgd(one.model.second)
    one.forward()
    one.update(first)
    one.update(second)
    one.state._end_step()
    one.forward()
    one.update(second)
    one.forward()
    for _ in range(9):
        one.update(first)
    assert one.state._totals == {id(first): 10, id(second): 2}


# Programs without an optimizer.


def test_a_program_without_an_optimizer_ends_its_step_at_the_forward_after_its_update(bench: Make) -> None:
    """The update shows in the parameters and their gradients, after a backward pass."""
    one = bench()
    for _ in range(3):
        one.forward()
        one.model(X).sum().backward()
        with torch.no_grad():
            for parameter in one.model.first.parameters():
                parameter.sub_(0.1)
        one.model.zero_grad()
    assert one.ends == 2


def test_calls_of_autograd_grad_are_updates_where_nothing_else_is(bench: Make) -> None:
    """Each one is the gradient of a step; in a gap each one counts."""
    one = bench(RECORDED, UNSAMPLED)

    def iteration() -> None:
        one.forward()
        loss = one.model(X).sum()
        torch.autograd.grad(loss, one.model.first.weight)

    for _ in range(3):
        iteration()
    assert one.steps.ends == [(1, 1), (1, 1)]
    one.sampling.gap_remaining = 10
    iteration()
    assert one.sampling.gap_remaining == 9


def test_a_torch_optimizer_ends_the_search_for_updates_of_the_programs_own(bench: Make) -> None:
    """From its first step on, only optimizers update."""
    one = bench()
    one.train()
    one.forward()
    torch.autograd.grad(one.model(X).sum(), one.model.first.weight)
    one.forward()
    assert one.ends == 1


def test_backward_passes_count_the_steps_of_a_gap_where_no_optimizer_does(bench: Make) -> None:
    """Each step of the gap has as many as the step before it."""
    one = bench(RECORDED, UNSAMPLED)
    for _ in range(3):
        for _ in range(2):
            one.forward()
            one.model(X).sum().backward()
        with torch.no_grad():
            for parameter in one.model.first.parameters():
                parameter.sub_(0.1)
        one.model.zero_grad()
    one.forward()
    assert one.steps.ends == [(2, 1), (2, 1)]
    one.sampling.gap_remaining = 10
    one.model(X).sum().backward()
    assert one.sampling.gap_remaining == 9


# Validation.


def test_a_forward_in_eval_mode_begins_validation_and_one_that_trains_ends_it(bench: Make) -> None:
    """It is counted under its name."""
    one = bench()
    one.train(2)
    one.model.eval()
    one.forward(graded=False, ns=100)
    assert one.state.is_excluded
    one.model.train()
    one.forward()
    assert not one.state.is_excluded
    assert one.spent == [(VALIDATION, 1, 100)]
    assert one.ends == 2


def test_a_loader_from_which_batches_were_evaluated_feeds_validation(bench: Make) -> None:
    """Its fetch is retracted the first time; from then on validation begins with it, whatever follows the fetch."""
    one, feeds, loader = bench(), Loader(), Loader()
    one.fetch(feeds)
    one.train()
    one.model.eval()
    one.fetch(loader)
    one.clock.advance(20)
    one.forward(graded=False, ns=100)
    one.model.train()
    one.fetch(feeds)
    assert one.spent == [(VALIDATION, 1, 123)]
    one.train()
    one.fetch(loader)
    assert one.state.is_excluded


def test_a_loader_whose_batches_a_part_evaluated_without_gradients_feeds_validation(bench: Make) -> None:
    """The model stays in ``train`` mode, and hardly any step has such a forward."""
    one, feeds, loader = bench(), Loader(), Loader()
    one.fetch(feeds)
    one.train(5)
    one.fetch(loader)
    one.forward(graded=False)
    assert one.state.is_excluded
    one.fetch(feeds)
    one.train()
    assert not one.state.is_excluded
    one.fetch(loader)
    assert one.state.is_excluded
    assert one.spent == [(UNGRADED, 1, 13)]


def test_a_loader_that_feeds_training_is_not_retracted(bench: Make) -> None:
    """Its batch was fetched for the step, and evaluated as well."""
    one, loader = bench(), Loader()
    one.fetch(loader)
    one.train()
    one.fetch(loader)
    one.model.eval()
    one.forward(graded=False, ns=100)
    one.model.train()
    one.train()
    assert one.spent == [(VALIDATION, 1, 100)]


def test_a_fetch_under_no_grad_after_an_update_begins_validation(bench: Make) -> None:
    """Before the update it is part of the step."""
    one = bench()
    one.forward()
    one.fetch(Loader(), graded=False)
    assert not one.state.is_excluded
    one.update()
    one.fetch(Loader(), graded=False)
    assert one.state.is_excluded
    assert one.state.expects_fetches


@pytest.mark.parametrize(("fetches", "known"), [(2, False), (3, True)])
def test_a_loader_that_was_asked_several_times_during_validation_feeds_validation(
    bench: Make, fetches: int, known: bool
) -> None:
    """Also where no forward was reported: a copy of the model was evaluated."""
    one, loader = bench(), Loader()
    one.train()
    for _ in range(fetches):
        one.fetch(loader, graded=False)
    one.train()
    assert not one.state.is_excluded
    one.fetch(loader)
    assert one.state.is_excluded == known


def test_the_call_of_eval_begins_validation_after_an_update_only(bench: Make) -> None:
    """Frozen layers may be put in ``eval`` mode in the middle of a step."""
    one = bench()
    one.state.report_mode(False)
    assert not one.state.is_excluded
    one.forward()
    one.state.report_mode(False)
    assert not one.state.is_excluded
    one.update()
    one.state.report_mode(True)
    assert not one.state.is_excluded
    one.state.report_mode(False)
    assert one.state.is_excluded
    one.train()
    assert not one.state.is_excluded


def test_in_a_gap_the_calls_of_eval_and_train_are_validation(bench: Make) -> None:
    """No forward is reported there."""
    one = bench(UNSAMPLED)
    one.train(2)
    one.state.report_mode(False)
    assert one.state.is_excluded
    one.clock.advance(30)
    one.state.report_mode(True)
    assert not one.state.is_excluded
    assert one.spent == [(VALIDATION, 1, 30)]


def test_in_a_gap_a_fetch_without_gradients_begins_validation_and_one_with_gradients_ends_it(bench: Make) -> None:
    """A loader that is known to feed training begins none."""
    one, feeds, checks = bench(UNSAMPLED), Loader(), Loader()
    one.fetch(feeds)
    one.train(2)
    one.fetch(feeds, graded=False)
    assert not one.state.is_excluded
    assert not one.state.expects_fetches
    one.fetch(checks, graded=False)
    assert one.state.is_excluded
    assert one.state.expects_fetches
    one.clock.advance(30)
    one.fetch(feeds)
    assert not one.state.is_excluded
    assert not one.state.expects_fetches
    assert one.spent == [(VALIDATION, 1, 30)]


def test_a_backward_pass_after_eval_shows_that_the_model_trains_in_eval_mode(bench: Make) -> None:
    """The open step is a warm-up step; from then on such a forward trains."""
    one = bench()
    one.train(2)
    one.model.eval()
    one.forward()
    assert one.state.is_excluded
    one.backward()
    assert not one.state.is_excluded
    assert one.steps.open.warmup
    one.update()
    one.forward()
    assert not one.state.is_excluded
    assert one.ends == 2


def test_a_backward_pass_after_an_evaluation_without_gradients_ends_validation(bench: Make) -> None:
    """The model trains by calls that are not reported."""
    one = bench()
    one.train(2)
    one.model.eval()
    one.forward(graded=False)
    one.backward()
    assert not one.state.is_excluded
    assert not one.steps.open.warmup


def test_forwards_on_another_thread_are_passed_over_once_this_one_trains(bench: Make) -> None:
    """An actor, or an evaluation beside the training."""
    one = bench()
    one.train(MIN_UPDATES)
    one.model.eval()

    def evaluate() -> None:
        one.state.report_mode(False)
        one.forward(graded=False)

    thread = threading.Thread(target=evaluate)
    thread.start()
    thread.join()
    assert not one.state.is_excluded


def test_a_pause_inside_validation_is_no_part_of_it(bench: Make) -> None:
    """Each is counted under its name."""
    one = bench()
    one.train()
    one.model.eval()
    one.forward(graded=False, ns=100)
    with one.state.exclude("torch.save"):
        one.clock.advance(1_000)
    one.model.train()
    one.forward()
    assert one.spent == [("torch.save", 1, 1_000), (VALIDATION, 1, 100)]


def test_a_pause_inside_another_is_part_of_it(bench: Make) -> None:
    """The outermost name counts; a forward in ``eval`` mode inside makes it validation."""
    one = bench()
    one.train()
    with one.state.exclude("pause"):
        one.clock.advance(5)
        with one.state.exclude("torch.save"):
            one.clock.advance(10)
    with one.state.exclude("pause"):
        one.model.eval()
        one.forward(graded=False, ns=100)
    assert one.spent == [("pause", 1, 15), (VALIDATION, 1, 100)]


def test_validation_that_is_named_and_was_recognised_is_counted_once(bench: Make) -> None:
    """``session.validation`` around a loop whose fetch began it already."""
    one = bench()
    one.train()
    one.state.report_mode(False)
    with one.state.exclude(VALIDATION):
        one.clock.advance(40)
    one.train()
    assert one.spent == [(VALIDATION, 1, 40)]


def test_nothing_in_a_pause_ends_a_step(bench: Make) -> None:
    """Neither a forward, a fetch nor a backward pass."""
    one, loader = bench(), Loader()
    one.fetch(loader)
    one.train()
    with one.state.exclude("pause"):
        one.forward()
        one.fetch(loader)
        one.backward()
    assert one.ends == 0
    one.forward()
    assert one.ends == 1


def test_the_time_after_the_last_block_of_the_last_validation_is_no_part_of_it(bench: Make) -> None:
    """No event ends it, and more time follows than it took."""
    one = bench()
    one.train()
    one.state.report_mode(False)
    with one.block(50):
        pass
    one.clock.advance(51)
    one.state.finish(patient=True)
    assert one.spent == [(VALIDATION, 1, 50)]


def test_as_much_time_after_the_last_block_as_before_its_end_is_part_of_validation(bench: Make) -> None:
    """Metrics are computed from what the model has returned."""
    one = bench()
    one.train()
    one.state.report_mode(False)
    with one.block(50):
        pass
    one.clock.advance(50)
    one.state.finish(patient=True)
    assert one.spent == [(VALIDATION, 1, 100)]


def test_autoprofs_own_work_at_both_ends_is_no_part_of_validation(bench: Make) -> None:
    """Detaching the probes, and attaching them again."""
    one = bench()
    one.train()
    one.state.report_mode(False)
    one.clock.advance(50)
    one.steps.pause_work_ns = 8
    one.state.report_mode(True)
    one.train()
    assert one.spent == [(VALIDATION, 1, 42)]


# Work without gradients between steps.


def test_forwards_without_gradients_are_excluded_where_hardly_any_step_has_them(bench: Make) -> None:
    """The first three steps decide nothing."""
    one = bench()
    one.train()
    one.forward(graded=False)
    assert not one.state.is_excluded
    one.train(5)
    one.forward(graded=False, ns=30)
    assert one.state.is_excluded
    one.train()
    assert one.spent == [(UNGRADED, 1, 30)]


def test_forwards_without_gradients_after_the_first_training_forward_are_part_of_the_step(bench: Make) -> None:
    """A target network, called between the student and its loss."""
    one = bench()
    one.train(5)
    one.forward()
    one.forward(graded=False)
    assert not one.state.is_excluded


def test_forwards_that_are_more_than_each_step_has_are_excluded(bench: Make) -> None:
    """A teacher is called in each step, and twice more before one of them: the first two are no part of it."""
    one = bench()

    def teach(ns: int = 10) -> None:
        one.forward(graded=False, ns=0)
        one.call("teacher", ns)

    for _ in range(5):
        teach()
        one.train()
    teach(100)
    teach(200)
    teach()
    one.train()
    assert one.spent == [(UNGRADED, 1, 300)]
    assert one.steps.excluded_ns == [300]


def test_forwards_that_are_more_than_each_step_has_become_a_pause(bench: Make) -> None:
    """Their marks do: the calls that the step keeps stay."""
    one = bench()
    for calls in (1, 1, 1, 1, 3):
        for _ in range(calls):
            one.forward(graded=False, ns=0)
            one.call("teacher")
        if calls == 1:
            one.train()
    one.state._end_between()
    trained, *since = one.kinds()[1:]
    assert trained == LEAVE
    assert since == [PAUSE, PAUSE, PAUSE, UNPAUSE, ENTER, LEAVE]


def test_fetches_right_before_forwards_that_are_too_many_are_excluded_with_them(bench: Make) -> None:
    """Their batches were for these forwards."""
    one = bench()
    for calls in (1, 1, 1, 1, 3):
        if calls == 3:
            one.fetch(Loader())
        for _ in range(calls):
            one.forward(graded=False, ns=0)
            one.call("teacher")
        one.train()
    assert one.spent == [(UNGRADED, 1, 23)]


def test_calls_before_the_forward_that_shows_validation_are_excluded_with_it(bench: Make) -> None:
    """Once: a part was called first, then the model."""
    one = bench()
    one.train(5)
    one.call("teacher", 40)
    one.forward(graded=False, ns=30)
    one.train()
    assert sum(ns for _, _, ns in one.spent) == 70
    assert sum(one.steps.excluded_ns) == 40


def test_a_module_called_between_some_steps_is_reported_and_its_time_is_a_row(bench: Make) -> None:
    """Whether it is validation cannot be told: the note says what to do."""
    one = bench()
    for times in range(8):
        if times % 2:
            one.call("teacher")
            one.call("second")
        one.train()
    assert one.steps.notes
    assert set(one.steps.notes) == {
        "teacher was called between an update and the next training forward in some steps and not in others: "
        "validation, or part of training? Its time is in the row 'forward without gradients', in no forward; call "
        "model.eval() before validation, or put session.pause() around it"
    }
    assert one.spent == []
    assert len(one.model.teacher._forward_pre_hooks) == 1
    assert not one.model.second._forward_pre_hooks


def test_the_longest_blocks_that_are_more_than_each_step_has_are_excluded(bench: Make) -> None:
    """Each step has one; one of them had three, of which the second was short."""
    one = bench()
    for _ in range(5):
        with one.block():
            pass
        one.train()
    one.clock.advance(1_000)
    for ns in (300, 10, 200):
        with one.block(ns):
            pass
    one.train()
    assert one.spent == [(UNGRADED, 2, 500)]


def test_a_block_without_gradients_that_hardly_any_step_has_is_excluded(bench: Make) -> None:
    """From its begin on: it lies between the update and the next training forward."""
    one = bench()
    one.train(5)
    with one.block(30):
        assert one.state.is_excluded
    assert not one.state.is_excluded
    one.train()
    assert one.spent == [(UNGRADED, 1, 30)]


def test_a_block_that_is_excluded_is_not_excluded_again(bench: Make) -> None:
    """A shorter one before it was in the step: both are more than other steps have."""
    one = bench()
    for blocks in (0, 0, 1, 0, 0, 2):
        for _ in range(blocks):
            with one.block(30):
                pass
        one.train()
    assert one.spent == [(UNGRADED, 2, 60)]


@pytest.mark.parametrize("where", ["in the optimizer", "after the forward", "in validation", "in a pause", "our own"])
def test_a_block_elsewhere_is_excluded_nowhere(bench: Make, where: str) -> None:
    """It is part of what is around it, or autoprof's own."""
    one = bench(auto=False)
    for _ in range(5):
        one.train()
        one.state.step()
    if where == "in the optimizer":
        one.state.optimizer_begins(one.optimizer)
    elif where == "after the forward":
        one.forward()
    elif where == "in validation":
        one.state.report_mode(False)
    pauses = one.steps.pauses
    if where == "in a pause":
        with one.state.exclude("pause"), one.block():
            assert one.steps.pauses == 1
    elif where == "our own":
        with one.steps.work, one.block():
            assert not one.steps.pauses
    else:
        with one.block():
            assert one.steps.pauses == pauses
        assert one.steps.pauses == pauses


@pytest.mark.parametrize("where", ["in a pause", "in the optimizer", "after the forward"])
def test_a_forward_without_gradients_elsewhere_is_excluded_nowhere(bench: Make, where: str) -> None:
    """It is part of what is around it."""
    one = bench(auto=False)
    for _ in range(5):
        one.train()
        one.state.step()
    if where == "in a pause":
        with one.state.exclude("pause"):
            one.forward(graded=False, ns=30)
    elif where == "in the optimizer":
        one.state.optimizer_begins(one.optimizer)
        one.forward(graded=False)
        one.update()
    else:
        one.forward()
        one.forward(graded=False)
    one.train()
    assert one.spent == ([("pause", 1, 30)] if where == "in a pause" else [])


@pytest.mark.parametrize(("blocks", "excluded_ns"), [(1, 0), (2, 500), (3, 900)])
def test_the_longest_blocks_of_an_unsampled_step_are_excluded_where_it_has_more_than_others(
    bench: Make, blocks: int, excluded_ns: int
) -> None:
    """Each recorded step has one, wherever it is."""
    one = bench(RECORDED, RECORDED, RECORDED, UNSAMPLED)
    for _ in range(5):
        one.forward()
        with one.block():
            pass
        one.update()
    assert not one.state.is_recording
    one.update()
    for ns in (100, 400, 500)[-blocks:]:
        with one.block(ns):
            pass
    one.update()
    one.update()
    assert sum(one.steps.excluded_ns) == excluded_ns
    assert one.spent == ([(UNGRADED, 1, excluded_ns)] if excluded_ns else [])


def test_blocks_in_what_is_excluded_are_none_of_an_unsampled_step(bench: Make) -> None:
    """Neither those of a pause nor those of validation."""
    one = bench(RECORDED, RECORDED, RECORDED, UNSAMPLED)
    one.train(5)
    with one.state.exclude("pause"), one.block(50):
        pass
    one.state.report_mode(False)
    with one.block(60):
        pass
    one.state.report_mode(True)
    one.update()
    assert one.spent == [("pause", 1, 50), (VALIDATION, 1, 60)]


def test_a_block_that_began_before_a_gap_is_none_of_it(bench: Make) -> None:
    """How long it was in the gap is unknown."""
    one = bench(RECORDED, RECORDED, RECORDED, UNSAMPLED)
    one.train(4)
    one.state.report_ungraded(begins=True)
    one.train()
    one.state.report_ungraded(begins=False)
    one.update()
    assert not one.state._blocks.lengths_ns
    assert not [spent for spent in one.spent if spent[0] != UNGRADED]


def test_a_limited_number_of_blocks_of_an_unsampled_step_is_kept(bench: Make) -> None:
    """A step may run thousands."""
    one = bench(UNSAMPLED)
    one.train(2)
    for _ in range(MAX_BLOCKS + 5):
        with one.block(1):
            pass
    assert one.state._blocks.lengths_ns == [1] * MAX_BLOCKS


def test_updates_of_a_step_have_each_their_own_regularity(bench: Make) -> None:
    """A generator without gradients follows the first of two updates in each step: it is part of the step."""
    one = bench()
    first, second = sgd(one.model.first), sgd(one.model.second)
    for _ in range(9):
        one.forward()
        one.update(first)
        one.forward(graded=False)
        one.forward()
        one.update(second)
    assert one.spent == []


# The modules that the program calls.


def test_a_module_that_is_called_in_place_of_the_model_is_reported_from_the_update_on(bench: Make) -> None:
    """The first one of the step, and where that is known the next."""
    one = bench()
    hooks = [len(part._forward_pre_hooks) for part in (one.model, one.model.first, one.model.second)]
    assert hooks == [1, 0, 0]
    for expected in ([1, 1, 0], [1, 1, 1], [1, 1, 1]):
        one.call("first")
        one.call("second")
        one.update()
        hooks = [len(part._forward_pre_hooks) for part in (one.model, one.model.first, one.model.second)]
        assert hooks == expected


def test_a_module_whose_forward_called_the_model_begins_the_step_from_then_on(bench: Make) -> None:
    """The call around the first training forward is still open: it is part of the step."""
    one = bench()
    one.train(5)
    label = one.recorder.label("teacher", "teacher", Phase.FORWARD)
    one.recorder.append(label | ENTER, 0, get_ident())
    one.forward()
    assert len(one.model.teacher._forward_pre_hooks) == 1
    assert not one.model.first._forward_pre_hooks
    assert one.steps.notes == []


def test_a_limited_number_of_modules_is_reported(bench: Make) -> None:
    """Those that the program calls first, and no unknown one."""
    called = [nn.Linear(1, 1) for _ in range(MAX_ENTRIES + 5)]
    one = bench(called=called)
    assert [len(module._forward_pre_hooks) for module in called] == [1] * (MAX_ENTRIES - 1) + [0] * 6
    assert not one.state._add_entry("first")
    assert not bench().state._add_entry("unknown")


def test_a_module_that_is_found_in_a_gap_is_reported_after_it(bench: Make) -> None:
    """In the gap no forward is reported."""
    one = bench(UNSAMPLED, RECORDED)
    one.train(2)
    assert not one.model._forward_pre_hooks
    assert one.state._add_entry("first")
    assert not one.model.first._forward_pre_hooks
    one.sampling.gap_remaining = 1
    one.update()
    assert len(one.model._forward_pre_hooks) == len(one.model.first._forward_pre_hooks) == 1


def test_a_program_is_told_of_forwards_that_train_and_of_no_others(bench: Make) -> None:
    """As the count of samples is."""
    calls: list[int] = []
    one = bench(training_forward_calls=[lambda: calls.append(1)])
    one.forward()
    assert calls == [1]
    one.forward(graded=False)
    one.model.eval()
    one.forward(graded=False)
    assert calls == [1]


def test_forwards_of_a_part_in_eval_mode_that_never_trained_are_forwards_without_gradients(bench: Make) -> None:
    """A teacher is in ``eval`` mode in each step: no validation."""
    teacher = nn.Linear(2, 2).eval()
    one = bench(called=(teacher,))
    for _ in range(5):
        one.forward(teacher, graded=False)
        one.train()
    assert one.spent == []
    assert one.ends == 4


# Optimizers.


def test_of_a_limited_number_of_optimizers_is_remembered_whether_they_are_the_models(bench: Make) -> None:
    """A program that makes a new one for each step keeps the first ones."""
    one = bench()
    assert one.state._owns(one.optimizer)
    others = [sgd(one.model.first) for _ in range(MAX_OWNERS)]
    assert [one.state._owns(other) for other in others] == [True] * (MAX_OWNERS - 1) + [False]
    for other in (one.optimizer, *others):
        one.state.optimizer_stepped(other)
    assert one.state._owns(one.optimizer)
    assert len(one.state._totals) < MAX_OWNERS + 1


def test_optimizers_that_were_named_are_the_models_whatever_they_hold(bench: Make) -> None:
    """And no other is hooked."""
    named = sgd(Net())
    one = bench(optimizers=(named,))
    assert len(named._optimizer_step_post_hooks) == len(named._optimizer_step_pre_hooks) == 1
    assert not torch_optimizer._global_optimizer_post_hooks
    for _ in range(3):
        one.forward()
        one.update(named)
    assert one.ends == 2
    one.state.detach()
    assert not named._optimizer_step_post_hooks
    assert not named._optimizer_step_pre_hooks


# The end.


def test_the_last_step_is_whole_where_it_has_an_update(bench: Make) -> None:
    """It ends with its last mark where more time follows the update than came before it."""
    for updated in (True, False):
        one = bench()
        one.forward(ns=0)
        one.call("first")
        if updated:
            one.update()
        one.clock.advance(1_000)
        one.state.finish(patient=updated)
        assert one.steps.finished == {"whole": updated, "patient": updated, "until": 4}


def test_a_last_step_that_goes_on_until_now_has_no_other_end(bench: Make) -> None:
    """Little time has passed since."""
    one = bench()
    one.forward(ns=0)
    one.call("first")
    one.update()
    one.clock.advance(5)
    one.state.finish(patient=True)
    assert one.steps.finished["until"] is None


def test_with_calls_of_step_the_last_step_is_never_whole(bench: Make) -> None:
    """It has no end."""
    one = bench(auto=False)
    one.train()
    one.clock.advance(1_000)
    one.state.finish(patient=False)
    assert one.steps.finished == {"whole": False, "patient": False, "until": None}
    assert one.steps.notes == []


def test_a_program_without_an_optimizer_has_a_whole_last_step_where_it_has_updated(bench: Make) -> None:
    """After its backward pass, as its parameters show."""
    one = bench()
    one.forward()
    one.model(X).sum().backward()
    one.model.zero_grad()
    one.state.finish(patient=True)
    assert one.steps.finished["whole"]


def test_after_detach_nothing_is_reported(bench: Make) -> None:
    """Whatever was open: validation ends, and no hook remains."""
    one = bench()
    one.train()
    one.state.report_mode(False)
    one.state.detach()
    assert not one.state.is_recording
    assert not one.state.is_excluded
    assert one.steps.open is None
    assert not one.model._forward_pre_hooks
    assert not torch_optimizer._global_optimizer_post_hooks
    one.model(X).sum().backward()
    torch.autograd.grad(one.model(X).sum(), one.model.first.weight)
    assert one.ends == 0


def test_a_training_loaders_fetch_before_a_rare_forward_without_gradients_stays_in_the_step(bench: Make) -> None:
    """Its batch is for the step."""
    one, feeds = bench(auto=False), Loader()
    for _ in range(5):
        one.fetch(feeds)
        one.train()
        one.state.step()
    one.fetch(feeds)
    one.forward(graded=False, ns=30)
    one.train()
    assert one.spent == [(UNGRADED, 1, 30)]


def test_a_limited_number_of_updates_of_a_step_is_distinguished(bench: Make) -> None:
    """Those after them share one regularity."""
    one = bench()
    for _ in range(3 * MAX_PLACES):
        one.update()
        one.forward(graded=False)
        one.state._end_between()
    assert len(one.state._ungraded_after) == MAX_PLACES


def test_a_gradient_that_cannot_be_looked_at_is_a_failure_of_ours(bench: Make) -> None:
    """From then on no update of the program's own is seen."""
    one = bench()
    one.forward()

    def fail() -> None:
        raise RuntimeError("no such tensor")

    one.state._custom.end_pass = fail
    one.model(X).sum().backward()
    assert one.recorder.failures == {"backward passes": 1}
    one.expected_failures = {"backward passes"}
    one.model.zero_grad()
    one.forward()
    assert one.ends == 0


def test_a_block_of_validation_that_is_open_at_the_end_of_the_run_is_part_of_it(bench: Make) -> None:
    """However long it is."""
    one = bench()
    one.train()
    one.state.report_mode(False)
    one.clock.advance(10)
    one.state.report_ungraded(begins=True)
    one.clock.advance(1_000)
    one.state.finish(patient=True)
    assert one.spent == [(VALIDATION, 1, 1_010)]


def test_a_step_that_held_several_counts_each_optimizer_once(bench: Make) -> None:
    """Two optimizers were expected, and one steps twice instead."""
    one = bench(expected_optimizers=2)
    one.train(2)
    one.forward()
    assert one.steps.ends == [(1, 2)]


def test_what_comes_between_steps_without_a_forward_has_its_regularity_too(bench: Make) -> None:
    """Steps that end with a backward pass: a block that hardly any of them has is excluded."""
    one = bench()
    for _ in range(6):
        one.backward()
        one.update()
    with one.block(30):
        pass
    one.backward()
    assert one.spent == [(UNGRADED, 1, 30)]


def test_an_optimizer_of_another_model_shows_no_use_of_a_loader(bench: Make) -> None:
    """One of the model shows that the last batch was trained on."""
    one, loader = bench(), Loader()
    one.state._owns(one.optimizer)
    one.fetch(loader)
    one.update(sgd(Net()))
    assert one.state._loaders.of(loader) is None
    one.update()
    assert one.state._loaders.of(loader) is Feeds.TRAINING


def test_a_block_that_began_before_the_session_is_none_of_its_steps(bench: Make) -> None:
    """Only its end is reported."""
    one = bench()
    one.state.report_ungraded(begins=False)
    assert one.kinds() == []


def test_a_failure_of_ours_between_steps_is_counted_and_ends_nothing(bench: Make) -> None:
    """The calls since the update stay where they are."""
    one = bench()
    one.train()

    def fail(_start: int) -> list[Any]:
        raise RuntimeError("a bug")

    one.state._marks.calls_since = fail
    one.forward()
    assert one.recorder.failures == {"forwards without gradients": 1}
    assert one.ends == 1
    one.expected_failures = {"forwards without gradients"}


def test_listening_twice_hooks_each_module_once(bench: Make) -> None:
    """And the same holds for the end of it."""
    one = bench()
    one.state._listen(True)
    assert len(one.model._forward_pre_hooks) == 1
    one.state._listen(False)
    one.state._listen(False)
    assert not one.model._forward_pre_hooks


def test_a_failure_of_ours_in_the_search_for_modules_reports_none(bench: Make) -> None:
    """The update of the program goes on."""
    one = bench()

    def fail(_start: int) -> list[Any]:
        raise RuntimeError("a bug")

    one.state._marks.calls_since = fail
    one.call("first")
    one.update()
    assert not one.model.first._forward_pre_hooks


def test_a_gap_says_nothing_about_what_comes_between_steps(bench: Make) -> None:
    """A teacher is called in each step; in a gap no forward is reported."""
    one = bench(*[RECORDED] * 4, *[UNSAMPLED] * 9, auto=False)
    for _ in range(5):
        one.forward(graded=False)
        one.train()
        one.state.step()
    assert not one.state.is_recording
    while not one.state.is_recording:
        one.state.step()
    one.forward(graded=False)
    one.train()
    assert one.spent == []


def test_an_unknown_loader_that_was_given_to_the_session_ends_no_step_during_validation(bench: Make) -> None:
    """Its batches may be evaluated."""
    one = bench()
    one.train()
    one.model.eval()
    one.forward(graded=False)
    one.fetch(Loader(), explicit=True)
    assert one.ends == 0
    assert one.state.is_excluded


def test_the_first_call_of_step_ends_one_step_whatever_the_optimizers_did(bench: Make) -> None:
    """From then on the program says what a step is."""
    one = bench(expected_optimizers=2)
    one.train(2)
    one.state.step()
    assert one.steps.ends == [(None, 1)]
