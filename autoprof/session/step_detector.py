"""Decide which time of a training program belongs to a step, and where a step ends.

An *update* is a step of an optimizer. With ``auto`` a step ends where the next iteration begins: at the first event
after the last update of the step that ``RULES`` names as training. ``OptimizerCycle`` decides which update is the last
one where a program has several optimizers.

Forwards are those of the model, or of the modules that the program calls first if it does not call the model itself.
A model that trains in ``eval`` mode is recognised by its backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, Final

from torch.utils.weak import WeakIdKeyDictionary

from ..base.summary import VALIDATION
from . import events
from .events import Decision, Event, Marks
from .optimizer_cycle import OptimizerCycle

MAX_ENTRIES: Final = 16
"""Modules whose forwards are reported where the program does not call the model itself."""
MIN_UPDATES: Final = 3
"""Updates in a row on one thread, from which on forwards on other threads are no part of the training."""
LEARN_AFTER_STEPS: Final = 3
"""Steps in a row with a forward in ``eval`` mode, graded or a single one, from which on it is a part of them."""
MAX_OPTIMIZERS: Final = 256
"""Optimizers whose steps are counted."""


class LoopState(IntEnum):
    """The state of the program in which something happens; the first one that holds, from the last one on."""

    TRAINING = 0
    """A training forward has begun, and no update has followed."""
    BETWEEN = 1
    """An update was made, or the step has just begun, and no training forward has followed."""
    VALIDATING = 2
    """Validation was recognised."""
    UPDATING = 3
    """An optimizer's step is running."""
    PAUSED = 4
    """The program has named a pause."""


class EventKind(Enum):
    """The kinds of events whose meaning depends on the state."""

    TRAINING_FORWARD = "a forward with gradients"
    EVAL_FORWARD = "a forward in eval mode, of a module that has trained in train mode"
    INFERENCE_FORWARD = "a forward in inference mode, of a module that has trained in train mode"
    FETCH = "a fetch"
    VALIDATION_FETCH = "a fetch of a loader that feeds validation"
    UNGRADED_FETCH = "a fetch under no_grad of a loader whose use is unknown"
    BACKWARD = "a backward pass"
    EVAL_CALL = "a call of model.eval(), by a model that has trained in train mode"


class Feeds(Enum):
    """The use of a loader's batches, learnt from the forward that follows a fetch."""

    TRAINING = "training"
    VALIDATION = "validation"
    BOTH = "both"


class StepRule(Enum):
    """The meaning of an event."""

    BELONGS = "part of the open step, validation or pause"
    TRAINS = "training: the step ends here if it is whole"
    TRAINS_IN_UPDATE = "a closure: the step may end with the optimizer's"
    NEXT_BATCH = "training's next batch, if the loader feeds training: the step ends here if it is whole"
    TRAINED_UNSEEN = "training, by forwards that were not reported: the step ends here if it is whole"
    VALIDATES = "validation, from here on"
    EVALUATES = "validation, whose batches show which loader feeds it"


_R: Final = StepRule
RULES: Final[Mapping[EventKind, tuple[StepRule, StepRule, StepRule, StepRule, StepRule]]] = {
    #                            TRAINING      BETWEEN            VALIDATING      UPDATING             PAUSED
    EventKind.TRAINING_FORWARD: (_R.TRAINS, _R.TRAINS, _R.TRAINS, _R.TRAINS_IN_UPDATE, _R.BELONGS),
    EventKind.EVAL_FORWARD: (_R.EVALUATES, _R.EVALUATES, _R.EVALUATES, _R.BELONGS, _R.BELONGS),
    EventKind.INFERENCE_FORWARD: (_R.EVALUATES, _R.BELONGS, _R.EVALUATES, _R.BELONGS, _R.BELONGS),
    EventKind.FETCH: (_R.NEXT_BATCH, _R.NEXT_BATCH, _R.NEXT_BATCH, _R.NEXT_BATCH, _R.BELONGS),
    EventKind.VALIDATION_FETCH: (_R.VALIDATES, _R.VALIDATES, _R.VALIDATES, _R.VALIDATES, _R.BELONGS),
    EventKind.UNGRADED_FETCH: (_R.NEXT_BATCH, _R.VALIDATES, _R.VALIDATES, _R.NEXT_BATCH, _R.BELONGS),
    EventKind.BACKWARD: (_R.BELONGS, _R.TRAINED_UNSEEN, _R.BELONGS, _R.TRAINS_IN_UPDATE, _R.BELONGS),
    EventKind.EVAL_CALL: (_R.BELONGS, _R.VALIDATES, _R.BELONGS, _R.BELONGS, _R.BELONGS),
}
"""The meaning of each kind of event in each state, in the order of ``LoopState``."""


