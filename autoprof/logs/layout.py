"""Lines that differ only in their numbers: ``a: 1 | b: 2``. Cut at what stands between the numbers, no expression run.

An expression that captures ten numbers of a long line costs ten times what it costs to cut the line. A layout is what
all lines of a form have besides their numbers; what does not fit it to the letter is left to the expressions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from .pairs import RANK_SQL, TIME_SQL, Form, Number, rank_of, time_s_of

SAME: Final = "0123456789 .+-█▏▎▍▌▋▊▉\t"
"""What may differ between two lines of a shape: numbers and the bar of a progress bar."""
_SEPARATORS: Final = (" | ", "|", ", ", "; ", " - ", "\t", "  ", ",")
_LONE: Final = re.compile(r"(?<![A-Za-z_\d.])\d")
"""A number that is no part of a name: it will be another one in the next line."""
_PROBES: Final = ("7", "-0.5", "12345.678", "2e-05", "1.000000E+00")
_NOT_FINITE: Final = ("nan", "NaN", "inf", "-inf")
_GROUP: Final = 4
"""Numbers looked for in one pass of an expression: measured to be the fastest on long lines."""

_Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Layout:
    """How lines of a form are cut: a query over ``lines`` that takes the expression of a record as its parameter.

    It gives ``_n``, the form's columns in their order, and ``ok``: whether the line fits.
    """

    form: Form
    query: str


def groups(numbers: Sequence[Number]) -> Iterator[list[Number]]:
    """Yield the numbers that one expression looks for: some that follow each other, or one that stands by itself."""
    group: list[Number] = []
    for number in numbers:
        if number.alone:
            yield [number]
            continue
        if len(group) == _GROUP:
            yield group
            group = []
        group.append(number)
    if group:
        yield group


def joined(group: Sequence[Number]) -> str:
    """Return the expression of a group."""
    anchor = [group[0].follows] if group[0].follows else []
    return ".*?".join([*anchor, *(number.pattern for number in group)])


def name_sql(name: str) -> str:
    """Return a name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def text_sql(text: str) -> str:
    """Return a text as it stands between SQL's quotes."""
    return text.replace("'", "''")


def texts_of(form: Form, of: str = "line") -> dict[str, str]:
    """Return what is read of a line besides its numbers: its rank and its time."""
    return ({"_rank": rank_of(of)} if form.has_rank else {}) | ({"_time": time_s_of(of)} if form.has_time else {})


def layout_of(line: str, form: Form, form_of: Callable[[str], Form | None]) -> Layout | None:
    """Find the layout of a line; None where most numbers do not stand by themselves between separators."""
    spans = _spans(line, form)
    if spans is None or len({number.key for number in spans}) < len(spans):
        return None
    cuts = [_Cut(line, form, spans, separator) for separator in _SEPARATORS if separator in line]
    best = max(cuts, key=lambda cut: len(cut.simple), default=None)
    if best is None or 2 * len(best.simple) < sum(not number.alone for number in spans):
        return None
    if not all(form_of(best.with_values(probe)) == form for probe in _PROBES):
        return None
    finite = not all(form_of(best.with_values(probe)) == form for probe in _NOT_FINITE)
    return Layout(form, best.query(finite))


def _spans(line: str, form: Form) -> dict[Number, _Span] | None:
    """Find where the numbers stand, as the engine does."""
    spans: dict[Number, _Span] = {}
    for group in groups(form.numbers):
        found = re.search(joined(group), line)
        if found is None:
            return None
        spans |= {number: found.span(at) for at, number in enumerate(group, 1)}
    return spans


