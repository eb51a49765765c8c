"""A clock of the program's own around each layer's forward and backward: it reads in every step, recorded or not."""

from __future__ import annotations

from array import array
from time import perf_counter_ns
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

Integers = npt.NDArray[np.int64]


class Witness:
    """Readings of one run, a row a step: forwards begin and end, backwards begin (the last layer's first), the end."""

    def __init__(self, layers: int) -> None:
        self._layers = layers
        self.begin(1)

    def begin(self, steps: int) -> None:
        """Make room for the readings of so many steps, in memory that has been touched before, and start anew."""
        self._readings = array("q", [0]) * (steps * (3 * self._layers + 1))
        self._at = 0

    def read(self, *_gradients: Any) -> None:
        """Read the clock: called between layers, and by the nodes that made their outputs."""
        at = self._at
        self._readings[at] = perf_counter_ns()
        self._at = at + 1

    def times(self) -> Integers:
        """Return the layer times (steps × layers): forwards in the first columns, backwards in the others."""
        layers = self._layers
        steps, over = divmod(self._at, 3 * layers + 1)
        if over:
            raise RuntimeError(f"the witness: {self._at} readings are no whole steps of {3 * layers + 1}")
        rows = np.array(self._readings, dtype=np.int64)[: self._at].reshape(steps, -1)
        forwards = rows[:, 1 : 2 * layers : 2] - rows[:, 0 : 2 * layers : 2]
        return np.concatenate([forwards, np.diff(rows[:, 2 * layers :])[:, ::-1]], axis=1)


class Chain(nn.Sequential):
    """Layers in a row, each between two readings of the witness.

    A layer's backward begins when the node runs that made its output, and is over when that of its input does: where
    autoprof reads the clock, too. The node is the program's own; there is none that a bare run would not have.
    """

    def __init__(self, witness: Witness, *layers: nn.Module) -> None:
        super().__init__(*layers)
        self.witness = witness

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        read = self.witness.read
        for layer in self:
            read()
            x = layer(x)
            read()
            if x.grad_fn is not None:
                x.grad_fn.register_prehook(read)
        return x
