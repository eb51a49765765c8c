"""Logs of text: names and numbers in lines, whatever stands between them. The machine behind every reader of text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

from ..engine import Engine, need_pandas
from ..fields import METRICS, Meaning
from ..layout import Layout, layout_of, texts_of
from ..pairs import Form, Hints, Number, form_of
from ..source import Source
from .base import Raw

ANY: Final = r"\d"
_QUOTED: Final = re.compile(r"\{\s*[\"'][^{}]*[\"']\s*:")
"""An object in a line is the JSON reader's, whatever stands before it."""
_FORMS: Final = 400
"""Forms read in one block; real logs have ten."""
_KNOWN: Final = 200_000
"""Shapes remembered; a log of prose must not fill the memory."""
_WORTH: Final = 200
"""Lines of a shape in one block, from which on a layout is looked for."""
_LAYOUTS: Final = 4
"""Tried on each block."""


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
                    known[shape] = self.form(line) is not None
                count += known[shape]
        return self.weight * count

    def read(self, source: Source, engine: Engine) -> Raw:
        """Read the file block by block: each new shape once in Python, all lines of it in the engine."""
        raw, known = Raw(self.name), _Known(self)
        offset = 0
        for block in source.blocks():
            raw.lines += engine.load(block)
            parts = known.read(engine)
            for form in [form for form in known.ids if form in parts]:
                _add_units(raw, form, parts[form])
            if parts:
                whole = [parts[form] for form in known.ids if form in parts]
                raw.add(need_pandas().concat(whole, ignore_index=True) if len(whole) > 1 else whole[0], offset)
            offset += block.count("\n") + 1
        return raw

    def form(self, line: str) -> Form | None:
        """Read what lines like this one have; None for no record."""
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


class _Known:
    """The forms of a file, and the layouts of most of its lines."""

    def __init__(self, log: TextFormat) -> None:
        self._log = log
        self._wanted = log.record if log.attach is None else f"{log.record}|{log.attach}"
        self._shapes: dict[str, Form | None] = {}
        self._layouts: list[Layout] = []
        self.ids: dict[Form, int] = {}

    def read(self, engine: Engine) -> dict[Form, Any]:
        """Read the block in the engine: lines that have a layout cut, the others by their forms' expressions."""
        parts: dict[Form, list[Any]] = {}
        used = []
        for layout in self._layouts:
            part = engine.cut(layout, self._wanted)
            if len(part):
                parts.setdefault(layout.form, []).append(part)
                used.append(layout)
        self._layouts = used
        shapes = engine.shapes(self._wanted)
        for form, part in self._slowly(engine, shapes).items():
            self._learn(engine, [entry for entry in shapes if self._shapes[entry[0]] == form], form, part)
            parts.setdefault(form, []).append(part)
        pd = need_pandas()
        return {form: pd.concat(some, ignore_index=True) if len(some) > 1 else some[0] for form, some in parts.items()}

    def _slowly(self, engine: Engine, shapes: list[tuple[str, str, int]]) -> dict[Form, Any]:
        found: dict[str, int] = {}
        for shape, line, _ in shapes:
            if shape not in self._shapes:
                if len(self._shapes) > _KNOWN:
                    self._shapes.clear()
                self._shapes[shape] = self._log.form(line)
            form = self._shapes[shape]
            if form is not None and (form in self.ids or len(self.ids) < _FORMS):
                found[shape] = self.ids.setdefault(form, len(self.ids))
        if not found:
            return {}
        engine.assign(found)
        forms = {number: form for form, number in self.ids.items()}
        return {
            forms[number]: engine.numbers(number, forms[number].numbers, texts_of(forms[number]))
            for number in sorted(set(found.values()))
        }

    def _learn(self, engine: Engine, shapes: list[tuple[str, str, int]], form: Form, part: Any) -> None:
        """Find a layout for the lines just read slowly, and take it if it says the same of every line that it fits."""
        most = max(shapes, key=lambda entry: entry[2])
        if most[2] < _WORTH or len(self._layouts) >= _LAYOUTS:
            return
        layout = layout_of(most[1], form, self._log.form)
        if layout is None:
            return
        cut = engine.cut(layout, self._wanted, keep=True)
        slow = part.set_index("_n").reindex(cut["_n"])
        if 2 * len(cut) >= most[2] and slow.equals(cut.set_index("_n")):
            self._layouts.append(layout)


def _add_units(raw: Raw, form: Form, part: Any) -> None:
    raw.used_lines += len(part)
    for number in form.numbers:
        if number.scale not in (None, 1.0):
            part[number.key] *= number.scale
        raw.learn(number.key, number.meaning, number.scale is not None)
    if not form.fields & {"step", "epoch"}:
        part["_attached"] = True


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