@dataclass(slots=True)
class _Validation:
    """Validation that the detector has recognised."""

    is_open: bool = False
    graded: bool = False
    """Whether a forward in ``eval`` mode had gradients."""
    source: Any = None
    """The loader that was asked last."""
    fetches: int = 0

    def value(self) -> tuple[bool, bool, int, int]:
        """Return the fields as a value."""
        return self.is_open, self.graded, id(self.source), self.fetches


class StepDetector:
    """Receive the events of one program in their order, and decide.

    ``optimizers`` is the number of optimizers that step in each training step, or 0.
    """

    def __init__(self, *, auto: bool = True, thread: int = 0, optimizers: int = 0) -> None:
        self.auto = auto
        """Whether steps end without calls of ``session.step``."""
        self.thread = thread
        """The thread that trains, or validates."""
        self._entries = {""}
        """The fqns of the modules whose forwards are reported; "" is the model itself."""
        self._decisions: list[Decision] = []
        # Learnt during the run.
        self._trained: set[int] = set()
        """The modules that had a forward with gradients in ``train`` mode, by id."""
        self._trains_in_eval = self._trains_ungraded = self._attacks = False
        """Whether steps have all forwards in ``eval`` mode, all without gradients, or an attack in ``eval`` mode."""
        self._loaders: MutableMapping[Any, Feeds] = WeakIdKeyDictionary()
        """The known loaders, or their datasets, and what they feed."""
        self._updating_thread, self._updates_in_row, self._updater_trains = -1, 0, False
        """The thread of the last updates, how many it made in a row, and whether it made a training forward."""
        self._optimizer_steps: dict[int, int] = {}
        # The open step.
        self._cycle = OptimizerCycle(optimizers)
        self._between = True
        self._between_at = 0
        self._saw_forward = self._saw_fetch = self._closure = self._saw_ungraded = False
        self._graded_in_eval = False
        """Whether a forward with gradients in ``eval`` mode came since the last one in ``train`` mode."""
        self._evals, self._steps_with_labels = 0, LEARN_AFTER_STEPS - 1
        """The forwards in ``eval`` mode without gradients since the last training forward, and the steps in a row with
        one of them: the model labels its own batches, which is a part of training."""
        self._steps_with_attack = LEARN_AFTER_STEPS - 1
        """Steps in a row with such forwards beside those in ``train`` mode; the first step needs no others."""
        self._sources: set[int] = set()
        self._moved_by: list[int] = []
        """The optimizers that changed parameters in the open step, by id."""
        self._counted_by: int | None = None
        """The optimizer whose updates count the steps, one in each of the last ones; None where there is none."""
        # Open now.
        self._running: list[int] = []
        """The optimizers whose step is running, by id, outermost first."""
        self._pauses: list[tuple[str, bool]] = []
        """The names of the open pauses, and whether each one is outermost and in no validation."""
        self._validation = _Validation()
        self._last: Any = None
        """The loader of the last fetch, as long as its use is not seen."""

    @property
    def loop_state(self) -> LoopState:
        """The present state of the program."""
        if self._pauses:
            return LoopState.PAUSED
        if self._running:
            return LoopState.UPDATING
        if self.is_validating:
            return LoopState.VALIDATING
        return LoopState.BETWEEN if self._between else LoopState.TRAINING

    @property
    def is_validating(self) -> bool:
        """Whether validation was recognised, and has not ended."""
        return self._validation.is_open

    @property
    def lacks_updates(self) -> bool:
        """Whether the model trained, and no optimizer of torch stepped."""
        return self.auto and bool(self._trained) and not self._optimizer_steps

    def count_skipped(self, optimizer: int, updates: int) -> None:
        """Count updates of an optimizer that were not reported, each a step of its own."""
        self._optimizer_steps[optimizer] = self._optimizer_steps.get(optimizer, 0) + updates

    @property
    def updates(self) -> Mapping[int, int]:
        """The updates of each optimizer so far, by id."""
        return self._optimizer_steps

    def state(self) -> tuple[Any, ...]:
        """Return all that the next decisions depend on, as a value that can be compared with an earlier one."""
        return tuple(_value_of(field) for name, field in vars(self).items() if name not in NO_STATE)

    def ignores(self, event: Event) -> bool:
        """Return whether an event comes from a thread that is no part of the training: nothing follows from it."""
        return isinstance(event, (events.ForwardBegins, events.ModeChanged)) and self._thread_is_other(event.thread)

    @property
    def is_excluding(self) -> bool:
        """Whether the present time belongs to no step."""
        return bool(self._pauses) or self.is_validating

    def decide(self, event: Event, marks: Marks) -> list[Decision]:
        """Return the decisions on this event, in the order in which they are to be carried out.

        ``marks`` are those of the open step. They are not kept.
        """
        if self.ignores(event):
            return []  # before anything changes: another thread may be in the middle of a decision
        decisions: list[Decision] = []
        self._decisions = decisions
        _HANDLERS[type(event)](self, event, marks)
        return decisions

    def end(self) -> list[Decision]:
        """Return the decisions at the end of the loop."""
        self._decisions = []
        self._end_validation()
        return self._decisions

    @property
    def is_whole(self) -> bool:
        """Whether the open step has an update: it may be the last one of a loop, which no event ends."""
        return self.auto and self._cycle.has_stepped

    @property
    def updated_at(self) -> int | None:
        """The position of the last update; None where a training forward has followed it."""
        return self._between_at if self._between else None

    def steps_missed(self, found: int) -> int | None:
        """Return the steps that one optimizer made, where ``found`` steps do not fit them; None where they do."""
        counts = self._optimizer_steps.values()
        most = max(counts, default=found)
        fits = most - 1 <= found <= sum(counts, start=0 if counts else found) + 1
        return None if fits or not self.auto else most

    # Events.

    def _thread_is_other(self, thread: int) -> bool:
        """Whether this is a thread beside the training: an actor's, or one that evaluates."""
        is_other = thread != self._updating_thread and self._updates_in_row >= MIN_UPDATES
        return is_other and self._updater_trains

    def _meaning(self, kind: EventKind) -> StepRule:
        return RULES[kind][self.loop_state]

    def _forward(self, event: events.ForwardBegins, _marks: Marks) -> None:
        kind = self._kind_of_forward(event)
        self._saw_ungraded |= not event.graded
        self._graded_in_eval |= event.graded and not event.training
        if kind is None:
            return
        if kind is EventKind.TRAINING_FORWARD:
            self._updater_trains |= event.thread == self._updating_thread
            if event.training:
                self._count_attack()
                self._count_labels()
        rule = self._meaning(kind)
        if kind is EventKind.TRAINING_FORWARD and event.training:
            self._trained.add(event.module)
        if rule is StepRule.TRAINS:
            self._begin_training(event)
            self._between, self._saw_forward = False, True
        elif rule is StepRule.TRAINS_IN_UPDATE:
            self._train_in_update(event)
        elif rule is StepRule.EVALUATES:
            self._evaluate(event)

    def _kind_of_forward(self, event: events.ForwardBegins) -> EventKind | None:
        """Return None for a forward that tells nothing, such as one of a teacher without gradients."""
        has_trained = event.module in self._trained
        if self._trains_ungraded and not event.graded:
            return EventKind.TRAINING_FORWARD
        if event.training and not event.graded:
            return EventKind.INFERENCE_FORWARD if event.inference and has_trained else None
        if event.training:
            return EventKind.TRAINING_FORWARD
        if event.graded and (self._trains_in_eval or self._attacks or not has_trained):
            return EventKind.TRAINING_FORWARD
        if not event.graded and (has_trained or event.is_model):
            self._evals += 1
            if self._labels and self._evals == 1:
                return None
        return EventKind.EVAL_FORWARD if has_trained or event.is_model else None

    def _fetch(self, event: events.Fetch, _marks: Marks) -> None:
        feeds, kind = self._known_use(event.source), EventKind.FETCH
        if feeds is Feeds.VALIDATION:
            kind = EventKind.VALIDATION_FETCH
        elif feeds is None and not event.graded:
            kind = EventKind.UNGRADED_FETCH
        rule = self._meaning(kind)
        if rule is StepRule.BELONGS:
            return
        self._last = event.source
        if rule is StepRule.VALIDATES:
            self._begin_validation()
            self._validation.source = event.source
            self._validation.fetches += 1
            return
        if feeds is Feeds.TRAINING:
            self._end_validation()
        if feeds is Feeds.TRAINING or event.explicit:
            again = id(event.source) in self._sources and self._between
            self._end_if_whole(certain=again)
            self._sources.add(id(event.source))
        self._saw_fetch = True  # also where it began the step

    def _update_begins(self, event: events.UpdateBegins, _marks: Marks) -> None:
        if self.is_validating and not self._between:  # between the forward of a step and its update
            self._end_validation()
        self._leave_update(event.optimizer)  # an exception ended that step
        self._running.append(event.optimizer)

    def _update_ends(self, event: events.UpdateEnds, marks: Marks) -> None:
        if event.moved:
            self._moved_by.append(event.optimizer)
        self._leave_update(event.optimizer)
        if self._running or self._pauses:  # one optimizer inside another, or a step that the program excludes
            return
        if not (event.moved or self._closure):
            return
        if event.owned:
            if self._between and self._saw_ungraded:
                self._learn_ungraded()
            in_row = self._updates_in_row + 1 if event.thread == self._updating_thread else 1
            self._updates_in_row = min(in_row, MIN_UPDATES)
            self._updating_thread = event.thread
            steps = self._optimizer_steps
            if event.optimizer in steps or len(steps) < MAX_OPTIMIZERS:
                steps[event.optimizer] = steps.get(event.optimizer, 0) + 1
        self._cycle.add(self._cycle_key(event), owned=event.owned)
        self._between, self._between_at, self._saw_ungraded = True, marks.position, False
        if event.owned and not self.is_validating:
            self._learn(Feeds.TRAINING)
        if self._cycle.steps_in_one > 1:  # no forward is seen any more
            self._saw_forward = False
        if self._saw_forward:
            return
        if not self._closure or self._saw_fetch:
            self._follow_next(marks.calls_since(0))
        elif self._cycle.is_whole and event.is_last:
            self._end_step()

    def _cycle_key(self, event: events.UpdateEnds) -> int:
        # Optimizers that step inside a backward pass, one for each parameter, count as one.
        return 0 if event.in_backward else event.optimizer

    def _leave_update(self, optimizer: int) -> None:
        if optimizer in self._running:
            del self._running[self._running.index(optimizer) :]

    def _backward(self, event: events.BackwardBegins, marks: Marks) -> None:
        if event.thread != self.thread:
            return
        validated = self.is_validating and not self._validation.graded
        if self.is_validating and not self._pauses:  # it is over, or was training in ``eval`` mode
            if self._validation.graded and not self._trains_in_eval:
                self._trains_in_eval = True
                self._decisions.append(events.ExcludeOpen())
            self._end_validation()
        if not self.auto:
            return
        rule = self._meaning(EventKind.BACKWARD)
        if rule is StepRule.TRAINS_IN_UPDATE:
            self._closure = True
        elif rule is StepRule.TRAINED_UNSEEN:
            found = self._follow_next(marks.calls_since(self._between_at))
            if found or validated or not self._saw_forward:  # calls in validation are not marked
                self._end_if_whole()
            else:
                self._cycle.wait()
            self._between = False

    def _mode_changed(self, event: events.ModeChanged, _marks: Marks) -> None:
        if event.training and self.is_validating and not self._pauses:
            self._end_validation()
        if event.training or not self._trained or self._trains_in_eval or self._attacks or self._labels:
            return
        if self._meaning(EventKind.EVAL_CALL) is StepRule.VALIDATES:
            self.thread = event.thread
            self._begin_validation()

    def _step_called(self, _event: events.StepCalled, _marks: Marks) -> None:
        if self.auto:
            self.auto = False
            self._running.clear()
            self._decisions.append(events.StepsAreManual())
        self._end_step()

    def _pause_begins(self, event: events.PauseBegins, _marks: Marks) -> None:
        is_recognised = event.name == VALIDATION and self.is_validating and not self._pauses
        self._pauses.append((event.name, not self.is_excluding))
        if not is_recognised:
            self._decisions.append(events.Exclude(event.name))

    def _pause_ends(self, _event: events.PauseEnds, _marks: Marks) -> None:
        name, is_outermost = self._pauses.pop()
        in_validation = self.is_validating and not self._pauses  # saving during validation is no part of it
        if in_validation and name == VALIDATION:  # the program says where the recognised validation ends
            self._end_validation()
            return
        self._decisions.append(events.Include(name if is_outermost or in_validation else None))

    # Training.

    def _train_in_update(self, event: events.ForwardBegins) -> None:
        self._begin_training(event)
        self._closure = True
        if not self._saw_forward:
            self._decisions.append(events.TrainsInUpdate())

    def _begin_training(self, event: events.ForwardBegins) -> None:
        self.thread = event.thread
        self._end_validation()
        self._learn(Feeds.TRAINING)
        self._end_if_whole()

    def _end_if_whole(self, *, certain: bool = False) -> None:
        """End the step if its last update was made; if ``certain``, any update is the last one."""
        if not self.auto or self.is_excluding:
            return
        if self._cycle.is_whole or (certain and self._cycle.has_stepped):
            self._end_step()
        elif self._cycle.has_stepped:
            self._cycle.wait()

    def _end_step(self) -> None:
        self._end_validation()
        self._decisions.append(events.EndStep(self._cycle.steps_in_one if self.auto else 1))
        counted_by = self._moved_by[0] if self.auto and len(self._moved_by) == 1 else None
        if counted_by != self._counted_by:
            self._counted_by = counted_by
            self._decisions.append(events.CountByUpdates(counted_by))
        self._moved_by.clear()
        self._cycle.begin_step()
        self._between, self._between_at = True, 0
        self._saw_forward = self._saw_fetch = self._closure = False
        self._sources.clear()

    @property
    def _labels(self) -> bool:
        return self._steps_with_labels >= LEARN_AFTER_STEPS

    def _count_labels(self) -> None:
        """At a forward in ``train`` mode: a model that labels its batches was called once before it in each step."""
        if self._evals or (self._between and self._trained):
            in_row = min(self._steps_with_labels + 1, LEARN_AFTER_STEPS)
            self._steps_with_labels = in_row if self._evals == 1 else 0
        self._evals = 0

    def _count_attack(self) -> None:
        """A forward in ``train`` mode begins: training that attacks the model in ``eval`` mode does so in each step."""
        if self._graded_in_eval:
            self._steps_with_attack = min(self._steps_with_attack + 1, LEARN_AFTER_STEPS)
            self._attacks |= self._steps_with_attack == LEARN_AFTER_STEPS
        elif self._between:
            self._steps_with_attack = 0
        self._graded_in_eval = False

    def _learn_ungraded(self) -> None:
        """An update followed on forwards without gradients alone, as in a zeroth-order method: they train."""
        self._trains_ungraded = True
        if self.is_validating:
            self._decisions.append(events.ExcludeOpen())
            self._end_validation()

    def _learn(self, feeds: Feeds) -> None:
        """The last batch was used for this."""
        if self._last is not None:
            self._learn_use(self._last, feeds)
            self._last = None if feeds is Feeds.TRAINING else self._last

    def _known_use(self, source: Any) -> Feeds | None:
        with suppress(TypeError):  # a list has no weak references, so its use is not remembered
            return self._loaders.get(source)
        return None

    def _learn_use(self, source: Any, feeds: Feeds) -> None:
        with suppress(TypeError):
            if self._loaders.setdefault(source, feeds) is not feeds:
                self._loaders[source] = Feeds.BOTH

    # Validation.

    def _evaluate(self, event: events.ForwardBegins) -> None:
        if not self.is_validating:
            self.thread = event.thread
            self._begin_validation()
        self._validation.graded |= event.graded
        self._learn(Feeds.VALIDATION)

    def _begin_validation(self) -> None:
        if not self.is_validating:
            self._validation.is_open = True
            self._decisions.append(events.Exclude(VALIDATION, recognised=True))
            if not self.auto:  # a backward pass may end it; where steps end without calls all are reported
                self._decisions.append(events.ReportBackward(on=True))

    def _end_validation(self) -> None:
        validation = self._validation
        if not validation.is_open:
            return
        # Fetches in a row, without a forward that trains, from which on their loader feeds validation.
        if validation.fetches >= 3:
            self._learn_use(validation.source, Feeds.VALIDATION)
            self._last = None if self._last is validation.source else self._last
        self._decisions.append(events.Include(VALIDATION, recognised=True))
        if not self.auto:
            self._decisions.append(events.ReportBackward(on=False))
        self._validation = _Validation()

    # The modules that the program calls in place of the model.

    def _follow_next(self, calls: Sequence[str]) -> bool:
        """No training forward was reported: have the next module in the order of the calls reported, too.

        Return False where there is none.
        """
        return any(map(self._follow, calls))

    def _follow(self, fqn: str) -> bool:
        """Have the forwards of this module reported; return False where they are already, or there is no room."""
        if fqn in self._entries or len(self._entries) >= MAX_ENTRIES:
            return False
        self._entries.add(fqn)
        self._decisions.append(events.Follow(fqn))
        return True


def _value_of(field: Any) -> Any:
    """Return a field as a value: containers with their content, objects of other packages by their ``id``."""
    if field is None or isinstance(field, (bool, int, str)):
        return field
    if isinstance(field, (list, set)):
        return tuple(field) if isinstance(field, list) else frozenset(field)
    if isinstance(field, MutableMapping):
        return tuple((key if isinstance(key, int) else id(key), value) for key, value in field.items())
    if isinstance(field, OptimizerCycle):
        return field.state()
    return field.value() if isinstance(field, _Validation) else id(field)


NO_STATE: Final = frozenset({"_decisions", "_optimizer_steps"})
"""The fields that no decision depends on."""
_HANDLERS: Final[Mapping[type, Callable[[StepDetector, Any, Marks], None]]] = {
    events.ForwardBegins: StepDetector._forward,
    events.Fetch: StepDetector._fetch,
    events.UpdateBegins: StepDetector._update_begins,
    events.UpdateEnds: StepDetector._update_ends,
    events.BackwardBegins: StepDetector._backward,
    events.ModeChanged: StepDetector._mode_changed,
    events.StepCalled: StepDetector._step_called,
    events.PauseBegins: StepDetector._pause_begins,
    events.PauseEnds: StepDetector._pause_ends,
}
