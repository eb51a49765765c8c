"""Repeat one step from the same state: bare, profiled, and observed without hooks of autoprof."""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import Tensor, nn

from .._process.switch import SWITCH
from .._session.builder import open_session
from .._targets import CallCounter, measure_coverage, select_targets
from ..config import Config, Sample, Sinks
from ..devices import device_of
from ..errors import AutoprofError
from ..frame import Phase, StepFrame
from ..summary import Summary
from .digest import RandomState, digest, digest_gradients, digest_output, digest_random, digest_state
from .gradients import GradientCalls
from .outcome import Observed, Outcome, Profiled
from .subject import Subject, users_line

REPEATED_STEPS: Final = 5
"""Steps after the compared one, for the times: a first step is longer."""
REPEATED_S: Final = 3.0
"""Seconds after which no further step starts, once ``MIN_REPEATED_STEPS`` have run."""
MIN_REPEATED_STEPS: Final = 2
"""Repeated steps in any case: the first is charged with resolving the compared one, which happens once a run."""
LEARNING_RATE: Final = 1e-3


def _timed_out(repeated: int, began: float) -> bool:
    return repeated >= MIN_REPEATED_STEPS and time.perf_counter() - began > REPEATED_S


class Trials:
    """Run a subject's step repeatedly from the same weights, buffers, batch and random state.

    Each trial trains a deep copy. A model that cannot be copied, or that ``torch.compile`` would compile again for
    each copy, is trained itself, after one warm-up step, and restored after each trial. Raises ``AutoprofError`` if
    a step fails without autoprof. ``everything`` measures the coverage of every module instead of the targets'.
    """

    def __init__(self, subject: Subject, config: Config, *, everything: bool = False) -> None:
        self.subject = subject
        self.everything = everything
        self.config = config.model_copy(
            update={
                "enabled": True,
                "step": "manual",
                "sinks": Sinks(),
                "sample": Sample(every=1, warmup=0, budget=None),
            }
        )
        self._random = RandomState.read()
        self.in_place = self._trains_in_place()
        if self.in_place:
            warm = Outcome()
            self._run_step(subject.model, warm, compare=False)
            if warm.error is not None:
                raise AutoprofError(f"{subject.name}: one step without autoprof fails already: {warm.error}")
            subject.model.zero_grad(set_to_none=True)
            self._state = _State(subject.model)
            self._random.restore()

    def bare(self) -> Outcome:
        """Run a trial without autoprof."""
        outcome = Outcome()
        with self._start_state() as model:
            self._run_step(model, outcome, compare=True)
            began = time.perf_counter()
            for i in range(REPEATED_STEPS):
                if outcome.error is not None or _timed_out(i, began):
                    break
                start = time.perf_counter_ns()
                self._run_step(model, outcome, compare=False)
                _synchronize(model)
                outcome.step_ns.append(time.perf_counter_ns() - start)
        return outcome

    def profiled(self) -> Profiled:
        """Run a trial under the configuration without its sinks. Raises the errors of ``instrument``."""
        outcome = Profiled()
        with self._start_state() as model, _switched_on():
            before = _hooks(model)
            outcome.selection = select_targets(model, self.config)
            session = open_session(model, self.config, optimizer=None, sinks=[_Frames(outcome.frames)])
            try:
                self._run_step(model, outcome, compare=True)
                session.step()
                began = time.perf_counter()
                for i in range(REPEATED_STEPS):
                    if outcome.error is not None or _timed_out(i, began):
                        break
                    self._run_step(model, outcome, compare=False)
                    session.step()
            finally:
                session.close()
            outcome.summary = session.summary()
            after = _hooks(model)
            outcome.changed_hooks = tuple(name for name in after if after[name] != before.get(name, after[name]))
        return outcome

    def observed(self, profiled: Profiled) -> Observed:
        """Run a trial under a ``CallCounter``, with hooks that count the calls that receive a gradient."""
        with self._start_state() as model:
            targets = select_targets(model, self.config)
            counter, outcome = CallCounter(model), Outcome()
            followed = {target.fqn: target.module for target in targets if Phase.BACKWARD in target.phases}
            # Hooks switch fused paths off, and that must be visible here: without a backward no hooks are attached.
            gradients = GradientCalls(followed if profiled.trained else {})
            try:
                with counter:
                    self._run_step(model, outcome, compare=False)
            finally:
                gradients.remove()
            modules = None if self.everything else [target.module for target in targets]
            found = measure_coverage(model, counter, profiled.calls(), modules)
        return Observed(counter.active, found, gradients.calls(), outcome.error)

    def _trains_in_place(self) -> bool:
        model = self.subject.model
        compiled = (vars(one).get("_compiled_call_impl") is not None for one in model.modules())
        if any(compiled) or any(type(one).__name__ == "OptimizedModule" for one in model.modules()):
            return True
        try:
            copied = copy.deepcopy(model)
        except Exception:  # an object of the user's may raise anything when copied
            return True
        return not all(
            weight.is_leaf for weight in copied.parameters()
        )  # a scripted module's copied weights do not train

    @contextmanager
    def _start_state(self) -> Iterator[nn.Module]:
        """Yield a model in the common start state, with the random state set."""
        model = self.subject.model if self.in_place else copy.deepcopy(self.subject.model)
        self._random.restore()
        try:
            yield model
        finally:
            self._random.restore()
            if self.in_place:
                self._state.restore(model)

    def _run_step(self, model: nn.Module, outcome: Outcome, *, compare: bool) -> None:
        """Train one step; keep its digests if ``compare``, and its error."""
        subject = self.subject
        try:
            for weight in model.parameters():
                weight.grad = None
            batch = _copied(subject.batch)
            output = subject.call(model, batch)
            if compare:
                outcome.digests |= digest_output(output)
            loss = subject.loss_of(output, batch)
            if loss is not None:
                outcome.trained = True
                if compare:
                    outcome.digests["loss"] = digest(loss)
                torch.autograd.backward(loss)
            trainable = [weight for weight in model.parameters() if weight.grad is not None]
            if trainable:
                torch.optim.SGD(trainable, lr=LEARNING_RATE).step()
            if compare:
                outcome.digests |= digest_gradients(model) | digest_state(model) | digest_random()
        except AutoprofError:
            raise
        except Exception as error:  # the user's model may raise anything
            outcome.error = users_line(error)


