"""Learn the order in which a program's optimizers step, and tell from it when a training step is whole."""

from __future__ import annotations

from typing import Any, Final

HISTORY: Final = 64
"""Optimizer steps remembered."""
HISTORY_OF_ONE: Final = 4
"""Those of a single optimizer: more of them say nothing new, and the steps of a program repeat from here on."""
OPTIMIZERS: Final = 8
"""Optimizers that are distinguished: those that stepped last."""


class OptimizerCycle:
    """The optimizers that stepped in the open training step, and the one that is due next.

    A training step holds at most one step of each optimizer: it is whole once the optimizer that is due next has
    stepped in it already. The next one is the one that followed most often after the longest sequence of optimizers
    that equals the latest one. ``expected`` is the number of optimizers that the user named, or
    that were found: a step waits for as many where nothing was learnt. If one steps twice instead, the step was
    several (``steps_in_one``).

    ========================================  ==================================================================
    sequence of optimizer steps               training steps
    ========================================  ==================================================================
    a a a a                                   a, a, a, a
    d g d g (a GAN)                           dg, dg
    d d d g d d d g (several critic updates)  d, d, dg, d, d, dg: as many as the optimizer that steps most often
    a b c a b c (one per part of a model)     abc, abc
    ========================================  ==================================================================
    """

    def __init__(self, expected: int = 0) -> None:
        self._expected = expected
        self._symbols: dict[int, str] = {}
        self._history = ""
        self._open = ""
        self._waits = False
        self.has_stepped = False
        """Whether an optimizer of the model has stepped in the open training step."""
        self.steps_in_one = 1
        """The training steps that the open one turned out to hold."""

    @property
    def is_whole(self) -> bool:
        """Whether the next optimizer step belongs to another training step."""
        if not self.has_stepped:
            return False
        if len(self._symbols) <= 1 >= self._expected:
            return True
        due = self._due()
        return len(self._open) >= self._expected if due is None else due in self._open

    def wait(self) -> None:
        """Note that the open step goes on, because another optimizer is due."""
        self._waits = True

    def add(self, key: int, *, owned: bool = True) -> None:
        """Add a step of the optimizer ``key``; one that is not ``owned`` by the model never makes a step whole."""
        self.has_stepped = self.has_stepped or owned
        symbol = self._symbols.pop(key, "") or self._new_symbol()
        if not symbol:
            return
        self._symbols[key] = symbol  # the last one
        self._history = (self._history + symbol)[-HISTORY if len(self._symbols) > 1 else -HISTORY_OF_ONE :]
        self.steps_in_one += self.holds_another(key)
        if symbol not in self._open:
            self._open += symbol
        self._waits = False

    def _new_symbol(self) -> str:
        """Return a free symbol, or that of the optimizer that stepped longest ago; none if the open step has that one.

        A program may make new optimizers all the time, such as one for each client of a federated round.
        """
        if len(self._symbols) < OPTIMIZERS:
            return chr(ord("a") + len(self._symbols))
        oldest = next(iter(self._symbols))
        if self._symbols[oldest] in self._open:
            return ""
        symbol = self._symbols.pop(oldest)
        self._history = self._history.replace(symbol, "")
        return symbol

    def holds_another(self, key: int) -> bool:
        """Return whether a step of the optimizer ``key`` shows that the open step holds another training step."""
        return self._waits and self._symbols.get(key, " ") in self._open

    def begin_step(self) -> None:
        """Begin another training step."""
        self._open, self.has_stepped, self._waits, self.steps_in_one = "", False, False, 1

    def state(self) -> tuple[Any, ...]:
        """Return the fields as a value."""
        return tuple(tuple(one.items()) if isinstance(one, dict) else one for one in vars(self).values())

    def _due(self) -> str | None:
        """Return the optimizer that followed most often after the latest ones; a tie goes to one that has stepped.

        None where nothing was learnt.
        """
        history = self._history
        for length in range(len(history) - 1, 0, -1):
            sequence = history[-length:]
            if sequence not in history[:-1]:
                continue
            counts = {symbol: history.count(sequence + symbol) for symbol in self._symbols.values()}
            most = max(counts.values())
            if most:
                likely = [symbol for symbol, count in counts.items() if count == most]
                return next((symbol for symbol in likely if symbol in self._open), likely[0])
        return None