class _Cut:
    """A line cut at a separator."""

    def __init__(self, line: str, form: Form, spans: dict[Number, _Span], separator: str) -> None:
        self._line, self._form, self._spans, self._separator = line, form, spans, separator
        self._pieces: list[_Span] = []
        start = 0
        for piece in line.split(separator):
            self._pieces.append((start, start + len(piece)))
            start += len(piece) + len(separator)
        self._numbers = [
            [number for number, (at, end) in spans.items() if start <= at and end <= stop]
            for start, stop in self._pieces
        ]
        self.simple = {numbers[0]: piece for piece, numbers in enumerate(self._numbers) if self._is_simple(piece)}

    def _is_simple(self, piece: int) -> bool:
        numbers = self._numbers[piece]
        if len(numbers) != 1 or numbers[0].alone or numbers[0].commas:
            return False
        before, after = self._around(numbers[0], piece)
        return not _LONE.search(before) and not _LONE.search(after)

    def _around(self, number: Number, piece: int) -> tuple[str, str]:
        (start, stop), (at, end) = self._pieces[piece], self._spans[number]
        return self._line[start:at], self._line[end:stop]

    def with_values(self, value: str) -> str:
        """Return the line with another value for each number that stands by itself."""
        line = self._line
        for at, end in sorted((self._spans[number] for number in self.simple), reverse=True):
            line = line[:at] + value + line[end:]
        return line

    def query(self, finite: bool) -> str:
        """Return the query: what each piece must be, and what its number is."""
        must, inner, columns = [], list[str](), dict[Number, str]()
        for piece, numbers in enumerate(self._numbers):
            of = f"p[{piece + 1}]"
            start, stop = self._pieces[piece]
            text = self._line[start:stop]
            if numbers and numbers[0] in self.simple:
                conditions, value = self._by_itself(numbers[0], piece)
                inner.append(f"{value} as v{piece}")
                must += [*conditions, f"not contains(v{piece}, '_')"]  # DuckDB reads 1_000 as a thousand
                columns[numbers[0]] = f"try_cast(v{piece} as double)"
            elif not re.search(r"\d", text):
                must.append(f"{of} = '{text_sql(text)}'")
            else:
                must.append(f"regexp_full_match({of}, '{_shape(text)}')")
                columns |= self._among_others(numbers, piece, inner)
        for number in self._form.numbers:  # one that stands across two pieces
            if number not in columns:
                inner.append(f"regexp_extract(line, '{text_sql(joined([number]))}', 1) as w{len(inner)}")
                columns[number] = _as_double(f"w{len(inner) - 1}", number)
        named = {number.key: columns[number] for group in groups(self._form.numbers) for number in group}
        named |= self._texts()
        outer = ", ".join(f"{value} as {name_sql(name)}" for name, value in named.items())
        must += [f"isfinite({name_sql(number.key)})" for number in self.simple] if finite else []
        must += [f"{name_sql(name)} is not null" for name in named]
        cut = f"select n, line, string_split(line, '{text_sql(self._separator)}') as p from lines"
        cut = f"{cut} where length(line) < 16384 and regexp_matches(line, ?) and not contains(line, chr(11))"
        parts = (
            f"select n, line, p{''.join(f', {part}' for part in inner)} from ({cut}) where len(p) = {len(self._pieces)}"
        )
        return f"select n as _n, {outer}, {' and '.join(must)} as ok from ({parts})"

    def _by_itself(self, number: Number, piece: int) -> tuple[list[str], str]:
        """Return what stands around a number, and the number's text."""
        before, after = self._around(number, piece)
        # One space is part of it: "iter5" is not "iter 5". More are padding.
        before = before.rstrip() + before[len(before.rstrip()) :][:1]
        after = after.strip(" ")
        of = f"p[{piece + 1}]"
        must = [f"starts_with({of}, '{text_sql(before)}')"] if before else []
        value = f"substr({of}, {len(before) + 1})"
        if after:
            of = f"rtrim({of}, ' ')"
            must.append(f"ends_with({of}, '{text_sql(after)}')")
            value = f"left(substr({of}, {len(before) + 1}), -{len(after)})"
        return must, value

    def _among_others(self, numbers: Sequence[Number], piece: int, inner: list[str]) -> dict[Number, str]:
        """Look for numbers in a piece by their expressions; the first is found behind the separator."""
        of = f"p[{piece + 1}]" if not piece else f"'{text_sql(self._separator)}' || p[{piece + 1}]"
        columns: dict[Number, str] = {}
        for order, group in enumerate(groups(numbers)):
            name = f"w{len(inner)}"
            fields = ",".join(f"'c{at}'" for at in range(len(group)))
            expression = joined(group) if order else ".*?".join(number.pattern for number in group)
            inner.append(f"regexp_extract({of}, '{text_sql(expression)}', [{fields}]) as {name}")
            columns |= {number: _as_double(f"{name}.c{at}", number) for at, number in enumerate(group)}
        return columns

    def _texts(self) -> dict[str, str]:
        """Return the rank and the time, read in the piece where they stand alone; else in the line."""
        found = {}
        for name, expression in (("_rank", RANK_SQL), ("_time", TIME_SQL)):
            place = re.search(expression, self._line)
            if name not in texts_of(self._form) or place is None:
                continue
            at = next((at for at, (start, stop) in enumerate(self._pieces) if start <= place.start() < stop), None)
            whole = at is not None and at not in self.simple.values() and place.end() <= self._pieces[at][1]
            found[name] = texts_of(self._form, f"p[{at + 1}]" if whole and at is not None else "line")[name]
        return found


def _shape(text: str) -> str:
    """Return what all texts of a shape match: a tenth of the time that it takes to take the numbers out."""
    gap = f"[{SAME.replace('-', '')}-]*"
    return gap + "".join(f"\\x{{{ord(sign):x}}}{gap}" for sign in text if sign not in SAME)


def _as_double(value: str, number: Number) -> str:
    value = f"replace({value}, ',', '')" if number.commas else value
    return f"try_cast({value} as double)"
