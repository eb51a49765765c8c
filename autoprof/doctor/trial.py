"""Train a few steps from the same state, bare and profiled."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor, nn

from .._process.switch import SWITCH
from .._session.builder import open_session
from ..config import Sample
from ..errors import AutoprofError
from ..sinks import Config, Sinks
from .digest import Digests, RandomState, digest, digest_gradients, digest_output, digest_random, digest_state
from .subject import Subject, users_line

STEPS: Final = 3


@dataclass
class Outcome:
    """The bits of a few steps."""

    digests: Digests = field(default_factory=dict)
    error: str | None = None
    """The exception of the user's code that ended the steps."""
    has_backward: bool = False
    changed_hooks: tuple[str, ...] = ()
    """Modules whose hooks differ after ``close``."""


class Trials:
    """Train a subject's model repeatedly from the same weights, buffers, modes, batch and random state.

    One step runs before all trials: it may set things up, such as lazy or compiled modules.
    """

    def __init__(self, subject: Subject, config: Config) -> None:
        self._subject = subject
        sample = Sample(every=1, warmup=0, budget=None)
        self._config = config.model_copy(update={"enabled": True, "step": "manual", "sinks": Sinks(), "sample": sample})
        self._train(Outcome(), steps=1)
        self._random = RandomState.read()
        self._state = _State(subject.model)

    def run_bare(self) -> Outcome:
        """Train without autoprof."""
        outcome = Outcome()
        with self._restoring():
            self._train(outcome)
        return outcome

    def run_profiled(self) -> Outcome:
        """Train under the configuration, without its sinks. Raises the errors of ``instrument``."""
        outcome, model = Outcome(), self._subject.model
        with self._restoring(), _switched_on():
            before = _hooks(model)
            session = open_session(model, self._config, optimizer=None, sinks=[])
            try:
                self._train(outcome, session.step)
            finally:
                session.close()
            after = _hooks(model)
            outcome.changed_hooks = tuple(name for name in after if after[name] != before.get(name, after[name]))
        return outcome

    @contextmanager
    def _restoring(self) -> Iterator[None]:
        try:
            yield
        finally:
            self._random.restore()
            self._state.restore(self._subject.model)

    def _train(self, outcome: Outcome, end_step: Callable[[], None] = lambda: None, steps: int = STEPS) -> None:
        """Train and keep the digests of each step; keep the error if a step fails."""
        subject, model = self._subject, self._subject.model
        try:
            for number in range(1, steps + 1):
                for weight in model.parameters():
                    weight.grad = None
                batch = _copied(subject.batch)
                output = subject.call(model, batch)
                found = digest_output(output)
                loss = subject.loss_of(output, batch)
                if loss is not None:
                    outcome.has_backward = True
                    found["loss"] = digest(loss)
                    torch.autograd.backward(loss)
                trainable = [weight for weight in model.parameters() if weight.grad is not None]
                if trainable:
                    torch.optim.SGD(trainable, lr=1e-3).step()
                found |= digest_gradients(model)
                outcome.digests |= {f"{name} of step {number}": value for name, value in found.items()}
                end_step()
            outcome.digests |= digest_state(model) | digest_random()
        except AutoprofError:
            raise
        except Exception as error:  # the user's model may raise anything
            outcome.error = users_line(error)


class _State:
    """The weights, buffers and modes of a model, to be restored."""

    def __init__(self, model: nn.Module) -> None:
        self._values = {name: tensor.detach().clone() for name, tensor in _tensors(model)}
        self._modes = {name: module.training for name, module in model.named_modules()}

    def restore(self, model: nn.Module) -> None:
        with torch.no_grad():
            for name, tensor in _tensors(model):
                tensor.copy_(self._values[name])
        for weight in model.parameters():
            weight.grad = None
        for name, module in model.named_modules():
            module.training = self._modes[name]


def _tensors(model: nn.Module) -> list[tuple[str, Tensor]]:
    return [*model.named_parameters(), *model.named_buffers()]


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


@contextmanager
def _switched_on() -> Iterator[None]:
    """Remove the off switch from the environment: it has its own check and must not make a trial empty."""
    value = os.environ.pop(SWITCH, None)
    try:
        yield
    finally:
        if value is not None:
            os.environ[SWITCH] = value
