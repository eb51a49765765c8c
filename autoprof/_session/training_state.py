"""Tell training from the time that belongs to no step, and decide where a step ends.

An *update* changes the parameters: a step of an optimizer, or of the program's own (``CustomUpdates``). With ``auto``
a step ends where the next iteration begins, at the first event of this table after the update that makes it whole
(``OptimizerCycle`` decides which one that is, where a program has several optimizers):

===============================  ============================================  =====================================
event                            before the update                             after it, up to the next forward
===============================  ============================================  =====================================
fetch of training's loader       more data for the step                        ends the step
forward with gradients           part of the step                              ends the step
forward in the optimizer's step  part of the step (a closure)                  the step has ended with the optimizer
forward without gradients        part of the step (a frozen part, a teacher)   by regularity: ``UngradedForwards``
forward in ``eval`` mode         validation                                    validation
fetch under ``no_grad``          part of the step                              validation
block under ``no_grad``          part of the step                              by regularity
``model.eval()``                 validation                                    validation
backward pass                    part of the step                              ends the step, if no forward was seen
===============================  ============================================  =====================================

Forwards are those of the model, or of the modules that the program calls first after an update, if it does not call
the model itself. A model that trains in ``eval`` mode is recognised by its backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from threading import get_ident
from time import perf_counter_ns
from typing import Any, Final

import torch
from torch import nn

from .._capture.probes import (
    BoundaryProbe,
    OptimizerHooks,
    running_steps,
    unwatch_backward,
    unwatch_grad,
    watch_backward,
    watch_grad,
)
from .._capture.recorder import Recorder
from .._process import lifecycle
from .._process.failures import contain, ignore
from .._targets import find_module
from .._units import count
from ..summary import UNGRADED, VALIDATION
from .custom_updates import CustomUpdates
from .loader_use import Feeds, LoaderUse
from .observers import ExcludedTime
from .optimizer_cycle import OptimizerCycle
from .sampling import Sampling
from .step_marks import OutermostModuleCall, StepMarks
from .step_tracker import Following, StepTracker
from .ungraded_forwards import Place, UngradedForwards

MAX_ENTRIES: Final = 16
"""Modules that are hooked where the program does not call the model itself."""
_IN_BACKWARD: Final = 0
"""In place of the id of an optimizer: all those that step inside a backward pass, one for each parameter."""
MAX_BLOCKS: Final = 256
"""Blocks without gradients remembered of one unsampled step."""
MAX_PLACES: Final = 8
"""Updates of a step that are distinguished by what follows them."""
MIN_FETCHES: Final = 3
"""Fetches in a row, without a forward that trains, from which on their loader feeds validation."""
MIN_UPDATES: Final = 3
"""Updates in a row on one thread, from which on forwards on other threads are no part of the training."""
MAX_OWNERS: Final = 256
"""Optimizers of which is remembered whether they hold parameters of the model."""
_graph_task = torch._C._current_graph_task_id
# Once: looking a member of an enumeration up costs as much as a call, and this is done at the end of each step.
_RECORDED, _AFTER_GAP, _NOTHING = Following.RECORDED, Following.AFTER_GAP, Following.NOTHING


class _GradListener:
    """Report calls of ``torch.autograd.grad``. A ``Listener``."""

    def __init__(self, called: Callable[[], None]) -> None:
        self._called = called

    def enter(self, function: Callable[..., Any], args: tuple[Any, ...]) -> bool:
        """Report a call."""
        self._called()
        return False

    def leave(self) -> None:
        """Never called."""


class _Blocks:
    """The outermost blocks under ``no_grad`` or ``inference_mode``: how many a step has, in all and at its ends."""

    def __init__(self) -> None:
        self.after: dict[int, UngradedForwards] = {}
        """By the number of updates before them in the step."""
        self.in_step = UngradedForwards()
        self.between = self.total = 0
        """The number of blocks since the update, and since the begin of the step."""
        self.excludes = False
        """Whether the open block is excluded."""
        self.began_at = -1
        self.edges: list[tuple[int, int]] = []
        """The marks at the begin and the end of each block since the update."""
        self.began_ns = 0
        self.lengths_ns: list[int] = []
        """The lengths of the blocks of the open unsampled step."""

    def excess_ns(self) -> int:
        """Return the time of the blocks that the open unsampled step has more than others: the longest; forget all."""
        excess = self.in_step.excess(len(self.lengths_ns))
        excess_ns = sum(sorted(self.lengths_ns, reverse=True)[:excess])
        self.lengths_ns.clear()
        return excess_ns


class _UpdatingThread:
    """The thread of the last updates, and how many it made in a row."""

    def __init__(self) -> None:
        self._thread, self._updates = get_ident(), 0

    def count(self) -> None:
        """Count an update on this thread."""
        thread = get_ident()
        self._updates = self._updates + 1 if thread == self._thread else 1
        self._thread = thread

    @property
    def is_another(self) -> bool:
        """Whether this is a thread beside the training: an actor's, or one that evaluates."""
        return self._updates >= MIN_UPDATES and get_ident() != self._thread


