"""Train a few steps from the same state, bare and profiled, and hash the bits of each."""

from __future__ import annotations

import copy
import hashlib
import io
import os
import pickle
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from ...base.process.switch import SWITCH
from ...config import Sample
from ...devices import ask_devices
from ...errors import AutoprofError
from ...session.builder import open_session
from ...sinks import Config, Sinks
from .subject import Subject, leaves, users_line

STEPS: Final = 3


@dataclass
class Outcome:
    """The bits of a few steps."""

    digests: dict[str, str] = field(default_factory=dict)
    """By name of a tensor or a state: the hash of its bits, so that no tensor is kept in memory."""
    error: str | None = None
    """The exception of the user's code that ended the steps."""
    has_backward: bool = False
    changed_hooks: tuple[str, ...] = ()
    """Modules whose hooks differ after ``close``."""


def digest(tensor: Tensor) -> str:
    """Return a hash of the tensor's type, shape and bits; of a DTensor, those of this rank's shard."""
    local: Any = getattr(tensor, "to_local", lambda: tensor)()
    buffer = io.BytesIO()
    with torch.no_grad():
        # A clone, because a view is saved with the whole storage that it is a part of.
        torch.save(local.detach().clone().resolve_conj().resolve_neg().cpu(), buffer)
    return hashlib.blake2b(buffer.getvalue(), digest_size=16).hexdigest()


class Trials:
    """Train a subject's model repeatedly from the same weights, buffers, modes, batch and random state.

    One step runs before all trials: it may set things up, such as lazy or compiled modules.
    """

    def __init__(self, subject: Subject, config: Config) -> None:
        self._subject = subject
        sample = Sample(every=1, warmup=0, budget=None)
        self._config = config.model_copy(update={"enabled": True, "step": "manual", "sinks": Sinks(), "sample": sample})
        self._train(Outcome(), steps=1)
        self._random = _RandomState()
        self._values = {name: tensor.detach().clone() for name, tensor in _state(subject.model)}
        self._modes = {name: module.training for name, module in subject.model.named_modules()}

    def run_bare(self) -> Outcome:
        """Train without autoprof."""
        outcome = Outcome()
        self._train(outcome)
        self._restore()
        return outcome

    def run_profiled(self) -> Outcome:
        """Train under the configuration, without its sinks. Raises the errors of ``instrument``."""
        outcome, model = Outcome(), self._subject.model
        before = _hooks(model)
        switch = os.environ.pop(SWITCH, None)  # it has its own check and must not make a trial empty
        try:
            with open_session(model, self._config, optimizer=None, sinks=[]) as session:
                self._train(outcome, session.step)
        finally:
            os.environ.update({} if switch is None else {SWITCH: switch})
            self._restore()
        outcome.changed_hooks = tuple(name for name, hooks in _hooks(model).items() if hooks != before.get(name))
        return outcome

    def _restore(self) -> None:
        model = self._subject.model
        self._random.restore()
        with torch.no_grad():
            for name, tensor in _state(model):
                tensor.copy_(self._values[name])
        model.zero_grad(set_to_none=True)
        for name, module in model.named_modules():
            module.training = self._modes[name]

    def _train(self, outcome: Outcome, end_step: Callable[[], None] = lambda: None, steps: int = STEPS) -> None:
        """Train and keep the digests of each step; keep the error if a step fails."""
        subject, model = self._subject, self._subject.model
        try:
            for number in range(1, steps + 1):
                model.zero_grad(set_to_none=True)
                batch = subject.batch
                with suppress(Exception):  # tensors with a history, open files: the model gets the batch itself
                    batch = copy.deepcopy(batch)
                output = subject.call(model, batch)
                loss = subject.loss_of(output, batch)
                if loss is not None:
                    outcome.has_backward = True
                    torch.autograd.backward(loss)
                weights = {name: weight for name, weight in model.named_parameters() if weight.grad is not None}
                if weights:
                    torch.optim.SGD(weights.values(), lr=1e-3).step()
                found = {f"output{path}": leaf for path, leaf in leaves(output)} | {"loss": loss}
                found |= {f"gradient of {name}": weight.grad for name, weight in weights.items()}
                outcome.digests |= {f"{name} of step {number}": _bits(value) for name, value in found.items()}
                end_step()
            outcome.digests |= {name: digest(tensor) for name, tensor in _state(model)} | _RandomState().digests()
        except AutoprofError:
            raise
        except Exception as error:  # the user's model may raise anything
            outcome.error = users_line(error)


def _bits(value: Any) -> str:
    """Return the bits of a tensor or a plain value; other objects have none to compare."""
    if isinstance(value, Tensor):
        return digest(value)
    return repr(value) if isinstance(value, (bool, int, float, complex, str, bytes)) else type(value).__name__


class _RandomState:
    """The state of every generator that a model is likely to draw from."""

    def __init__(self) -> None:
        self._cpu = torch.get_rng_state()
        # A device that this process does not use is not initialised for it.
        self._devices = [one for one in ask_devices(lambda device: device.random_states()) if one[1]]
        self._others = np.random.get_state(), random.getstate()

    def restore(self) -> None:
        torch.set_rng_state(self._cpu)
        for device, states in self._devices:
            device.set_random_states(states)
        np.random.set_state(self._others[0])
        random.setstate(self._others[1])

    def digests(self) -> dict[str, str]:
        states: dict[str, Any] = {name: one for _, found in self._devices for name, one in found.items()}
        states |= {"torch": self._cpu, "numpy and Python": pickle.dumps(self._others)}
        return {f"random state of {name}": _bits(one) for name, one in states.items()}


def _state(model: nn.Module) -> list[tuple[str, Tensor]]:
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
