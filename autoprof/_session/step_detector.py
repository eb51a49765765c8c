"""Decide which time of a training program belongs to a step, and where a step ends.

An *update* changes the parameters: a step of an optimizer, or one of the program's own. With ``auto`` a step ends where
the next iteration begins, at the first happening that ``RULES`` says so of after the update that makes the step whole
(``OptimizerCycle`` decides which update that is, where a program has several optimizers).

Forwards are those of the model, or of the modules that the program calls first after an update, if it does not call
the model itself. A model that trains in ``eval`` mode is recognised by its backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from ..summary import UNGRADED, VALIDATION
from . import events
from .events import Calls, Decision, Event, Moment, OutermostModuleCall
from .loader_use import Feeds, LoaderUse
from .optimizer_cycle import OptimizerCycle
from .regularity import Place, Regularity

MAX_ENTRIES: Final = 16
"""Modules whose forwards are reported where the program does not call the model itself."""
MIN_FETCHES: Final = 3
"""Fetches in a row, without a forward that trains, from which on their loader feeds validation."""
MIN_UPDATES: Final = 3
"""Updates in a row on one thread, from which on forwards on other threads are no part of the training."""
MAX_OPTIMIZERS: Final = 256
"""Optimizers whose steps are counted."""
_IN_BACKWARD: Final = 0
"""In place of the id of an optimizer: all those that step inside a backward pass, one for each parameter."""


class Situation(Enum):
    """The state of the program in which something happens; the first one that holds, from the last one on."""

    TRAINING = "a training forward has begun, and no update has followed"
    BETWEEN = "an update was made, or the step has just begun, and no training forward has followed"
    VALIDATING = "validation was recognised"
    UPDATING = "an optimizer's step is running"
    PAUSED = "the program has named a pause"


class Happening(Enum):
    """The kinds of events whose meaning depends on the situation."""

    TRAINING_FORWARD = "a forward with gradients"
    EVAL_FORWARD = "a forward in eval mode, of a module that has trained in train mode"
    UNGRADED_FORWARD = "another forward without gradients"
    FETCH = "a fetch"
    VALIDATION_FETCH = "a fetch of a loader that feeds validation"
    UNGRADED_FETCH = "a fetch under no_grad of a loader whose use is unknown"
    BACKWARD = "a backward pass"
    UNGRADED_BLOCK = "a block under no_grad"
    EVAL_CALL = "a call of model.eval(), by a model that has trained in train mode"


class StepRule(Enum):
    """The meaning of a happening."""

    BELONGS = "part of the open step, validation or pause"
    TRAINS = "training: the step ends here if it is whole"
    TRAINS_IN_UPDATE = "a closure: the step may end with the optimizer's"
    NEXT_BATCH = "training's next batch, if the loader feeds training: the step ends here if it is whole"
    TRAINED_UNSEEN = "training, by forwards that were not reported: the step ends here if it is whole"
    VALIDATES = "validation, from here on"
    EVALUATES = "validation, from the fetches right before it on"
    NAMES_PAUSE = "the pause is validation"
    REGULARITY = "part of no step if hardly any step has it at this place"


_R: Final = StepRule
RULES: Final[Mapping[Happening, tuple[StepRule, StepRule, StepRule, StepRule, StepRule]]] = {
    #                            TRAINING      BETWEEN            VALIDATING      UPDATING             PAUSED
    Happening.TRAINING_FORWARD: (_R.TRAINS, _R.TRAINS, _R.TRAINS, _R.TRAINS_IN_UPDATE, _R.BELONGS),
    Happening.EVAL_FORWARD: (_R.EVALUATES, _R.EVALUATES, _R.EVALUATES, _R.BELONGS, _R.NAMES_PAUSE),
    Happening.UNGRADED_FORWARD: (_R.BELONGS, _R.REGULARITY, _R.REGULARITY, _R.BELONGS, _R.BELONGS),
    Happening.FETCH: (_R.NEXT_BATCH, _R.NEXT_BATCH, _R.NEXT_BATCH, _R.NEXT_BATCH, _R.BELONGS),
    Happening.VALIDATION_FETCH: (_R.VALIDATES, _R.VALIDATES, _R.VALIDATES, _R.VALIDATES, _R.BELONGS),
    Happening.UNGRADED_FETCH: (_R.NEXT_BATCH, _R.VALIDATES, _R.VALIDATES, _R.NEXT_BATCH, _R.BELONGS),
    Happening.BACKWARD: (_R.BELONGS, _R.TRAINED_UNSEEN, _R.BELONGS, _R.TRAINS_IN_UPDATE, _R.BELONGS),
    Happening.UNGRADED_BLOCK: (_R.BELONGS, _R.REGULARITY, _R.BELONGS, _R.BELONGS, _R.BELONGS),
    Happening.EVAL_CALL: (_R.BELONGS, _R.VALIDATES, _R.BELONGS, _R.BELONGS, _R.BELONGS),
}
"""The meaning of each happening in each situation, in the order of ``Situation``."""
_COLUMNS: Final = {situation: column for column, situation in enumerate(Situation)}


@dataclass(slots=True)
class _Validation:
    """Validation that the detector has recognised."""

    name: str | None = None
    """Its name; None outside of validation."""
    graded: bool = False
    """Whether a forward in ``eval`` mode had gradients."""
    source: Any = None
    """The loader that was asked last."""
    fetches: int = 0


class _Blocks:
    """The outermost blocks without gradients since the last update."""

    def __init__(self) -> None:
        self.regularity = Regularity()
        self.count = 0
        self.excluded = False
        """Whether the open block is excluded."""
        self.marked = False
        """Whether the open block began since the update, and its moments are wanted."""
        self.done: list[tuple[Moment, Moment]] = []

    def forget(self) -> None:
        """Begin another place of a step."""
        self.count, self.marked = 0, False
        self.done.clear()


class StepDetector:
    """Receive the events of one program in their order, and decide.

    ``entries`` are the fqns of the modules whose forwards are reported; "" is the model itself. ``optimizers`` is the
    number of optimizers that step in each training step, or 0.
    """

    def __init__(
        self, *, auto: bool = True, thread: int = 0, optimizers: int = 0, entries: Iterable[str] = ("",)
    ) -> None:
        self.auto = auto
        """Whether steps end without calls of ``session.step``."""
        self.thread = thread
        """The thread that trains, or validates."""
        self._entries = set(entries)
        self._decisions: list[Decision] = []
        # Learnt during the run.
        self._trained: set[int] = set()
        """The modules that had a forward with gradients in ``train`` mode, by id."""
        self._trains_in_eval = False
        self._loaders = LoaderUse()
        self._forwards = Regularity()
        self._updating_thread, self._updates_in_row = -1, 0
        """The thread of the last updates, and how many it made in a row."""
        self._optimizer_steps: dict[int, int] = {}
        # The open step.
        self._cycle = OptimizerCycle(optimizers)
        self._between = True
        self._between_at = 0
        self._updates = 0
        self._ungraded = 0
        """Forwards without gradients since the update."""
        self._blocks = _Blocks()
        self._saw_forward = self._saw_fetch = self._closure = False
        self._sources: set[int] = set()
        # Open now.
        self._running: list[int] = []
        """The optimizers whose step is running, by id, outermost first."""
        self._pauses: list[tuple[str, bool]] = []
        """The names of the open pauses, and whether each one is outermost and in no validation."""
        self._validation = _Validation()
        self._last: Any = None
        """The loader of the last fetch, as long as its use is not seen."""

    @property
    def situation(self) -> Situation:
        """The present state."""
        if self._pauses:
            return Situation.PAUSED
        if self._running:
            return Situation.UPDATING
        if self.is_validating:
            return Situation.VALIDATING
        return Situation.BETWEEN if self._between else Situation.TRAINING

    @property
    def is_validating(self) -> bool:
        """Whether validation was recognised, and has not ended."""
        return self._validation.name is not None

    @property
    def is_updating(self) -> bool:
        """Whether an optimizer's step is running."""
        return bool(self._running)

    def count_skipped(self, optimizer: int, updates: int) -> None:
        """Count updates of an optimizer that were not reported, each a step of its own."""
        self._optimizer_steps[optimizer] = self._optimizer_steps.get(optimizer, 0) + updates

    @property
    def expects_backward(self) -> bool:
        """Whether a backward pass matters now."""
        return self.is_validating or (self.auto and (self._between or bool(self._running)))

    @property
    def is_excluding(self) -> bool:
        """Whether the present time belongs to no step."""
        return bool(self._pauses) or self.is_validating

    def calls_needed(self, event: Event) -> int | None:
        """Return the position since which the event needs the calls of modules; None where it needs none."""
        if isinstance(event, events.UpdateEnds):
            is_outermost = self._running[:1] in ([], [event.optimizer])
            is_seen = self._saw_forward and not self._cycle.holds_another(self._cycle_key(event))
            return 0 if is_outermost and not is_seen else None
        if not self._between or self._pauses:
            return None
        if isinstance(event, events.ForwardBegins):
            return self._between_at if event.graded else None
        if isinstance(event, events.Fetch):
            feeds = event.explicit or self._loaders.of(event.source) is Feeds.TRAINING
            return self._between_at if feeds and self.auto and (self._cycle.has_stepped or event.updated) else None
        if isinstance(event, events.BackwardBegins):
            return self._between_at if self.auto and not event.watched else None
        return self._between_at if isinstance(event, (events.StepCalled, events.LoopEnds)) else None

    def decide(self, event: Event) -> list[Decision]:
        """Return the decisions on this event, in the order in which they are to be carried out."""
        if isinstance(event, (events.ForwardBegins, events.ModeChanged)) and self._thread_is_other(event.thread):
            return []  # before anything changes: another thread may be in the middle of a decision
        decisions: list[Decision] = []
        self._decisions = decisions
        _HANDLERS[type(event)](self, event)
        return decisions

    def steps_missed(self, found: int) -> int | None:
        """Return the steps that one optimizer made, where ``found`` steps do not fit them; None where they do."""
        counts = self._optimizer_steps.values()
        most = max(counts, default=found)
        fits = most - 1 <= found <= sum(counts, start=0 if counts else found) + 1
        return None if fits or not self.auto else most

    # Events.

    def _thread_is_other(self, thread: int) -> bool:
        """Whether this is a thread beside the training: an actor's, or one that evaluates."""
        return thread != self._updating_thread and self._updates_in_row >= MIN_UPDATES

    def _meaning(self, happening: Happening) -> StepRule:
        return RULES[happening][_COLUMNS[self.situation]]

    def _forward(self, event: events.ForwardBegins) -> None:
        happening = self._kind_of_forward(event)
        rule = self._meaning(happening)
        if happening is Happening.TRAINING_FORWARD and event.training:
            self._trained.add(event.module)
        if rule is StepRule.TRAINS:
            self._train(event)
        elif rule is StepRule.TRAINS_IN_UPDATE:
            self._train_in_update(event)
        elif rule is StepRule.EVALUATES:
            self._evaluate(event)
        elif rule is StepRule.NAMES_PAUSE:
            self._pauses[-1] = VALIDATION, self._pauses[-1][1]
        elif rule is StepRule.REGULARITY and self._between:
            self._forward_without_gradients(event)

    def _kind_of_forward(self, event: events.ForwardBegins) -> Happening:
        has_trained = event.module in self._trained
        if event.training:
            return Happening.TRAINING_FORWARD if event.graded else Happening.UNGRADED_FORWARD
        if event.graded and (self._trains_in_eval or not has_trained):
            return Happening.TRAINING_FORWARD
        return Happening.EVAL_FORWARD if has_trained or event.is_model else Happening.UNGRADED_FORWARD

    def _fetch(self, event: events.Fetch) -> None:
        feeds, happening = self._loaders.of(event.source), Happening.FETCH
        if feeds is Feeds.VALIDATION:
            happening = Happening.VALIDATION_FETCH
        elif feeds is None and not event.graded:
            happening = Happening.UNGRADED_FETCH
        rule = self._meaning(happening)
        if rule is StepRule.BELONGS:
            return
        self._last = event.source
        if rule is StepRule.VALIDATES:
            self._begin_validation(VALIDATION, event)
            validation = self._validation
            validation.name, validation.source = VALIDATION, event.source
            validation.fetches += 1
            return
        if feeds is Feeds.TRAINING:
            self._end_validation()
        if feeds is Feeds.TRAINING or event.explicit:
            again = id(event.source) in self._sources and self._between
            self._end_if_whole(event, certain=again)
            self._sources.add(id(event.source))
        self._saw_fetch = True  # also where it began the step

    def _update_begins(self, event: events.UpdateBegins) -> None:
        self._leave_update(event.optimizer)  # an exception ended that step
        self._running.append(event.optimizer)

    def _update_ends(self, event: events.UpdateEnds) -> None:
        self._leave_update(event.optimizer)
        if self._running or self._pauses:  # one optimizer inside another, or a step that the program excludes
            return
        if event.owned:
            self._updates_in_row = self._updates_in_row + 1 if event.thread == self._updating_thread else 1
            self._updating_thread = event.thread
            steps = self._optimizer_steps
            if event.optimizer in steps or len(steps) < MAX_OPTIMIZERS:
                steps[event.optimizer] = steps.get(event.optimizer, 0) + 1
        self._cycle.add(self._cycle_key(event), owned=event.owned)
        self._begin_between(event.position)
        self._updates += 1
        if event.owned and not self.is_validating:
            self._learn(Feeds.TRAINING)
        if self._cycle.held > 1:  # no forward is seen any more
            self._saw_forward = False
        if self._saw_forward:
            return
        if not self._closure or self._saw_fetch:
            self._follow_next(event.calls)
        elif self._cycle.is_whole and event.is_last:
            self._end_step(event.calls)

    def _cycle_key(self, event: events.UpdateEnds) -> int:
        return _IN_BACKWARD if event.in_backward else event.optimizer

    def _leave_update(self, optimizer: int) -> None:
        if optimizer in self._running:
            del self._running[self._running.index(optimizer) :]

    def _backward(self, event: events.BackwardBegins) -> None:
        if event.thread != self.thread:
            return
        if self.is_validating and not self._pauses:  # it is over, or was training in ``eval`` mode
            if self._validation.graded and not self._trains_in_eval:
                self._trains_in_eval = True
                self._decisions.append(events.ExcludeOpen())
            self._end_validation()
        if not self.auto:
            return
        rule = self._meaning(Happening.BACKWARD)
        if rule is StepRule.TRAINS_IN_UPDATE:
            self._closure = True
        elif rule is StepRule.TRAINED_UNSEEN and not event.watched:
            found = self._follow_next(event.calls, self._between_at)
            if found or not self._saw_forward:
                self._between = not found  # the forwards since the update train
                self._end_if_whole(event)
            else:
                self._cycle.wait()
            self._between = False

    def _backward_ends(self, event: events.BackwardEnds) -> None:
        self._begin_between(event.position)

    def _block_begins(self, _event: events.UngradedBlockBegins) -> None:
        if self._meaning(Happening.UNGRADED_BLOCK) is not StepRule.REGULARITY:
            return
        blocks = self._blocks
        blocks.count += 1
        if blocks.regularity.is_rare(self._updates):
            blocks.excluded = True
            self._begin_validation(UNGRADED)
        else:
            blocks.marked = True
            self._decisions.append(events.MarkBlock())

    def _block_ends(self, event: events.UngradedBlockEnds) -> None:
        blocks = self._blocks
        if blocks.excluded:
            blocks.excluded = False
            self._end_validation()
        elif blocks.marked and event.began is not None and event.ended is not None:
            blocks.marked = False
            blocks.done.append((event.began, event.ended))

    def _mode_changed(self, event: events.ModeChanged) -> None:
        if event.training or not self._trained or self._trains_in_eval:
            return
        if self._meaning(Happening.EVAL_CALL) is StepRule.VALIDATES:
            self._begin_validation(VALIDATION, event)

    def _step_called(self, event: events.StepCalled) -> None:
        if self.auto:
            self.auto = False
            self._running.clear()
        self._end_step(event.calls)

    def _pause_begins(self, event: events.PauseBegins) -> None:
        if event.name == VALIDATION and self.is_validating and not self._pauses:  # it was recognised already
            self._validation.name = VALIDATION
            return
        self._pauses.append((event.name, not self.is_excluding))
        self._decisions.append(events.Exclude(event.name))

    def _pause_ends(self, _event: events.PauseEnds) -> None:
        name, is_outermost = self._pauses.pop()
        in_validation = self.is_validating and not self._pauses  # saving during validation is no part of it
        self._decisions.append(events.Include(name if is_outermost or in_validation else None))

    def _loop_ends(self, event: events.LoopEnds) -> None:
        self._end_validation()
        updated_at = self._between_at if self._between else event.position
        if self._between:
            self._end_between(event.calls)
        updated = self._cycle.has_stepped or event.updated
        self._decisions.append(events.EndLast(self.auto and updated, updated_at if self.auto else None))

    # Training.

    def _train(self, event: events.ForwardBegins) -> None:
        self.thread = event.thread
        self._end_validation()
        self._learn(Feeds.TRAINING)
        if self._between:
            self._end_between(event.calls)
        self._end_if_whole(event)
        self._between, self._saw_forward = False, True

    def _train_in_update(self, event: events.ForwardBegins) -> None:
        self.thread = event.thread
        self._end_validation()
        self._learn(Feeds.TRAINING)
        self._end_if_whole(event)
        self._closure = True
        if not self._saw_forward:
            self._decisions.append(events.TrainsInUpdate())

    def _end_if_whole(
        self, event: events.ForwardBegins | events.Fetch | events.BackwardBegins, *, certain: bool = False
    ) -> None:
        if not self.auto or self.is_excluding:
            return
        cycle, updated = self._cycle, not isinstance(event, events.BackwardBegins) and event.updated
        if cycle.is_whole or (certain and cycle.has_stepped) or updated:
            self._end_step(event.calls)
        elif cycle.has_stepped:
            cycle.wait()

    def _end_step(self, calls: Calls) -> None:
        self._end_validation()
        if self._between:
            self._end_between(calls)
        self._decisions.append(events.EndStep(self._cycle.held if self.auto else 1))
        self._cycle.begin_step()
        self._between, self._between_at, self._updates, self._ungraded = True, 0, 0, 0
        self._blocks.forget()
        self._saw_forward = self._saw_fetch = self._closure = False
        self._sources.clear()

    def _learn(self, feeds: Feeds) -> None:
        """The last batch was used for this."""
        if self._last is not None:
            self._loaders.learn(self._last, feeds)
            self._last = None if feeds is Feeds.TRAINING else self._last

    # Validation.

    def _evaluate(self, event: events.ForwardBegins) -> None:
        if not self.is_validating:
            self._begin_validation(VALIDATION, event, fetches=not self._last_feeds_training())
        self._validation.name = VALIDATION
        self._validation.graded |= event.graded
        self._learn(Feeds.VALIDATION)

    def _last_feeds_training(self) -> bool:
        return self._loaders.of(self._last) in (Feeds.TRAINING, Feeds.BOTH)

    def _forward_without_gradients(self, event: events.ForwardBegins) -> None:
        self._ungraded += 1
        if not self.is_validating and self._forwards.is_rare(self._updates):
            is_unknown = self._loaders.of(self._last) is None
            self._begin_validation(UNGRADED, event, fetches=not self._last_feeds_training())
            if is_unknown:
                self._learn(Feeds.VALIDATION)

    def _begin_validation(
        self,
        name: str,
        event: events.ForwardBegins | events.Fetch | events.ModeChanged | None = None,
        *,
        fetches: bool = False,
    ) -> None:
        if self.is_validating:
            return
        self._validation.name = name
        if isinstance(event, (events.ForwardBegins, events.ModeChanged)):
            self.thread = event.thread
        self._decisions.append(events.Exclude(name, fetches, recognised=True))

    def _end_validation(self) -> None:
        validation = self._validation
        if validation.name is None:
            return
        if validation.fetches >= MIN_FETCHES:
            self._loaders.learn(validation.source, Feeds.VALIDATION)
            self._last = None if self._last is validation.source else self._last
        self._decisions.append(events.Include(validation.name, recognised=True))
        self._validation = _Validation()

    # Work without gradients between an update and the next training forward.

    def _begin_between(self, position: int) -> None:
        """An update was made: work that follows may belong to no step."""
        self._between, self._between_at, self._ungraded = True, position, 0
        self._blocks.forget()

    def _end_between(self, calls: Calls) -> None:
        """Decide where the work belongs that came since the update, or since the step began."""
        self._between = False
        if self._pauses:
            return
        excluded = self._place_blocks()
        if calls is not None:
            since = [call for call in calls if call.start >= self._between_at]
            self._place_calls([call for call in since if not any(_holds(block, call) for block in excluded)])

    def _place_calls(self, calls: list[OutermostModuleCall]) -> None:
        """Place the calls of modules since the update."""
        counted, excluded = self._ungraded, 0
        if calls and calls[-1].end < 0:  # the call around this forward: the step begins with it from now on
            self._follow(calls.pop().fqn)
        if calls:
            place, excess = self._forwards.place(self._updates, len(calls))
            if not counted:
                self._follow(calls[0].fqn)
                place = Place.AMBIGUOUS if place is Place.EXCLUDED else place
            if place is Place.EXCLUDED:
                excluded = excess
                start, end = Moment(calls[0].start, 0), Moment(calls[excess - 1].end, 0)
                self._decisions.append(events.ExcludeMarks(start, end, fetches=True))
            elif place is Place.AMBIGUOUS:
                self._decisions.append(events.RenameMarks(calls[0].start, calls[-1].end, calls[0].fqn))
        kept = len(calls) - excluded if excluded < len(calls) else max(len(calls), counted > 0)
        self._forwards.add(self._updates, kept)

    def _place_blocks(self) -> list[tuple[Moment, Moment]]:
        """Exclude the blocks without gradients that the step has more than others since the update: the longest."""
        blocks = self._blocks
        longest: list[tuple[Moment, Moment]] = []
        excess = min(blocks.regularity.excess(self._updates, blocks.count), len(blocks.done)) if blocks.done else 0
        blocks.regularity.add(self._updates, blocks.count)
        if excess and not blocks.excluded:
            longest = sorted(blocks.done, key=lambda block: block[1].ns - block[0].ns)[-excess:]
            self._decisions.extend(events.ExcludeMarks(began, ended) for began, ended in longest)
        blocks.forget()
        return longest

    # The modules that the program calls in place of the model.

    def _follow_next(self, calls: Calls, since: int = 0) -> bool:
        """No training forward was reported: have the next module in the order of the calls reported, too.

        Return False where there is none.
        """
        fqns = dict.fromkeys(call.fqn for call in calls or () if call.start >= since)
        return any(self._follow(fqn) for fqn in fqns)

    def _follow(self, fqn: str) -> bool:
        """Have the forwards of this module reported; return False where they are already, or there is no room."""
        if fqn in self._entries or len(self._entries) >= MAX_ENTRIES:
            return False
        self._entries.add(fqn)
        self._decisions.append(events.Follow(fqn))
        return True


def _holds(block: tuple[Moment, Moment], call: OutermostModuleCall) -> bool:
    return block[0].position < call.start < block[1].position


_HANDLERS: Final[Mapping[type, Callable[[StepDetector, Any], None]]] = {
    events.ForwardBegins: StepDetector._forward,
    events.Fetch: StepDetector._fetch,
    events.UpdateBegins: StepDetector._update_begins,
    events.UpdateEnds: StepDetector._update_ends,
    events.BackwardBegins: StepDetector._backward,
    events.BackwardEnds: StepDetector._backward_ends,
    events.UngradedBlockBegins: StepDetector._block_begins,
    events.UngradedBlockEnds: StepDetector._block_ends,
    events.ModeChanged: StepDetector._mode_changed,
    events.StepCalled: StepDetector._step_called,
    events.PauseBegins: StepDetector._pause_begins,
    events.PauseEnds: StepDetector._pause_ends,
    events.LoopEnds: StepDetector._loop_ends,
}
