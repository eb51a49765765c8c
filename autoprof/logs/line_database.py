"""Millions of lines through DuckDB: one block of text in, columns of numbers out. The block bounds the memory."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from .extras import import_duckdb
from .line_forms import LineNumber
from .line_splitting import VARIABLE_CHARACTERS, SplitPlan, group_numbers, group_pattern, quote_name, quote_text

if TYPE_CHECKING:
    import duckdb
    import pandas as pd

MEMORY_LIMIT: Final = "1GB"
"""Of DuckDB. A block of 8 MiB needs a tenth of it; the limit is for a line of extreme length."""
TEXT_SUFFIX: Final = "\x01text"
"""Follows a column's name: the column of its values that are not numbers."""
MAX_SHAPES: Final = 20_000
"""Shapes of lines read in one block. A block of prose has as many shapes as lines, and no record."""
_MAX_TORN_LINES: Final = 20_000

_FIND_BEHIND_PREFIX: Final = """create or replace temp table found as
with a as (select n, line, regexp_extract(line, '\\{.*\\}', 0) as p from found where p is null),
b as (select n, line, case when json_valid(p) then p else regexp_replace(regexp_replace(replace(p, '''', '"'),
      '\\bNone\\b', 'null', 'g'), '([:\\[,]\\s*)(-?(?:nan|inf))\\b', '\\1"\\2"', 'g') end as p from a)
select n, line, regexp_extract(line, '^[^{]*', 0) as prefix,
       case when starts_with(p, '{') and json_valid(p) then p end as p from b
union all select n, line, prefix, p from found where p is not null"""
"""Finds objects behind a prefix, and rewrites Python's dicts as JSON."""