class _Frames:
    """Keep the frames of a run."""

    def __init__(self, frames: list[StepFrame]) -> None:
        self._frames = frames

    def write(self, frame: StepFrame) -> None:
        self._frames.append(frame)

    def close(self, summary: Summary) -> None:
        pass


class _State:
    """The weights, buffers and modes of a model, to be restored."""

    def __init__(self, model: nn.Module) -> None:
        self._values = {id(one): one.detach().clone() for one in _tensors(model)}
        self._modes = {id(module): module.training for module in model.modules()}

    def restore(self, model: nn.Module) -> None:
        with torch.no_grad():
            for tensor in _tensors(model):
                if id(tensor) in self._values:
                    tensor.copy_(self._values[id(tensor)])
        for weight in model.parameters():
            weight.grad = None
        for module in model.modules():
            module.training = self._modes.get(id(module), module.training)


def _tensors(model: nn.Module) -> list[Tensor]:
    return [*model.parameters(), *model.buffers()]


def _hooks(model: nn.Module) -> dict[str, list[tuple[str, list[Any]]]]:
    """Return every hook of every module by module name."""
    return {
        name: [
            (kind, [*value.items()])
            for kind, value in vars(module).items()
            if "_hooks" in kind and isinstance(value, Mapping) and value
        ]
        for name, module in model.named_modules()
    }


def _copied(batch: Any) -> Any:
    try:
        return copy.deepcopy(batch)
    except Exception:  # tensors with a history, open files: the model gets the batch itself, as in training
        return batch


def _synchronize(model: nn.Module) -> None:
    anchor = next(model.parameters(), None)
    if anchor is not None:
        device_of(anchor.device).synchronize(anchor.device)


@contextmanager
def _switched_on() -> Iterator[None]:
    """Remove the off switch from the environment: it has its own check and must not make a trial empty."""
    value = os.environ.pop(SWITCH, None)
    try:
        yield
    finally:
        if value is not None:
            os.environ[SWITCH] = value
