"""Turn the calls of torch's hooks into events: forwards, updates, backward passes, fetches, modes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from threading import get_ident
from typing import Any, Final
from weakref import WeakValueDictionary, ref

import torch
from torch import nn

from ..base.failures import contain, ignore
from ..base.process.replace import skip_frames
from ..base.units import NS_PER_S
from ..capture.hooks.backward import BackwardProbe
from ..capture.hooks.boundary import BoundaryProbe
from ..capture.hooks.optimizer_hooks import ModelOptimizers, OptimizerHooks, running_steps
from ..capture.recorder import Recorder
from ..targets import find_module
from .events import (
    BackwardBegins,
    CountByUpdates,
    Decision,
    Event,
    Fetch,
    Follow,
    ForwardBegins,
    ModeChanged,
    RecordingIsOff,
    ReportBackward,
    StepCalled,
    StepsAreManual,
    TrainsInUpdate,
    UpdateBegins,
    UpdateEnds,
)
from .training_steps import TrainingSteps

_compiling = torch.compiler.is_dynamo_compiling
_graph_task = torch._C._current_graph_task_id


class TrainingHooks:
    """Report events to a session's steps, from the start to the end: in unsampled steps too.

    Hooks on modules and on optimizers hold this object; it finds them again in torch's tables, and holds none of them.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizers: ModelOptimizers,
        steps: TrainingSteps,
        recorder: Recorder,
        *,
        auto: bool,
        training_forward_calls: Sequence[Callable[[], None]],
    ) -> None:
        self._model = ref(model)
        self._optimizers = optimizers
        self._steps = steps
        self._recorder = recorder
        self._auto = auto
        """Whether steps end without calls of ``session.step`` at first."""
        self._entries = WeakValueDictionary({id(model): model})
        """The modules whose forwards are reported: the model, and those that the program calls in its place."""
        self._training_forward_calls = tuple(training_forward_calls)
        self._ends_with_update = False
        self._counting: int | None = None
        """The optimizer whose updates count the steps, one in each, by id; None where there is none."""
        self._hooks_off_for = 0
        """Updates until the hooks are attached again; 0 while they are attached."""
        self._updates_since = 0
        """Updates since they were detached."""
        self._updated_ns = 0
        """The time of the last of them."""
        self._backward: BackwardProbe | None = None
        """The report of backward passes; held while it is attached only, because it refers to this object."""

    # Attached.

    def start(self) -> None:
        """Attach the hooks, and open the first step."""
        self._optimizers.attach()
        if self._auto:
            for hooks in self._optimizer_hooks():
                hooks.attach()
        for boundary in self._boundaries():
            boundary.attach()
        if self._auto:
            self._attach_backward()
        for optimizer in running_steps() if self._auto else ():
            self._steps.carry_out(self._steps.decide(UpdateBegins(id(optimizer))))
        self._steps.start()

    def _boundaries(self) -> list[BoundaryProbe]:
        return [BoundaryProbe(module, self.forward_begins) for module in [*self._entries.values()]]

    def _attach_backward(self) -> None:
        if self._backward is None:
            self._backward = BackwardProbe(self)
            self._backward.attach()

    def _detach_backward(self) -> None:
        backward, self._backward = self._backward, None
        if backward is not None:
            backward.detach()

    def _optimizer_hooks(self) -> tuple[OptimizerHooks, OptimizerHooks]:
        return OptimizerHooks(after=self.update_ends), OptimizerHooks(before=self.update_begins)

    def remove(self) -> None:
        """Remove every hook, whatever fails."""
        for remove in (self._optimizer_hooks()[0].detach, self._optimizers.remove, *self._removes()):
            with contain(ignore):
                remove()

    def _removes(self) -> list[Callable[[], object]]:
        """Return the functions that remove all hooks but that after optimizer steps, which may be running."""
        before = self._optimizer_hooks()[1].detach
        return [self._detach_backward, before, *(boundary.detach for boundary in self._boundaries())]

    # Calls of the program.

    def step(self) -> None:
        """End the step by a call of the program; from now on steps end only by such calls."""
        self.attach_again()
        self._report(StepCalled())

    def finish(self, *, patient: bool) -> None:
        """Close the open step where it is whole, and wait for the device."""
        self.attach_again()
        self._steps.finish(patient=patient)

    # Forwards, updates and backward passes.

    def forward_begins(self, module: nn.Module) -> None:
        """Called before each forward of the model, or of a module that the program calls in its place."""
        if _compiling():
            return
        graded, training = torch.is_grad_enabled(), module.training
        inference = not graded and torch.is_inference_mode_enabled()
        event = ForwardBegins(id(module), module is self._model(), training, graded, get_ident(), inference)
        if (decisions := self._steps.decide(event)) and (others := self._steps.carry_out(decisions)):
            self._carry_out(others)
        if not (graded and training):
            return
        if not self._recorder.buffer.suspended:
            for call in self._training_forward_calls:
                call()
        elif self._counting is not None:
            self._detach_for_a_while()

    # Between recorded steps of a program that makes one update in each, updates count the steps.

    def _detach_for_a_while(self) -> None:
        """Detach the hooks until the last update before the next recorded step, if that is some steps away."""
        # Longest time without hooks: a person who watches sees the number of steps grow.
        steps = self._steps.unsampled_steps(NS_PER_S // 2)
        # Unsampled steps in a row from which hooks are detached: that takes as long as the hooks of about two steps.
        if steps < 4:
            return
        self._hooks_off_for, self._updates_since = steps, 0
        self._optimizer_hooks()[1].detach()
        self._detach_backward()
        for boundary in self._boundaries():
            boundary.detach()

    def attach_again(self) -> None:
        """Attach detached hooks again, and count the steps since. The detector sees the last update only."""
        if not self._hooks_off_for:
            return
        updates, self._hooks_off_for = self._updates_since, 0
        self._optimizer_hooks()[1].attach()
        self._attach_backward()
        for boundary in self._boundaries():
            boundary.attach()
        if updates and self._counting is not None:
            self._steps.skip(self._counting, updates - 1, self._updated_ns)
            self._report(UpdateEnds(self._counting, get_ident()))

    def update_begins(self, optimizer: Any, *_call: Any) -> None:
        """Called before each optimizer step."""
        if not self._optimizers.begins(optimizer):
            return
        event = UpdateBegins(id(optimizer))
        if (decisions := self._steps.decide(event)) and (others := self._steps.carry_out(decisions)):
            self._carry_out(others)

    def update_ends(self, optimizer: Any, *_call: Any) -> None:
        """Called after each optimizer step."""
        owned, is_last = self._optimizers.trains(optimizer), False
        if self._optimizers.given and not owned:
            return
        if self._hooks_off_for:
            if id(optimizer) != self._counting:
                self.attach_again()
            elif self._optimizers.moved(optimizer, began=False):
                self._updates_since += 1
                self._updated_ns = self._steps.now_ns()
                if self._updates_since == self._hooks_off_for:
                    self.attach_again()
                return
            else:
                return
        in_backward = _graph_task() != -1
        moved = in_backward or self._optimizers.moved(optimizer)
        if self._ends_with_update:
            self._ends_with_update, is_last = False, self._optimizer_hooks()[0].is_last()
        event = UpdateEnds(id(optimizer), get_ident(), owned, in_backward, is_last, moved)
        if (decisions := self._steps.decide(event)) and (others := self._steps.carry_out(decisions)):
            self._carry_out(others)

    def enter(self, function: Callable[..., Any], args: tuple[Any, ...]) -> bool:
        """Called before each backward pass."""
        if _graph_task() == -1:
            decisions = self._steps.decide(BackwardBegins(get_ident()))
            if decisions and (others := self._steps.carry_out(decisions)):
                self._carry_out(others)
        return False

    def leave(self) -> None:
        """Never called."""

    def _report(self, event: Event) -> None:
        if (decisions := self._steps.decide(event)) and (others := self._steps.carry_out(decisions)):
            self._carry_out(others)

    def _carry_out(self, others: Sequence[Decision]) -> None:
        """Carry out the decisions that the steps have left."""
        for decision in others:
            ACTIONS[type(decision)](self, decision)

    def _recording_is_off(self, _decision: RecordingIsOff) -> None:
        for remove in self._removes():
            with contain(ignore):
                remove()

    def _count_by_updates(self, decision: CountByUpdates) -> None:
        self._counting = decision.optimizer

    def _steps_are_manual(self, _decision: StepsAreManual) -> None:
        for hooks in self._optimizer_hooks():
            hooks.detach()
        self._detach_backward()

    def _report_backward(self, decision: ReportBackward) -> None:
        self._attach_backward() if decision.on else self._detach_backward()

    def _trains_in_update(self, _decision: TrainsInUpdate) -> None:
        self._optimizer_hooks()[0].move_last()  # hooks change where the step ends with the optimizer's
        self._ends_with_update = True

    def _follow(self, decision: Follow) -> None:
        with contain(ignore):
            model = self._model()
            module = None if model is None else find_module(model, decision.fqn)
            if module is not None and id(module) not in self._entries:
                self._entries[id(module)] = module
                BoundaryProbe(module, self.forward_begins).attach()

    # ``StepEvents``, called by probes.

    @property
    def is_recording(self) -> bool:
        """Whether the open step is recorded."""
        return self._steps.is_recording

    @property
    def is_excluded(self) -> bool:
        """Whether time belongs to no step now."""
        return self._steps.is_excluded

    def excluding(self, name: str, *, chosen: bool = False) -> AbstractContextManager[None]:
        """Exclude the time inside the block from steps, under this name."""
        self.attach_again()
        return self._steps.excluding(name, chosen=chosen)

    def report_fetch(self, source: Any, *, explicit: bool) -> None:
        """Called before each fetch; ``explicit`` loaders are those given to ``session.loader``."""
        if self._hooks_off_for:
            if torch.is_grad_enabled():
                return
            self.attach_again()
        self._report(Fetch(source, explicit, torch.is_grad_enabled()))

    def report_mode(self, training: bool) -> None:
        """Called by ``model.train()`` and ``model.eval()``."""
        self.attach_again()
        self._report(ModeChanged(training, get_ident()))


skip_frames(TrainingHooks.forward_begins, callees=True)  # dynamo would compile it beside the graph of a compiled model
ACTIONS: Final[dict[type, Callable[[TrainingHooks, Any], None]]] = {
    Follow: TrainingHooks._follow,
    TrainsInUpdate: TrainingHooks._trains_in_update,
    CountByUpdates: TrainingHooks._count_by_updates,
    StepsAreManual: TrainingHooks._steps_are_manual,
    ReportBackward: TrainingHooks._report_backward,
    RecordingIsOff: TrainingHooks._recording_is_off,
}
"""The method that carries a decision out; those of ``training_steps.ACTIONS`` carry out the others."""