class LineDatabase:
    """An in-memory DuckDB that holds the lines of one block in the table ``lines(line, n)``."""

    def __init__(self) -> None:
        # Records are matched by line number, so the order of lines must be kept.
        config = {"memory_limit": MEMORY_LIMIT, "preserve_insertion_order": True}
        self._db: duckdb.DuckDBPyConnection = import_duckdb().connect(":memory:", config=config)
        self._db.execute("set enable_progress_bar = false")  # it would write into the user's output

    def __enter__(self) -> LineDatabase:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    def load(self, block: str) -> int:
        """Replace the lines by those of a block; return how many are not empty."""
        self._db.execute(
            "create or replace temp table lines as select unnest(s) as line, generate_subscripts(s, 1) as n "
            "from (select string_split(?, chr(10)) as s)",
            [block],
        )
        # Spaces as in DuckDB's trim(); a regular expression stops at the first other character, trim() does not.
        return self._count(r"select count(*) from lines where regexp_matches(line, '[^\p{Zs}]')")

    def _count(self, query: str, arguments: Iterable[object] = ()) -> int:
        row = self._db.execute(query, list(arguments)).fetchone()
        return int(row[0]) if row else 0

    # Text ---------------------------------------------------------------------------------------------------------

    def split(self, plan: SplitPlan, record: str, keep: bool = False) -> pd.DataFrame:
        """Return the numbers of the lines that a plan fits, as ``numbers`` does; remove the lines unless ``keep``."""
        self._db.execute(f"create or replace temp table split as {plan.query}", [record])
        part = self._db.execute("select * exclude (fits) from split where fits").df()
        if len(part) and not keep:
            self._db.execute(
                "create or replace temp table lines as select line, n from lines "
                "where n not in (select _n from split where fits)"
            )
        return part

    def shapes(self, record: str) -> list[tuple[str, str, int]]:
        """Return each shape of the lines that match ``record``, with its first line and the number of its lines.

        The shape of a line is its text without ``VARIABLE_CHARACTERS``.
        """
        self._db.execute(
            "create or replace temp table records as select n, line, translate(line, ?, '') as shape from lines "
            "where length(line) < 16384 and regexp_matches(line, ?)",
            [VARIABLE_CHARACTERS, record],
        )
        return self._db.execute(
            "select shape, arg_min(line, n), count(*) from records group by shape "
            f"order by count(*) desc, min(n) limit {MAX_SHAPES}"  # unique order: it decides the order of the columns
        ).fetchall()

    def assign_forms(self, forms: Mapping[str, int]) -> None:
        """Set the form of each shape, by number."""
        shapes, numbers = list(forms), list(forms.values())
        self._db.execute(
            "create or replace temp table forms as select unnest(?::varchar[]) as shape, unnest(?::integer[]) as form",
            [shapes, numbers],
        )
        self._db.execute(
            "create or replace temp table formed as select n, line, form from records join forms using (shape)"
        )

    def numbers(self, form: int, numbers: Sequence[LineNumber], texts: Mapping[str, str]) -> pd.DataFrame:
        """Return the numbers of the lines of a form, a column each, with ``_n``; ``texts`` are further expressions."""
        selected, outer = ["n as _n"], ["_n"]
        for at, group in enumerate(group_numbers(numbers)):
            fields = ",".join(f"'c{index}'" for index in range(len(group)))
            selected.append(f"regexp_extract(line, '{quote_text(group_pattern(group))}', [{fields}]) as g{at}")
            for index, number in enumerate(group):
                value = f"g{at}.c{index}"
                value = f"replace({value}, ',', '')" if number.has_commas else value
                outer.append(f"try_cast({value} as double) as {quote_name(number.key)}")
        for name, expression in texts.items():
            selected.append(f"{expression} as {quote_name(name)}")
            outer.append(quote_name(name))
        query = f"select {', '.join(outer)} from (select {', '.join(selected)} from formed where form = {form})"
        return self._db.execute(query).df()

    def named_groups(self, pattern: str, names: list[str]) -> pd.DataFrame:
        """Return the texts of the named groups of a user's expression (RE2's syntax), a column each, with ``_n``."""
        fields = ", ".join(f"g.{quote_name(f'c{at}')} as {quote_name(name)}" for at, name in enumerate(names))
        listed = ", ".join(f"'c{at}'" for at in range(len(names)))
        return self._db.execute(
            f"select n as _n, {fields} from (select n, regexp_extract(line, ?, [{listed}]) as g from lines "
            "where regexp_matches(line, ?))",
            [pattern, pattern],
        ).df()

    def lines(self) -> list[tuple[int, str]]:
        """Return the number and the text of each line that is not empty."""
        return self._db.execute("select n, line from lines where trim(line) <> ''").fetchall()

    # JSON ---------------------------------------------------------------------------------------------------------

    def objects(self) -> list[tuple[str, str]]:
        """Find the JSON objects (and Python's dicts) in the lines; return each structure with its first object."""
        self._db.execute(
            "create or replace temp table found as select n, line, '' as prefix, "
            "case when starts_with(line, '{') and json_valid(line) then line end as p from lines "
            "where contains(line, '{')"
        )
        if self._count("select count(*) from found where p is null"):
            self._db.execute(_FIND_BEHIND_PREFIX)
        self._find_in_torn_lines()
        self._db.execute(
            "create or replace temp table objects as select n, p, prefix, cast(json_structure(p) as varchar) as s "
            "from found where p is not null"
        )
        # The order of the lines decides the order of the columns.
        return self._db.execute("select s, arg_min(p, n) from objects group by s order by min(n)").fetchall()

    def _find_in_torn_lines(self) -> None:
        """Find the objects in lines with several objects, as ranks that share a file write them."""
        rows = self._db.execute(
            f"select n, line from found where p is null and contains(line, '\"') limit {_MAX_TORN_LINES}"
        ).fetchall()
        decoder = json.JSONDecoder()
        found: list[tuple[int, str, str]] = []
        for n, line in rows:
            at = line.find("{")
            while at >= 0:
                try:
                    data, end = decoder.raw_decode(line, at)
                except ValueError:
                    end = at + 1
                else:
                    found.append((n, line[:at].rpartition("}")[2], json.dumps(data)))
                at = line.find("{", end)
        if found:
            columns = [list(column) for column in zip(*found, strict=True)]
            self._db.execute(
                "insert into found select unnest(?::bigint[]), '', unnest(?::varchar[]), unnest(?::varchar[])", columns
            )

    def values(
        self, structures: list[str], pointers: Mapping[str, str], keys_with_text: set[str], prefix: Mapping[str, str]
    ) -> pd.DataFrame:
        """Return the values of all objects with one of these structures as numbers, a column per key, with ``_n``.

        ``pointers`` are JSON pointers by key. For ``keys_with_text`` a second column, named key + ``TEXT_SUFFIX``, has
        the values that are no numbers. ``prefix`` are expressions on the text before the object, by column.
        """
        listed = ", ".join(f"'{quote_text(pointer)}'" for pointer in pointers.values())
        outer = ["n as _n"]
        for at, key in enumerate(pointers, 1):
            outer.append(f"try_cast(x[{at}] as double) as {quote_name(key)}")
            if key in keys_with_text:
                outer.append(
                    f"case when try_cast(x[{at}] as double) is null then x[{at}] end as {quote_name(key + TEXT_SUFFIX)}"
                )
        outer += [f"{expression} as {quote_name(name)}" for name, expression in prefix.items()]
        return self._db.execute(
            f"select {', '.join(outer)} from (select n, prefix as line, json_extract_string(p, [{listed}]) as x "
            "from objects where s in (select unnest(?::varchar[])))",
            [structures],
        ).df()
