"""Logs of text: names and numbers in lines, whatever stands between them. The machine behind every reader of text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from ..engine import Engine, need_pandas
from ..fields import METRICS, Meaning
from ..pairs import RANK, TIME_S, Form, Hints, Number, form_of
from ..source import Source
from .base import Raw

ANY: Final = r"\d"
_QUOTED: Final = re.compile(r"\{\s*[\"'][^{}]*[\"']\s*:")
"""An object in a line is the JSON reader's, whatever stands before it."""
_FORMS: Final = 400
"""Forms read in one block; real logs have ten."""
_KNOWN: Final = 200_000
"""Shapes remembered; a log of prose must not fill the memory."""


@dataclass(frozen=True)
class TextFormat:
    """A kind of log of text.

    ``record`` finds a record's line and ``attach`` one that belongs to the step before it (both for RE2). ``weak``
    takes lines that tell no step. ``special`` are numbers that stand under no name: an expression and its column.
    """

    name: str
    record: str
    hints: Hints = field(default_factory=Hints)
    attach: str | None = None
    weight: float = 1.0
    weak: bool = False
    special: tuple[tuple[str, str], ...] = ()

    @cached_property
    def _patterns(self) -> tuple[re.Pattern[str], re.Pattern[str] | None]:
        return re.compile(self.record), re.compile(self.attach) if self.attach else None

    def score(self, sample: Sequence[str]) -> float:
        """Count the records in the sample."""
        record, _ = self._patterns
        known: dict[str, bool] = {}
        count = 0
        for line in sample:
            if len(line) < 16384 and record.search(line) and not _QUOTED.search(line):
                shape = re.sub(r"[\d .+-]+", "", line)
                if shape not in known:
                    known[shape] = self._form(line) is not None
                count += known[shape]
        return self.weight * count

    def read(self, source: Source, engine: Engine) -> Raw:
        """Read the file block by block: each new shape once in Python, all lines of it in the engine."""
        raw = Raw(self.name)
        known: dict[str, Form | None] = {}
        ids: dict[Form, int] = {}
        offset = 0
        wanted = self.record if self.attach is None else f"{self.record}|{self.attach}"
        for block in source.blocks():
            raw.lines += engine.load(block)
            found: dict[str, int] = {}
            for shape, line in engine.shapes(wanted):
                if shape not in known:
                    if len(known) > _KNOWN:
                        known.clear()
                    known[shape] = self._form(line)
                form = known[shape]
                if form is not None and (form in ids or len(ids) < _FORMS):
                    found[shape] = ids.setdefault(form, len(ids))
            self._add(raw, engine, found, {number: form for form, number in ids.items()}, offset)
            offset += block.count("\n") + 1
        return raw

    def _add(self, raw: Raw, engine: Engine, found: dict[str, int], forms: dict[int, Form], offset: int) -> None:
        if not found:
            return
        engine.assign(found)
        parts = []
        for form_id in sorted(set(found.values())):
            form = forms[form_id]
            texts = {"_rank": RANK} if form.has_rank else {}
            texts |= {"_time": TIME_S} if form.has_time else {}
            part = engine.numbers(form_id, form.numbers, texts)
            raw.used_lines += len(part)
            for number in form.numbers:
                if number.scale not in (None, 1.0):
                    part[number.key] *= number.scale
                raw.learn(number.key, number.meaning, number.scale is not None)
            if not form.fields & {"step", "epoch"}:
                part["_attached"] = True
            parts.append(part)
        pd = need_pandas()
        raw.add(pd.concat(parts, ignore_index=True) if len(parts) > 1 else parts[0], offset)

    def _form(self, line: str) -> Form | None:
        form = form_of(line, self.hints)
        for at, (pattern, column) in enumerate(self.special):
            if re.search(pattern, line):
                number = Number(f"{column}_{at}", Meaning(column, 0), pattern, 1.0, alone=True)
                others = tuple(
                    other for other in form.numbers if other.meaning is None or other.meaning.field != column
                )
                form = replace(form, numbers=(*others, number))
        if form.is_validation:
            form = _validation(form)
        if form.is_record or (self.weak and "loss" in form.fields):
            return form
        attach = self._patterns[1]
        if attach is not None and attach.search(line) and form.numbers:
            return form
        return None


def _validation(form: Form) -> Form:
    """Return the form of a line about validation: its loss is another column, and its times are not the training's."""
    numbers: list[Number] = []
    losses = [number for number in form.numbers if number.meaning and number.meaning.field in ("loss", "val_loss")]
    best = min(losses, key=lambda number: number.meaning.rank if number.meaning else 0, default=None)
    for number in form.numbers:
        field_name = number.meaning.field if number.meaning else None
        if number is best:
            numbers.append(replace(number, key="val_loss", meaning=Meaning("val_loss", 0)))
        elif field_name in ("step", "epoch"):
            if number.key != "_place":  # the place in the validation
                numbers.append(number)
        elif field_name in (None, "loss", "val_loss") and not number.key.startswith("_"):
            numbers.append(replace(number, key=f"val_{number.key}", meaning=None))
    form = replace(form, numbers=tuple(numbers))
    return form if form.fields & METRICS else replace(form, numbers=())