class TrainingState:
    """Receive the events of the user's program, and decide which time belongs to a step and where a step ends.

    Steps end without calls with ``auto``, until the first call of ``step``. All methods are called on the training
    thread. Hooks on modules and on optimizers hold this object; it finds the hooks in torch's tables, and holds none
    of them.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizers: tuple[Any, ...],
        recorder: Recorder,
        sampling: Sampling,
        steps: StepTracker,
        excluded: ExcludedTime,
        *,
        auto: bool = True,
        training_forward_calls: Sequence[Callable[[], None]] = (),
        expected_optimizers: int = 0,
        called: Sequence[nn.Module] = (),
    ) -> None:
        self._model = model
        self._optimizers = optimizers
        self._recorder = recorder
        self._marks = StepMarks(recorder)
        self._sampling = sampling
        self.steps = steps
        self._excluded = excluded
        self.auto = auto
        """Whether steps end without a call of ``session.step``."""
        self.is_recording = True
        """Whether fetches and forwards matter: the open step is recorded, or the next one will be."""
        self._training_forward_calls = tuple(training_forward_calls)
        self._entries = {id(one): one for one in (model, *called[: MAX_ENTRIES - 1])}
        """The modules whose forwards are reported: the model, and those that the program calls in its place."""
        self._watches_forwards = False
        self._thread = get_ident()
        # Updates.
        self._cycle, self._updating = OptimizerCycle(expected_optimizers), _UpdatingThread()
        self._custom: CustomUpdates | None = None if optimizers else CustomUpdates(model)
        self._grad_listener: _GradListener | None = None
        self._inside: list[int] = []
        """The optimizers whose step is running, by id, outermost first."""
        self._owned: dict[int, bool] = {}
        self._calls: dict[int, int] = {}
        """How often each optimizer of the model stepped in the open step, by id, the latest last."""
        self._usual: dict[int, int] | None = None
        self._each_step: Mapping[int, int] = {}
        """How often each optimizer stepped in every one of the steps before a gap, by id."""
        self._anchor: int | None = None
        """The optimizer whose steps count the training steps of a gap, by id; None for all."""
        self._beside: int | None = None
        """The first other optimizer that stepped in the gap since that one, by id."""
        self._counts_passes = self._counts_gradless = False
        self._totals: dict[int, int] = {}
        # The open step.
        self._pending = False
        """Whether the next iteration begins a recorded step, after a gap."""
        self._between = True
        """Whether an update was made, or the step has just begun, and no forward with gradients has followed."""
        self._between_at = 0
        self._updates_made = 0
        """Updates in the open step: what follows each of them has a regularity of its own."""
        self._saw_forward = self._saw_fetch = self._closure = False
        self._sources: set[int] = set()
        # Validation.
        self._names: list[str] = []
        self._began: int | None = None
        self._block_ended_ns = 0
        """The host time at which a block without gradients ended last during this validation."""
        self._name = VALIDATION
        self._graded = self._by_fetch = self._trains_in_eval = False
        self._checked: Any = None
        """The loader that was asked last during validation."""
        self._fetches = 0
        """Fetches during validation, its loader's start included."""
        self._trained: set[int] = set()
        """The modules that had a forward with gradients in ``train`` mode, by id."""
        self._ungraded = 0
        self._ungraded_after: dict[int, UngradedForwards] = {}
        self._blocks = _Blocks()
        self._loaders = LoaderUse()
        self._last: Any = None

    @property
    def is_excluded(self) -> bool:
        """Whether time belongs to no step now."""
        return self.steps.paused

    def start(self) -> None:
        """Listen, and open the first step."""
        if self.auto:
            self._optimizer_hooks().attach()
            if self._custom is not None:
                self._grad_listener = _GradListener(self._gradless_pass)
                watch_grad(self._grad_listener)
        self._listen(True)
        if self.auto:
            self._inside.extend(map(id, running_steps()))
        self.steps.start()

    @contextmanager
    def exclude(self, name: str) -> Iterator[None]:
        """Charge the block to no step, but to this name; validation inside is counted under its own name."""
        if name == VALIDATION and self._began is not None and not self._names:  # it was recognised already
            self._name = VALIDATION
            yield
            return
        outermost = not self.is_excluded
        self._names.append(name)
        began = self.steps.pause()
        try:
            yield
        finally:
            ended, name = self.steps.resume(), self._names.pop()
            if outermost:
                self._excluded.add(name, ended - began, self.steps.ended)
            elif self._began is not None and not self._names:  # saving during validation is no part of it
                self._excluded.add(name, ended - began, self.steps.ended)
                self._began += ended - began

    # Events.

    def step(self) -> None:
        """End the step by a call of the program; from now on steps end only by such calls."""
        if self.auto:
            self.auto = False
            if self._began is None:
                unwatch_backward(self)
            self._optimizer_hooks().detach()
            self._step_hooks().detach()
            self._inside.clear()
            self._forget_custom()
        elif self._sampling.flight is not None and self._sampling.gap_remaining:
            self._sampling.counted_ns = self._sampling.count_step()
        self._end_step()

    def optimizer_begins(self, optimizer: Any, *_call: Any) -> None:
        """Called before each optimizer step while steps are recorded."""
        key = id(optimizer)
        if key in self._inside:  # an exception ended that step
            del self._inside[self._inside.index(key) :]
        self._inside.append(key)

    def optimizer_stepped(self, optimizer: Any, *_call: Any) -> None:
        """Called after each optimizer step."""
        key = id(optimizer)
        if self._sampling.gap_remaining:
            if self._counts_passes:
                return
            if key == self._anchor:
                self._beside = None
            elif self._anchor is not None and not self._takes_over(optimizer):
                return
            if key in self._totals or len(self._totals) < MAX_OWNERS:
                self._totals[key] = self._totals.get(key, 0) + 1
            self._count_unsampled()
            return
        if key in self._inside:
            del self._inside[self._inside.index(key) :]
        if self._inside:  # one optimizer inside another
            return
        owned = self._owns(optimizer)
        if owned:
            self._updating.count()
            self._forget_custom()
            self._calls[key] = self._calls.pop(key, 0) + 1
            if key in self._totals or len(self._totals) < MAX_OWNERS:
                self._totals[key] = self._totals.get(key, 0) + 1
        self._cycle.add(key if _graph_task() == -1 else _IN_BACKWARD, owned=owned)
        self._begin_between()
        self._updates_made += 1
        if owned and self._last is not None and self._began is None:
            self._loaders.learn(self._last, Feeds.TRAINING)
            self._last = None
        if self._cycle.held > 1:  # no forward is seen any more
            self._saw_forward = False
        if self._saw_forward or self._pending:
            return
        if not self._closure or self._saw_fetch:
            self._find_entry()
        elif self._cycle.is_whole and self._optimizer_hooks().is_last(optimizer):
            self._end_step()

    def forward_begins(self, module: nn.Module) -> None:
        """Called before each forward of the model, or of a module that the program calls in its place."""
        if self._updating.is_another:
            return
        graded, key = torch.is_grad_enabled(), id(module)
        if module.training:
            if not graded:
                self._forward_without_gradients()
                return
            self._trained.add(key)
            self._train()
        elif graded and (self._trains_in_eval or key not in self._trained):
            self._train()
            return
        elif key in self._trained or module is self._model:
            self._evaluate(graded=graded)
            return
        else:
            self._forward_without_gradients()
            return
        for call in self._training_forward_calls:
            call()

    def report_fetch(self, source: Any, *, explicit: bool) -> None:
        """Called before each fetch in sampled steps, and in others where gradients are off or validation goes on.

        ``explicit`` loaders are those given to ``session.loader``.
        """
        if self._names:
            return
        feeds = self._loaders.of(source)
        graded = torch.is_grad_enabled()
        if not self.is_recording:
            self._report_gap_fetch(feeds, graded=graded)
            return
        self._last = source
        if feeds is Feeds.VALIDATION or (feeds is None and not graded and self._between):
            self._by_fetch = self._by_fetch or not graded
            self._begin_validation(retract=False)
            self._name = VALIDATION
            self._checked = source
            self._fetches += 1
            return
        if feeds is Feeds.TRAINING:
            self.end_validation()
        if feeds is Feeds.TRAINING or explicit:
            again = id(source) in self._sources and self._between
            self._end_if_whole(certain=again)
            self._sources.add(id(source))
        self._saw_fetch = True  # also where it began the step

    @property
    def expects_fetches(self) -> bool:
        """Whether a fetch in an unsampled step matters: it may begin or end validation."""
        return self._by_fetch or not torch.is_grad_enabled()

    def _report_gap_fetch(self, feeds: Feeds | None, *, graded: bool) -> None:
        if graded and self._by_fetch:
            self.end_validation()
        elif not graded and self._began is None and feeds in (None, Feeds.VALIDATION):
            self._by_fetch = True
            self._begin_validation(retract=False)

    def report_ungraded(self, *, begins: bool) -> None:
        """Called where an outermost block under ``no_grad`` or ``inference_mode`` begins, and where it has ended."""
        blocks = self._blocks
        if self.steps.work.depth:  # autoprof's own, such as a count of FLOPs
            return
        if self._began is not None and not begins:
            self._block_ended_ns = self.steps.now_ns()
        if not self.is_recording:
            self._report_gap_block(begins=begins)
        elif not begins:
            if blocks.excludes:
                blocks.excludes = False
                self.end_validation()
            elif blocks.began_at >= 0:
                blocks.edges.append((blocks.began_at, self._marks.mark_edge()))
                blocks.began_at = -1
        elif not self._names:
            blocks.total += 1  # those of an optimizer's step, too: in a gap they look like others
            if self._inside or not self._between or self._began is not None or self._pending:
                return
            blocks.between += 1
            if self._of_this_place(blocks.after).is_rare():
                blocks.excludes = True
                self._begin_validation(retract=False, name=UNGRADED)
            elif self._recorder.is_appending:
                blocks.began_at = self._marks.mark_edge()

    def _report_gap_block(self, *, begins: bool) -> None:
        blocks = self._blocks
        if begins:
            blocks.began_ns = perf_counter_ns()
        elif blocks.began_ns:
            if self._began is None and not self._names and len(blocks.lengths_ns) < MAX_BLOCKS:
                blocks.lengths_ns.append(perf_counter_ns() - blocks.began_ns)
            blocks.began_ns = 0

    def _exclude_gap_blocks(self) -> None:
        """Exclude the blocks without gradients that the unsampled step had more than others."""
        ns = self._blocks.excess_ns()
        if ns:
            self.steps.exclude_ns(ns)
            self._excluded.add(UNGRADED, ns, self.steps.ended)

    def report_mode(self, training: bool) -> None:
        """Called by ``model.train()`` and ``model.eval()``: the only sign of validation in most unsampled steps."""
        if self._names or self._updating.is_another:
            return
        if not self.is_recording:
            self.end_validation() if training else self._begin_validation(retract=False)
        elif not training and self._between and self._trained and not self._trains_in_eval and not self._inside:
            self._begin_validation(retract=False)

    def enter(self, function: Callable[..., Any], args: tuple[Any, ...]) -> bool:
        """Called before each backward pass; return whether ``leave`` is to be called after it."""
        if get_ident() != self._thread or _graph_task() != -1:
            return False
        if self._began is not None:  # validation is over, or was training in ``eval`` mode
            if self._graded and not self._trains_in_eval:
                self._trains_in_eval = True
                self.steps.exclude_open()
            self.end_validation()
        if self._names or not self.auto:
            return False
        if self._sampling.gap_remaining:
            if self._counts_passes and not self._counts_gradless:
                self._count_unsampled()
            return False
        if self._inside:
            self._closure = True
            return False
        if self._custom is not None:
            self._custom.begin_pass()
            return True
        if self._between:
            found = self._find_entry(self._between_at)
            if found or not self._saw_forward:
                self._between = not found  # the forwards since the update train
                self._end_if_whole()
            else:
                self._cycle.wait()
            self._between = False
        return False

    def leave(self) -> None:
        """Called after a backward pass of a program whose optimizer, if it has one, has not stepped yet."""
        if self._custom is not None:
            try:
                self._custom.end_pass()
            except Exception:  # a parameter of another kind of tensor may raise anything
                self._custom = None
                self._recorder.handle_failure("backward passes")
                return
            self._begin_between()

    def _gradless_pass(self) -> None:
        """Called before each call of ``torch.autograd.grad``, until a torch optimizer steps."""
        if self._custom is None or get_ident() != self._thread or _graph_task() != -1:
            return
        if not self._sampling.gap_remaining:
            self._custom.end_gradless_pass()
            self._begin_between()
        elif self._counts_gradless:
            self._count_unsampled()

    # Decisions.

    def _count_unsampled(self) -> None:
        """Count an update in a gap."""
        sampling = self._sampling
        sampling.counted_ns = perf_counter_ns() if sampling.flight is None else sampling.count_step()
        if self._blocks.lengths_ns:
            self._exclude_gap_blocks()
        if self._sampling.gap_remaining > 1:
            self._sampling.gap_remaining -= 1
        else:
            self._end_step()

    def _takes_over(self, optimizer: Any) -> bool:
        """Return whether this optimizer counts the steps of the gap from now on: it steps, and the chosen one does not.

        As where the parts of a model are trained one after another. Its first step was not counted.
        """
        key = id(optimizer)
        if key != self._beside:
            self._beside = self._beside or key
            return False
        if self._each_step.get(key, 1) > 1 or not self._owns(optimizer):
            return False
        self._anchor, self._beside = key, None
        if key in self._totals:
            self._totals[key] += 1
        if self._sampling.gap_remaining > 1:
            self._sampling.gap_remaining -= 1
        return True

    def _forget_custom(self) -> None:
        self._custom, self._counts_passes, self._counts_gradless = None, False, False
        if self._grad_listener is not None:
            unwatch_grad(self._grad_listener)
            self._grad_listener = None

    def _train(self) -> None:
        """A forward with gradients begins."""
        if self._names:
            return
        self._thread = get_ident()
        if self._began is not None:
            self.end_validation()
        if self._last is not None:
            self._loaders.learn(self._last, Feeds.TRAINING)
            self._last = None
        if self._inside:
            self._train_in_optimizer()
            return
        if self._between:
            self._end_between()
        self._end_if_whole()
        self._between, self._saw_forward = False, True

    def _train_in_optimizer(self) -> None:
        """Make sure that the step can end with the optimizer's: its hooks change meanwhile."""
        self._end_if_whole()
        self._closure = True
        if not self._saw_forward:
            self._optimizer_hooks().move_last()

    def _evaluate(self, *, graded: bool) -> None:
        """A forward in ``eval`` mode begins."""
        if self._names:
            self._names[-1] = VALIDATION
            return
        if self._inside:
            return
        self._graded = self._graded or graded
        if self._began is None:
            feeds = self._loaders.of(self._last)
            self._begin_validation(retract=feeds is None or feeds is Feeds.VALIDATION)
        self._name = VALIDATION
        if self._last is not None:
            self._loaders.learn(self._last, Feeds.VALIDATION)

    def _forward_without_gradients(self) -> None:
        """A forward without gradients begins, in ``train`` mode or of a module that is never trained."""
        if self._names or self._inside or not self._between:
            return
        self._ungraded += 1
        if self._began is not None:
            return
        if self._history.is_rare() and not self._pending:
            feeds = self._loaders.of(self._last)
            self._begin_validation(retract=feeds is None or feeds is Feeds.VALIDATION, name=UNGRADED)
            if self._last is not None and feeds is None:
                self._loaders.learn(self._last, Feeds.VALIDATION)

    @property
    def _history(self) -> UngradedForwards:
        return self._of_this_place(self._ungraded_after)

    def _of_this_place(self, histories: dict[int, UngradedForwards]) -> UngradedForwards:
        return histories.setdefault(min(self._updates_made, MAX_PLACES), UngradedForwards())

    def _begin_between(self) -> None:
        """An update was made: what follows may belong to no step."""
        self._between, self._between_at = True, len(self._marks)
        self._ungraded = 0
        self._forget_blocks()

    def _forget_blocks(self) -> None:
        blocks = self._blocks
        blocks.between, blocks.began_at = 0, -1
        blocks.edges.clear()

    def _end_between(self) -> None:
        """Decide where the calls of modules belong that came since the update, or since the step began."""
        self._between, counted = False, self._ungraded
        if self._pending or not self.is_recording or self._names:
            return
        try:
            self._place_blocks()
            self._place_calls(counted)
        except Exception:
            self._recorder.handle_failure("forwards without gradients")

    def _place_calls(self, counted: int) -> None:
        """Place the calls of modules since the update; ``counted`` forwards without gradients were reported."""
        calls = self._marks.calls_since(self._between_at)
        history, excluded = self._history, 0
        if calls and calls[-1].end < 0:  # the call around this forward: the step begins with it from now on
            self._add_entry(calls.pop().fqn)
        if calls:
            place, excess = history.place(len(calls))
            if not counted:
                self._add_entry(calls[0].fqn)
                place = Place.AMBIGUOUS if place is Place.EXCLUDED else place
            if place is Place.EXCLUDED:
                excluded = excess
                self._exclude_marks(self._marks.begin_of_fetches(calls[0].start), calls[excess - 1].end)
            elif place is Place.AMBIGUOUS:
                self._rename_calls(calls)
        history.add(len(calls) - excluded if excluded < len(calls) else max(len(calls), counted > 0))

    def _place_blocks(self) -> None:
        """Exclude the blocks without gradients that the step has more than others since the update: the longest."""
        blocks, host_ns = self._blocks, self._recorder.clock.host_ns
        history, edges = self._of_this_place(blocks.after), blocks.edges
        excess = min(history.excess(blocks.between), len(edges))
        history.add(blocks.between)
        if excess and not blocks.excludes:
            buffer = self._recorder.buffer
            edges.sort(key=lambda edge: host_ns(buffer[edge[1] + 1]) - host_ns(buffer[edge[0] + 1]))
            for start, end in edges[-excess:]:
                self._exclude_marks(start, end)
        self._forget_blocks()

    def _exclude_marks(self, start: int, end: int) -> None:
        ns = self._marks.exclude(start, end)
        self.steps.exclude_ns(ns)
        self._excluded.add(UNGRADED, ns, self.steps.ended)

    def _rename_calls(self, calls: list[OutermostModuleCall]) -> None:
        self._marks.rename(calls[0].start, calls[-1].end, UNGRADED)
        self.steps.warn_once(
            f"{calls[0].fqn or 'the model'} was called between an update and the next training forward in some steps "
            f"and not in others: validation, or part of training? Its time is in the row {UNGRADED!r}, in no forward; "
            "call model.eval() before validation, or put session.pause() around it"
        )

    def _end_if_whole(self, *, certain: bool = False) -> None:
        if not self.auto or self.is_excluded:
            return
        cycle = self._cycle
        if (
            self._pending
            or cycle.is_whole
            or (certain and cycle.has_stepped)
            or (self._custom is not None and self._custom.has_updated)
        ):
            self._end_step()
        elif cycle.has_stepped:
            cycle.wait()

    def _end_step(self) -> None:
        began_ns, following = perf_counter_ns(), _NOTHING
        with self.steps.work:
            self.steps.begin_work()
            try:
                if self._began is not None:
                    self.end_validation()
                if self._between:
                    self._end_between()
                if self.is_recording and not self._pending:
                    self._blocks.in_step.add(self._blocks.total)
                held = self._cycle.held if self.auto else 1
                following = self.steps.end(began_ns, self._updates(held) if self.auto else None, held)
            finally:
                self._begin_step(following)
                recording = following is _RECORDED or following is _AFTER_GAP
                if recording is not self.is_recording or recording is not self._watches_forwards:
                    self._listen(recording)
                self.steps.end_work()
        lifecycle.finish_termination()

    def _begin_step(self, following: Following) -> None:
        self._pending = following is _AFTER_GAP
        self._cycle.begin_step()
        self._blocks.total = 0
        self._forget_blocks()
        if self._custom is not None:
            self._custom.begin_step()
        self._between, self._between_at, self._updates_made, self._ungraded = True, 0, 0, 0
        self._saw_forward = self._saw_fetch = self._closure = False
        self._calls = {}
        self._sources.clear()
        if following is not _RECORDED:
            self._usual = None
            self._cycle.skip()

    def _updates(self, held: int) -> int:
        """Choose the optimizer whose steps count the training steps of a gap; return its steps in each of them."""
        if self.steps.open is None:  # in a gap, where that is chosen
            return 1
        calls, usual = self._calls, self._usual
        if held > 1:
            calls = dict.fromkeys(calls, 1)
        if usual is not None and usual != calls:
            usual = {key: steps for key, steps in usual.items() if calls.get(key) == steps}
        self._usual = self._each_step = usual = calls if usual is None else usual
        self._beside = None
        self._anchor = next(reversed(usual), None)
        self._counts_passes = self._custom is not None
        if self._custom is not None:
            self._counts_gradless = self._custom.is_gradless
            return max(self._custom.passes, 1)
        return sum(calls.values()) if self._anchor is None else usual[self._anchor]

    def _owns(self, optimizer: Any) -> bool:
        """Return whether an optimizer holds parameters of the model; one that was named does, and so do all if none."""
        if self._optimizers:
            return True
        owned, key = self._owned, id(optimizer)
        known = owned.get(key)
        if known is None:
            if len(owned) >= MAX_OWNERS:
                return False
            ours = {id(parameter) for parameter in self._model.parameters()}
            groups = getattr(optimizer, "param_groups", ())
            known = owned[key] = any(id(one) in ours for group in groups for one in group["params"])
        return known or not any(owned.values())

    # The modules that the program calls.

    def _find_entry(self, since: int = 0) -> bool:
        """No forward with gradients was reported: have the next module in the order of the calls reported, too.

        Return False where there is none.
        """
        with contain(ignore):
            fqns = dict.fromkeys(call.fqn for call in self._marks.calls_since(since))
            return any(self._add_entry(fqn) for fqn in fqns)
        return False

    def _add_entry(self, fqn: str) -> bool:
        """Have the forwards of this module reported; return False where they are already, or there is no room."""
        module = find_module(self._model, fqn) if len(self._entries) < MAX_ENTRIES else None
        if module is None or id(module) in self._entries:
            return False
        self._entries[id(module)] = module
        if self._watches_forwards:
            self._boundary(module).attach()
        return True

    # Validation.

    def end_validation(self, *, at_end: bool = False) -> None:
        """End validation, if the session is in it.

        ``at_end`` of the run no event ends it: what takes longer than all of it, after its last block without
        gradients, is no part of it.
        """
        if self._began is not None:
            began, self._began, self._graded, self._by_fetch = self._began, None, False, False
            if self._fetches >= MIN_FETCHES:
                self._loaders.learn(self._checked, Feeds.VALIDATION)
                self._last = None if self._last is self._checked else self._last
            self._fetches, self._checked = 0, None
            if not self._watches_backward:
                unwatch_backward(self)
            ended, known = self.steps.resume(), self._block_ended_ns
            ended -= self.steps.pause_work_ns  # the program waited for it before its validation, and after it
            if at_end and known > began and ended - known > known - began:
                ended = known
            self._excluded.add(self._name, ended - began, self.steps.ended)

    def _begin_validation(self, *, retract: bool, name: str = VALIDATION) -> None:
        if self._began is None:
            self._name, self._block_ended_ns = name, 0
            self._began = self.steps.pause(self._marks.retract_fetches() if retract else None)
            self._thread = get_ident()
            watch_backward(self)

    # Hooks.

    @property
    def _watches_backward(self) -> bool:
        return self.auto and (self._watches_forwards or self._counts_passes)

    def _listen(self, on: bool) -> None:
        """Attach or detach the hooks on forwards and on the begins of optimizer steps."""
        self.is_recording = on
        if on and not self._watches_forwards:
            self._watches_forwards = True
            for module in self._entries.values():
                self._boundary(module).attach()
            if self.auto:
                self._step_hooks().attach()
                watch_backward(self)
        elif self._watches_forwards and not on:
            for module in self._entries.values():
                self._boundary(module).detach()
            self._step_hooks().detach()
            if self._began is None and not self._counts_passes:
                unwatch_backward(self)
            self._inside.clear()
            self._watches_forwards = False  # last, so that an interrupted detach is repeated

    def _boundary(self, module: nn.Module) -> BoundaryProbe:
        return BoundaryProbe(module, self.forward_begins)

    def _optimizer_hooks(self) -> OptimizerHooks:
        return OptimizerHooks(self._optimizers, after=self.optimizer_stepped)

    def _step_hooks(self) -> OptimizerHooks:
        return OptimizerHooks(self._optimizers, before=self.optimizer_begins)

    def finish(self, *, patient: bool) -> None:
        """Close the open step where it is whole, and wait for the device."""
        self.end_validation(at_end=True)
        updated_at, until = self._between_at if self._between else len(self._marks), None
        if self._between:
            self._end_between()
        if self.auto and self.steps.open is not None:
            until = self._marks.end_of_loop(self._recorder.clock.host_ns(self.steps.open.start), updated_at)
        updates = self._cycle.has_stepped or (self._custom is not None and self._custom.has_updated)
        self.steps.finish(whole=self.auto and updates, patient=patient, until=until)
        found, totals = self.steps.count, self._totals.values()
        most = max(totals, default=found)
        if self.auto and not most - 1 <= found <= sum(totals, start=0 if totals else found) + 1:
            self.steps.warn_once(
                f"{count(found, 'step')} {'was' if found == 1 else 'were'} found, "
                f"but one optimizer made {count(most, 'step')}; "
                "to say where a step ends, open the session in the program (autoprof.instrument) and call "
                "session.step() at the end of each iteration"
            )

    def detach(self) -> None:
        """Remove every hook, whatever fails."""
        with contain(ignore):
            self.end_validation()
        self.is_recording = False
        boundaries = [self._boundary(module).detach for module in self._entries.values()]
        hooks = self._optimizer_hooks().detach, self._step_hooks().detach
        removes: list[Callable[[], None]] = [partial(unwatch_backward, self), self._forget_custom, *hooks, *boundaries]
        for remove in removes:
            with contain(ignore):
                remove()
        self.steps.detach()
