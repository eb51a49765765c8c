"""The shared reader of text logs: names and numbers in lines, with any text between them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

from ..extras import import_pandas
from ..fields import METRICS, Meaning
from ..line_database import LineDatabase
from ..line_forms import FormatHints, LineForm, LineNumber, parse_line
from ..line_splitting import SplitPlan, plan_split, rank_and_time_sql
from ..log_file import LogFile
from ._base import LogFormat, RawRecords

_QUOTED_KEY: Final = re.compile(r"\{\s*[\"'][^{}]*[\"']\s*:")
"""A JSON object in a line: such lines belong to the JSON formats."""
_MAX_LINE: Final = 16384
_MAX_FORMS: Final = 400
"""Forms read from one file; real logs have ten."""
_MAX_KNOWN_SHAPES: Final = 200_000
"""Shapes remembered: a log of prose must not fill the memory."""
_MIN_LINES_FOR_PLAN: Final = 200
"""Lines of one shape in a block from which on a split plan is tried."""
_MAX_PLANS: Final = 4
"""Split plans tried on each block."""


@dataclass(frozen=True, kw_only=True)
class TextFormat(LogFormat):
    """A format of text lines with names and numbers. All expressions must be valid in Python and in RE2."""

    record: str
    """Matches the lines of records."""
    attached: str | None = None
    """Matches lines without a step that belong to the step before them."""
    hints: FormatHints = field(default_factory=FormatHints)
    unnamed: tuple[tuple[str, str], ...] = ()
    """Numbers without a name: an expression with one group, and the column."""
    weight: float = 1.0
    """The score per record; above 1 for a format that is more specific than another with the same lines."""
    needs_step: bool = True
    """False: a line with a loss is a record even without a step."""

    @cached_property
    def _compiled(self) -> tuple[re.Pattern[str], re.Pattern[str] | None]:
        return re.compile(self.record), re.compile(self.attached) if self.attached else None

    def score(self, sample: Sequence[str]) -> float:
        """Return the number of records in the sample, multiplied by ``weight``."""
        record, _ = self._compiled
        known: dict[str, bool] = {}
        count = 0
        for line in sample:
            if len(line) < _MAX_LINE and record.search(line) and not _QUOTED_KEY.search(line):
                shape = re.sub(r"[\d .+-]+", "", line)
                if shape not in known:
                    known[shape] = self.form(line) is not None
                count += known[shape]
        return self.weight * count

    def read(self, log_file: LogFile, database: LineDatabase) -> RawRecords:
        """Read the file block by block: each new shape of a line in Python, all its lines in the database."""
        raw, reader = RawRecords(self.name), _FormReader(self)
        offset = 0
        for block in log_file.blocks():
            raw.lines += database.load(block)
            parts = reader.read(database)
            ordered = [form for form in reader.form_numbers if form in parts]
            for form in ordered:
                _apply_units(raw, form, parts[form])
            if ordered:
                frames = [parts[form] for form in ordered]
                raw.add(import_pandas().concat(frames, ignore_index=True) if len(frames) > 1 else frames[0], offset)
            offset += block.count("\n") + 1
        return raw

    def form(self, line: str) -> LineForm | None:
        """Return the form of a line; None if it is no record."""
        form = parse_line(line, self.hints)
        for at, (pattern, column) in enumerate(self.unnamed):
            if re.search(pattern, line):
                number = LineNumber(f"{column}_{at}", Meaning(column, 0), pattern, 1.0, standalone=True)
                others = tuple(
                    other for other in form.numbers if other.meaning is None or other.meaning.field != column
                )
                form = replace(form, numbers=(*others, number))
        if form.is_validation:
            form = _as_validation(form)
        if form.is_record or (not self.needs_step and "loss" in form.fields):
            return form
        attached = self._compiled[1]
        if attached is not None and attached.search(line) and form.numbers:
            return form
        return None


class _FormReader:
    """Reads the blocks of one file; remembers the forms of its lines, and split plans for the most frequent ones."""

    def __init__(self, log_format: TextFormat) -> None:
        self._format = log_format
        self._wanted = (
            log_format.record if log_format.attached is None else f"{log_format.record}|{log_format.attached}"
        )
        self._forms: dict[str, LineForm | None] = {}
        """By shape; None for a shape that is no record."""
        self._plans: list[SplitPlan] = []
        self.form_numbers: dict[LineForm, int] = {}

    def read(self, database: LineDatabase) -> dict[LineForm, Any]:
        """Return the records of the block by form: lines that fit a plan are split, the others matched."""
        parts: dict[LineForm, list[Any]] = {}
        used = []
        for plan in self._plans:
            part = database.split(plan, self._wanted)
            if len(part):
                parts.setdefault(plan.form, []).append(part)
                used.append(plan)
        self._plans = used
        shapes = database.shapes(self._wanted)
        for form, part in self._match(database, shapes).items():
            self._try_plan(database, [entry for entry in shapes if self._forms[entry[0]] == form], form, part)
            parts.setdefault(form, []).append(part)
        pd = import_pandas()
        return {
            form: pd.concat(frames, ignore_index=True) if len(frames) > 1 else frames[0]
            for form, frames in parts.items()
        }

    def _match(self, database: LineDatabase, shapes: list[tuple[str, str, int]]) -> dict[LineForm, Any]:
        """Read lines by regular expressions, a slow way that fits every line."""
        numbers: dict[str, int] = {}
        for shape, line, _ in shapes:
            if shape not in self._forms:
                if len(self._forms) > _MAX_KNOWN_SHAPES:
                    self._forms.clear()
                self._forms[shape] = self._format.form(line)
            form = self._forms[shape]
            if form is not None and (form in self.form_numbers or len(self.form_numbers) < _MAX_FORMS):
                numbers[shape] = self.form_numbers.setdefault(form, len(self.form_numbers))
        if not numbers:
            return {}
        database.assign_forms(numbers)
        forms = {number: form for form, number in self.form_numbers.items()}
        return {
            forms[number]: database.numbers(number, forms[number].numbers, rank_and_time_sql(forms[number]))
            for number in sorted(set(numbers.values()))
        }

    def _try_plan(
        self, database: LineDatabase, shapes: list[tuple[str, str, int]], form: LineForm, matched: Any
    ) -> None:
        """Keep a split plan for a form if it gives the matched values on every line that it fits."""
        _, line, count = max(shapes, key=lambda entry: entry[2])
        if count < _MIN_LINES_FOR_PLAN or len(self._plans) >= _MAX_PLANS:
            return
        plan = plan_split(line, form, self._format.form)
        if plan is None:
            return
        split = database.split(plan, self._wanted, keep=True)
        expected = matched.set_index("_n").reindex(split["_n"])
        if 2 * len(split) >= count and expected.equals(split.set_index("_n")):
            self._plans.append(plan)


def _apply_units(raw: RawRecords, form: LineForm, part: Any) -> None:
    """Scale the numbers of a part to the units of their columns."""
    raw.used_lines += len(part)
    for number in form.numbers:
        if number.scale not in (None, 1.0):
            part[number.key] *= number.scale
        raw.add_meaning(number.key, number.meaning, number.scale is not None)


def _as_validation(form: LineForm) -> LineForm:
    """Return the form of a validation line: its loss is ``val_loss``, and its times and rates are dropped."""
    numbers: list[LineNumber] = []
    losses = [number for number in form.numbers if number.meaning and number.meaning.field in ("loss", "val_loss")]
    best = min(losses, key=lambda number: number.meaning.preference if number.meaning else 0, default=None)
    for number in form.numbers:
        field_name = number.meaning.field if number.meaning else None
        if number is best:
            numbers.append(replace(number, key="val_loss", meaning=Meaning("val_loss", 0)))
        elif field_name in ("step", "epoch"):
            if number.key != "_position":  # the position within the validation
                numbers.append(number)
        elif field_name in (None, "loss", "val_loss") and not number.key.startswith("_"):
            numbers.append(replace(number, key=f"val_{number.key}", meaning=None))
    form = replace(form, numbers=tuple(numbers))
    return form if form.fields & METRICS else replace(form, numbers=())
