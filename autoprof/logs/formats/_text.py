"""The shared reader of text logs: names and numbers in lines, with any text between them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np

from ..line_forms import COUNTERS, NUMBER_IN_LINE, FormatHints, LineForm, parse_line, plain_line, section_of
from ..line_pattern import compile_line
from ..log_file import LogFile
from ._base import Floats, LogFormat, RawRecords, append_part, cut_note, note_qualified

_QUOTED_KEY: Final = re.compile(r"\{\s*[\"'][^{}]*[\"']\s*:")
"""A JSON object in a line: such lines belong to the JSON formats."""
_MAX_LINE: Final = 16384
_MAX_HEADER: Final = 60
"""A longer line about an epoch is a sentence."""
_MAX_LINES_OF_SINGLES: Final = 4
"""Lines of a file in which no record has the form of another, above which they are sentences of a text."""
_MIN_TURNS: Final = 3
_MAX_LINES_BEHIND: Final = 8
"""Lines between a line with a counter and one that belongs to its record."""
_MAX_FORMS: Final = 400
"""Forms read from one file; real logs have ten."""
_CUT_EXPONENT: Final = re.compile(r"[eE][-+]?\ufffd?")
_MAX_PATTERNS: Final = 4
"""Shapes with an expression: each line is compared with all of them."""
_FREQUENT: Final = 16
"""Lines of a shape before it has an expression."""
_MAX_KNOWN_SHAPES: Final = 100_000
"""Shapes remembered: a log of prose must not fill the memory."""


@dataclass(frozen=True, kw_only=True)
class TextFormat(LogFormat):
    """A format of text lines with names and numbers."""

    record: str
    """Matches the lines of records."""
    attached: str | None = None
    """Matches lines without a step that belong to the step before them."""
    hints: FormatHints = field(default_factory=FormatHints)
    unnamed: tuple[tuple[str, str], ...] = ()
    """Numbers without a name: an expression with one group, and the column."""
    secondary_counter: str | None = None
    """The key of a counter that is used only in a log without the key ``step``."""
    weight: float = 1.0
    """The score per record; above 1 for a format that is more specific than another with the same lines."""
    needs_step: bool = True
    """False: a line with a loss is a record even without a step."""
    joins_lines: bool = False
    """Whether lines without a counter, one behind each line with a counter, belong to its record."""

    @cached_property
    def _compiled(self) -> tuple[re.Pattern[str], re.Pattern[str] | None]:
        return re.compile(self.record), re.compile(self.attached) if self.attached else None

    def score(self, sample: Sequence[str]) -> float:
        """Return the number of records in the sample, multiplied by ``weight``."""
        record, _ = self._compiled
        known: dict[str, LineForm | None] = {}
        count: dict[LineForm, int] = {}
        for text in sample:
            if len(text) < _MAX_LINE and record.search(text) and not _QUOTED_KEY.search(text):
                line = plain_line(text)
                shape = _shape(NUMBER_IN_LINE.split(line))
                if shape not in known:
                    known[shape] = self.form(line)
                form = known[shape]
                if form is not None:
                    count[form] = count.get(form, 0) + 1
        count = {form: times for form, times in count.items() if not form.is_header}
        lines = sum(1 for line in sample if line.strip())
        if max(count.values(), default=0) < 2 and lines > _MAX_LINES_OF_SINGLES:
            return 0.0  # single sentences of a text
        return self.weight * sum(times for form, times in count.items() if form.is_record or times > 1)

    def read(self, log_file: LogFile) -> RawRecords:
        """Read the file block by block: a new shape of a line is parsed, further lines are split at their numbers."""
        raw, reader = RawRecords(self.name), _FormReader(self)
        offset = 0
        for block in log_file.blocks():
            lines = block.split("\n")
            raw.lines += sum(1 for line in lines if line and not line.isspace())
            reader.read(lines, offset)
            offset += len(lines)
        reader.finish(raw, is_cut=not log_file.ends_with_newline, last_line=offset)
        if self.secondary_counter is not None and "step" in raw.keys:
            raw.drop(self.secondary_counter)
        raw.spoiled_by_validation |= self.hints.spoiled_by_validation
        return raw

    def form(self, line: str) -> LineForm | None:
        """Return the form of a line that ``plain_line`` returned; None if it is no record."""
        form = parse_line(line, self.hints, self.unnamed)
        if form.is_record or form.is_numeric_record or (not self.needs_step and "loss" in form.fields):
            return form
        attached = self._compiled[1]
        if attached is not None and attached.search(line) and form.numbers:
            return form
        if form.is_validation and "val_loss" in form.fields:
            return form
        return form if form.is_header and len(line) < _MAX_HEADER else None

    def form_is_record(self, form: LineForm) -> bool:
        """Return whether the lines of a form are records of their own."""
        return form.is_record or form.is_numeric_record or (not self.needs_step and "loss" in form.fields)

    def is_wanted(self, line: str) -> bool:
        """Return whether a line can be a record, by its text."""
        record, attached = self._compiled
        return record.search(line) is not None or (attached is not None and attached.search(line) is not None)


class _FormRows:
    """The lines of one form: their numbers, in columns."""

    def __init__(self, form: LineForm) -> None:
        self.form = form
        self.line_numbers: list[float] = []
        self.parts: list[dict[str, Floats]] = []
        self.rows: list[Sequence[str]] = []
        self.at: list[int] = []
        self.count = 0
        self.recent: list[str] = []
        """The last number of the latest lines but one."""

    def settle(self) -> None:
        """Convert the texts of the block to numbers."""
        if self.rows:
            self.recent = [*self.recent, *(row[-1] for row in self.rows[-20:])][-20:]
            append_part(self.parts, _columns(self.form, self.rows, self.at))
            self.count += len(self.rows)
            self.rows, self.at = [], []


class _FormReader:
    """Reads the blocks of one file; remembers the forms of its lines."""

    def __init__(self, log_format: TextFormat) -> None:
        self._format = log_format
        self._shapes: dict[str, _FormRows | None] = {}
        """By shape; None for a shape that is no record."""
        self._forms: dict[LineForm, _FormRows] = {}
        self._last: tuple[_FormRows, str] | None = None
        self._dropped = 0
        self._patterns: list[tuple[re.Pattern[str], _FormRows]] = []
        """Expressions for the most frequent shapes."""
        self._uses: dict[str, int] = {}
        """How often each shape was split at its numbers."""
        self._sections: list[tuple[int, bool]] = []
        """The numbers of the lines that begin a validation (True) or end it."""
        self._section_of_shape: dict[str, bool | None] = {}

    def read(self, lines: Sequence[str], offset: int) -> None:
        """Read the lines of a block; ``offset`` is the number of lines before it."""
        patterns = self._patterns
        for n, text in enumerate(lines, offset + 1):
            if len(text) >= _MAX_LINE:
                continue
            for pattern, rows in patterns:
                found = pattern.fullmatch(text)
                if found is not None:
                    rows.rows.append(found.groups())
                    rows.at.append(n)
                    self._last = rows, text
                    break
            else:
                self._split(text, n)
        for form_rows in self._forms.values():
            form_rows.settle()

    def _split(self, text: str, n: int) -> None:
        """Read a line by splitting it at its numbers; make an expression for a shape that is frequent."""
        line = plain_line(text)
        pieces = NUMBER_IN_LINE.split(line)
        if len(pieces) < 2:
            self._note_section(n, section_of(line))
            return
        shape = "\0".join(pieces[::2])
        try:
            rows = self._shapes[shape]
        except KeyError:
            is_wanted = self._format.is_wanted(text) and not _QUOTED_KEY.search(text)
            rows = self._shapes[shape] = self._rows_of(line) if is_wanted else None
            if rows is None or not rows.form.is_record:
                self._section_of_shape[shape] = section_of(line)
            if len(self._shapes) > _MAX_KNOWN_SHAPES:
                self._shapes.clear()
                self._uses.clear()
                self._section_of_shape.clear()
        if shape in self._section_of_shape:
            self._note_section(n, self._section_of_shape[shape])
        if rows is None:
            return
        rows.rows.append(pieces[1::2])
        rows.at.append(n)
        self._last = rows, text
        if len(self._patterns) < _MAX_PATTERNS and " ".join(text.split()) == line:
            uses = self._uses[shape] = self._uses.get(shape, 0) + 1
            pattern = compile_line(pieces) if uses == _FREQUENT else None
            if pattern is not None:
                self._patterns.append((pattern, rows))

    def _note_section(self, n: int, begins_validation: bool | None) -> None:
        """Note a line that begins or ends a validation."""
        if begins_validation is not None and begins_validation != (self._sections[-1][1] if self._sections else False):
            self._sections.append((n, begins_validation))

    def _add_sections(self, part: dict[str, Floats]) -> None:
        """Note which lines stand below one that begins a validation."""
        if self._sections:
            at = np.searchsorted([n for n, _ in self._sections], part["_n"]) - 1
            part["_section"] = np.where(at >= 0, np.array([is_val for _, is_val in self._sections])[at], False) * 1.0

    def _rows_of(self, line: str) -> _FormRows | None:
        form = self._format.form(line) or self._loose_form(line)
        if form is None or (form not in self._forms and len(self._forms) >= _MAX_FORMS):
            return None
        return self._forms.setdefault(form, _FormRows(form))

    def _loose_form(self, line: str) -> LineForm | None:
        """Return the form of a line that may belong to the record of the line before it."""
        if not self._format.joins_lines:
            return None
        form = parse_line(line, self._format.hints, self._format.unnamed)
        return form if form.is_loose else None

    def _drop_loose(self) -> None:
        """Keep the forms without a counter whose lines take turns with those of one form with a counter."""
        if not self._format.joins_lines:
            return
        loose = {form for form in self._forms if form.is_loose and not self._format.form_is_record(form)}
        counted = [rows for form, rows in self._forms.items() if form not in loose and not form.is_header]
        main = max(counted, key=lambda rows: rows.count, default=None)
        for form in loose:
            rows = self._forms[form]
            if main is None or not rows.count or form.fields & main.form.fields or not _take_turns(main, rows):
                del self._forms[form]

    def finish(self, raw: RawRecords, is_cut: bool, last_line: int) -> None:
        """Append all records. ``is_cut`` says that the last line has no end, so that its last number may be cut."""
        self._drop_loose()
        if self._is_prose(raw):
            return
        self._settle_tasks()
        if any(rows.form.is_record for rows in self._forms.values()):
            self._forms = {form: rows for form, rows in self._forms.items() if not form.is_settings}
        for number, rows in enumerate(self._forms.values()):
            form = rows.form
            if not rows.count or (
                rows.count < 2 and not form.is_record and not form.is_validation and len(self._forms) > 1
            ):
                continue  # one line with a counter and unknown numbers: a setting, a summary
            if is_cut and self._last is not None and self._last[0] is rows:
                _drop_cut_number(rows, plain_line(self._last[1]), raw, last_line, len(self._forms) > 1)
            _drop_uncertain_counter(rows)
            if form.is_header:
                for part in rows.parts:
                    part["_header"] = np.ones(len(part["_n"]))
            used = sum(_keep_results(part, form) for part in rows.parts)
            raw.used_lines += used
            raw.has_bars |= form.is_bar
            self._dropped += rows.count - used
            for part in rows.parts:
                part["_validation"] = np.full(len(part["_n"]), float(form.is_validation))
                self._add_sections(part)
                raw.add(part, kind=number, is_owned=True)
            for line_number in form.numbers:
                raw.add_meaning(line_number.key, line_number.meaning, line_number.unit_known)
        if self._dropped:
            raw.notes.append(f"lines about the progress of a validation or an epoch, not used: {self._dropped}")
        note_qualified(raw, self._format.hints)

    def _settle_tasks(self) -> None:
        """Use the numbers before the lines as ranks if the tasks take turns; else they are unknown."""
        parts = [part for rows in self._forms.values() for part in rows.parts if "_task" in part]
        if not parts:
            return
        lines = np.concatenate([part["_n"] for part in parts])
        tasks = np.concatenate([part["_task"] for part in parts])[np.argsort(lines)]
        take_turns = bool((np.diff(tasks) < 0).any() and (np.diff(tasks) > 0).any())
        for part in parts:
            task = part.pop("_task")
            if take_turns and "_rank" not in part:
                part["_rank"] = task

    def _is_prose(self, raw: RawRecords) -> bool:
        """Return whether the lines with numbers are single sentences of a text, such as a README."""
        counts = [rows.count for rows in self._forms.values() if not rows.form.is_header]
        return max(counts, default=0) < 2 and raw.lines > _MAX_LINES_OF_SINGLES


def _take_turns(main: _FormRows, loose: _FormRows) -> bool:
    """Return whether a line of ``loose`` stands behind each line of ``main``, and none before the first."""
    at = np.concatenate([part["_n"] for part in main.parts])
    own = np.concatenate([part["_n"] for part in loose.parts])
    if len(own) < _MIN_TURNS or own[0] < at[0]:
        return False
    turn = np.searchsorted(at, own)
    is_near = own - at[turn - 1] <= _MAX_LINES_BEHIND
    return bool(len(np.unique(turn)) == len(turn) >= 0.8 * len(at) and is_near.all())


def _drop_uncertain_counter(rows: _FormRows) -> None:
    """Drop a number without a name and without a total that does not grow: it is no counter."""
    if not any("_position" in part and "_of" not in part for part in rows.parts):
        return
    values = np.concatenate([part["_position"] for part in rows.parts])
    if len(values) > 1 and not ((np.diff(values) >= 0).all() and values[-1] > values[0]):
        for part in rows.parts:
            del part["_position"]


def _keep_results(part: dict[str, Floats], form: LineForm) -> int:
    """Keep only the last line of each mean so far; return the number of lines kept.

    That is a validation that is logged batch by batch, and an epoch of Keras' bar.
    """
    if form.is_epoch_so_far and {"_position", "_of"} <= part.keys():
        done = part["_position"] >= part["_of"]
        for key in list(part):
            part[key] = part[key][done]
        return int(done.sum())
    if "_val_position" not in part:
        return len(part["_n"])
    total = part.pop("_val_of", None)
    position = part.pop("_val_position")
    keep = position >= (total - 1 if total is not None else np.inf)
    for key in list(part):
        part[key] = part[key][keep]
        if "loss" in key:  # of the last batch, or the mean of all: not certain
            del part[key]
    return int(keep.sum())


def _shape(pieces: list[str]) -> str:
    return "\0".join(pieces[::2])


def _columns(form: LineForm, rows: Sequence[Sequence[str]], at: Sequence[int]) -> dict[str, Floats]:
    """Return the numbers of lines of one form, a column each, in the units of their columns."""
    columns: dict[str, Floats] = {"_n": np.asarray(at, dtype=np.float64)}
    for number in form.numbers:
        total: Any = 0.0
        for index, factor in number.parts:
            values = to_floats([row[index] for row in rows])
            total = total + (values * factor if factor != 1.0 else values)
        columns[number.key] = total
    if form.rank is not None:
        columns["_rank"] = to_floats([row[form.rank] for row in rows])
    elif form.rank_value is not None:
        columns["_rank"] = np.full(len(rows), float(form.rank_value))
    if form.date:
        columns["_time"] = _to_seconds([[row[index] for row in rows] for index in form.date])
    return columns


def to_floats(texts: list[str]) -> Floats:
    """Convert texts that ``NUMBER_IN_LINE`` matched."""
    try:
        return np.array(texts, dtype=np.float64)
    except ValueError:
        return np.array([float(text.replace(",", "")) for text in texts], dtype=np.float64)


def _to_seconds(parts: list[list[str]]) -> Floats:
    """Convert the texts of year, month, day, hour, minute and second to seconds since 1970."""
    year, month, day, hour, minute = (to_floats(texts) for texts in parts[:5])
    second = to_floats([text.replace(",", ".") for text in parts[5]])
    months = ((year - 1970) * 12 + month - 1).astype("int64").astype("datetime64[M]")
    days = months.astype("datetime64[D]").astype("int64") + day - 1
    return np.asarray(days * 86400 + hour * 3600 + minute * 60 + second, dtype=np.float64)


def _drop_cut_number(rows: _FormRows, line: str, raw: RawRecords, last_line: int, has_others: bool) -> None:
    """Drop the last number of the file's last line if it may be the beginning of a longer one, or its unit may be.

    ``has_others`` says whether lines have other forms.
    """
    last = rows.parts[-1]
    found = list(NUMBER_IN_LINE.finditer(line))
    if last["_n"][-1] != last_line:
        return
    after = line[found[-1].end() :]
    is_new = has_others and rows.count == 1  # ``12m`` of ``12ms`` has a form of its own
    if after and not is_new and not _CUT_EXPONENT.fullmatch(after):
        return
    index = len(found) - 1
    endings = {_ending(text) for text in rows.recent[:-1]}
    if not after and len(endings) == 1 and "." in next(iter(endings)) and _ending(found[-1][0]) in endings:
        return  # as many decimals as every line before
    for number in rows.form.numbers:
        if any(part[0] == index for part in number.parts):
            raw.notes.append(cut_note(number.key))
            if number.field in COUNTERS:  # the values of the line belong to an unknown step
                rows.parts[-1] = {key: values[:-1] for key, values in last.items()}
                rows.count -= 1
                return
            last[number.key][-1] = np.nan


def _ending(text: str) -> str:
    """Return the decimals and the exponent of a number, without regard to their digits."""
    return re.sub(r"\d", "0", text[text.find(".") :]) if "." in text else ""
