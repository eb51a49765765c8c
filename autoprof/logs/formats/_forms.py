"""Lines that differ only in their numbers have one form, which is parsed once.

The first line of a form is parsed twice more with powers of two in place of its numbers: the results show which number
is which column, and its factor.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

Row = dict[str, float]
_NUMBER: Final = re.compile(r"(?<![\w.,])([-+]?(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?)(?![\d,.]?\d)")
_MAX_NUMBERS: Final = 60
_MAX_FORMS: Final = 2000
"""Forms that are kept: a text without forms would fill the memory."""
_Plan = list[tuple[str, int, float]] | None
"""Name, index of the number and factor of each value; None for a line that is no record."""


class FormReader:
    """Parses lines by their forms; ``parse`` returns the values of one line by name, or None.

    ``rejects`` says that whether a line is a record does not depend on its numbers.
    """

    def __init__(self, parse: Callable[[str], Row | None], *, rejects: bool = False) -> None:
        self._parse = parse
        self._rejects = rejects
        self._plans: dict[tuple[str, ...], _Plan] = {}
        self._unplanned: set[tuple[str, ...]] = set()

    def read(self, line: str) -> Row | None:
        """Return the values of a line by name; None if it is no record."""
        pieces = _NUMBER.split(line)
        texts, numbers = pieces[::2], pieces[1::2]
        form = (*texts, "".join(map(_kind, numbers)))
        if form in self._plans:
            plan = self._plans[form]
            return None if plan is None else {name: float(numbers[at]) * factor for name, at, factor in plan}
        row = self._parse(line)
        if form not in self._unplanned and len(self._plans) + len(self._unplanned) < _MAX_FORMS:
            self._learn(form, texts, numbers, row)
        return row

    def _learn(self, form: tuple[str, ...], texts: Sequence[str], numbers: Sequence[str], row: Row | None) -> None:
        """Keep the plan of a form, if powers of two in place of its numbers give the same columns."""
        count = len(numbers)
        self._unplanned.add(form)
        if count > _MAX_NUMBERS:
            return
        up, down = [1024 << at for at in range(count)], [1024 << (count - at) for at in range(count)]
        first, second = (self._parse(_fill(texts, numbers, values)) for values in (up, down))
        if row is None or first is None or second is None:
            if self._rejects and row is first is second is None:
                self._unplanned.discard(form)
                self._plans[form] = None
            return
        plan = []
        for name in row:
            one, other = first.get(name, 0.0), second.get(name, 1.0)
            at = next((at for at in range(count) if one * down[at] == other * up[at]), None)
            if at is None or float(numbers[at].lstrip("+-")) * abs(one / up[at]) != abs(row[name]):
                return
            factor = one / up[at] * (-1 if numbers[at].startswith("-") else 1)
            plan.append((name, at, factor))
        if first.keys() == second.keys() == row.keys():
            self._unplanned.discard(form)
            self._plans[form] = plan


def _kind(number: str) -> str:
    """Return the kind of a number, on which its reading may depend: its sign, decimals and exponent."""
    sign = number[0] if number[0] in "+-" else ""
    return sign + ("e" if "e" in number or "E" in number else "f" if "." in number else "i")


def _fill(texts: Sequence[str], numbers: Sequence[str], values: Sequence[int]) -> str:
    """Return a line with values of the same kinds in place of its numbers."""
    ends = {"i": "", "f": ".0", "e": ".0e+00"}
    kinds = [_kind(number) for number in numbers]
    filled = [f"{kind[:-1]}{value}{ends[kind[-1]]}" for kind, value in zip(kinds, values, strict=True)]
    return "".join(text + number for text, number in zip(texts, [*filled, ""], strict=True))
