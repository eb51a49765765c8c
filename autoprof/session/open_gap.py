"""The unsampled steps since the last recorded one, while they are counted."""

from __future__ import annotations

from typing import Any

import torch

from ..base.units import UNITS


def as_scalar(value: Any) -> Any:
    """Return a number, or a tensor of one element that is copied from its device without waiting, and read later.

    Raises ``TypeError`` or ``ValueError`` for anything else.
    """
    if not isinstance(value, torch.Tensor):
        return float(value)
    if value.numel() != 1:
        raise ValueError(f"it has {value.numel()} elements")
    return float(value.detach()) if value.device.type == "cpu" else value.detach().to("cpu", non_blocking=True)


class OpenGap:
    """The number and the time of the unsampled steps, and the units of work that were logged in them."""

    __slots__ = ("began_ns", "ns", "overhead_ns", "scalars", "steps")

    def __init__(self) -> None:
        self.steps = self.ns = self.overhead_ns = 0
        self.began_ns = 0
        """The begin of the open unsampled step."""
        self.scalars: dict[str, list[Any]] = {}

    def add(self, steps: int, ns: int) -> None:
        """Count steps that have ended, and their time together."""
        self.steps += steps
        self.ns += ns

    def log(self, name: str, value: Any) -> None:
        """Add up a unit of work; other scalars of unsampled steps are not kept.

        Raises ``TypeError`` or ``ValueError`` where it is no number.
        """
        if name not in UNITS:
            return
        values, scalar = self.scalars.setdefault(name, []), as_scalar(value)
        if values and type(values[-1]) is type(scalar) is float:
            values[-1] += scalar
        else:
            values.append(scalar)
