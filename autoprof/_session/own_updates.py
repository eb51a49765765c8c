"""Recognise updates that no torch optimizer makes, by the gradients after a backward pass."""

from __future__ import annotations

import weakref
from typing import Any

from torch import nn


class OwnUpdates:
    """Tell whether a program without a torch optimizer has updated its parameters since the last backward pass.

    After an update the gradients are cleared (or the next backward pass would add to them), and usually the parameters
    have changed in place. Both show in one parameter. A gradient that is cleared only right before the next backward
    pass shows too late: from then on each backward pass counts as an update, and so does each call of
    ``torch.autograd.grad``, which leaves no gradient.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._sample: tuple[weakref.ref[Any], int, int, int] | None = None
        self._each_pass = False
        self._passes = self._gradless = 0

    def begin_step(self) -> None:
        """Begin another step."""
        self._passes = self._gradless = 0
        self._sample = None

    def begin_pass(self) -> None:
        """Called before each backward pass."""
        if self._passes and not self._each_pass and self._changed():
            self._each_pass = True

    def end_pass(self) -> None:
        """Called after each backward pass."""
        self._passes += 1
        parameter = next((one for one in self._model.parameters() if one.grad is not None), None)
        if parameter is None:
            self._sample = None
            return
        gradient = parameter.grad
        assert gradient is not None
        self._sample = weakref.ref(parameter), parameter._version, id(gradient), gradient._version

    def end_gradless_pass(self) -> None:
        """Called after each call of ``torch.autograd.grad``."""
        self._gradless += 1

    @property
    def has_updated(self) -> bool:
        """Whether the parameters were updated since the last step, as far as it shows."""
        if not self._passes:
            return self._gradless > 0
        return self._each_pass or self._changed()

    def _changed(self) -> bool:
        if self._sample is None:
            return False
        reference, version, gradient, gradient_version = self._sample
        parameter = reference()
        if parameter is None or parameter._version != version or parameter.grad is None:
            return True
        return id(parameter.grad) != gradient or parameter.grad._version != gradient_version
