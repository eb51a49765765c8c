"""Millions of lines through DuckDB: a block of text in, numbers out. Memory is bounded by the block."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..errors import MissingExtra
from .layout import SAME, Layout, groups, joined, name_sql, text_sql
from .pairs import Number

if TYPE_CHECKING:
    import duckdb
    import pandas as pd

MEMORY_LIMIT: Final = "1GB"
"""Of the engine. A block of 8 MiB needs a tenth of it; the limit is for a line of a pathological length."""
TEXT: Final = "\x01text"
"""Behind a column's name: its values that are no numbers."""
SHAPES: Final = 20_000
"""Shapes of lines read in one block; a block of prose has as many as lines, and no record among them."""

_BEHIND_SOMETHING: Final = """create or replace temp table found as
with a as (select n, line, regexp_extract(line, '\\{.*\\}', 0) as p from found where p is null),
b as (select n, line, case when json_valid(p) then p else regexp_replace(regexp_replace(replace(p, '''', '"'),
      '\\bNone\\b', 'null', 'g'), '([:\\[,]\\s*)(-?(?:nan|inf))\\b', '\\1"\\2"', 'g') end as p from a)
select n, line, regexp_extract(line, '^[^{]*', 0) as prefix,
       case when starts_with(p, '{') and json_valid(p) then p end as p from b
union all select n, line, prefix, p from found where p is not null"""
"""Objects behind a prefix, and Python's dicts made JSON."""


class Engine:
    """One in-memory DuckDB with the lines of one block in it."""

    def __init__(self) -> None:
        self._db: duckdb.DuckDBPyConnection = _connect()
        self._shapes: dict[str, int] = {}

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    def load(self, block: str) -> int:
        """Take the lines of a block in place of those before; return how many are not empty."""
        self._db.execute(
            "create or replace temp table lines as select unnest(s) as line, generate_subscripts(s, 1) as n "
            "from (select string_split(?, chr(10)) as s)",
            [block],
        )
        # What DuckDB's trim() takes for empty; an expression stops at the first sign that is no space.
        return self._count(r"select count(*) from lines where regexp_matches(line, '[^\p{Zs}]')")

    def _count(self, query: str, arguments: Iterable[object] = ()) -> int:
        row = self._db.execute(query, list(arguments)).fetchone()
        return int(row[0]) if row else 0

    # Text ---------------------------------------------------------------------------------------------------------

    def cut(self, layout: Layout, record: str, keep: bool = False) -> pd.DataFrame:
        """Return what ``numbers`` would of the lines that have a layout, and take them away unless they are to stay."""
        self._db.execute(f"create or replace temp table cut as {layout.query}", [record])
        part = self._db.execute("select * exclude (ok) from cut where ok").df()
        if len(part) and not keep:
            self._db.execute(
                "create or replace temp table lines as select line, n from lines "
                "where n not in (select _n from cut where ok)"
            )
        return part

    def shapes(self, record: str) -> list[tuple[str, str, int]]:
        """Return each shape of the lines that match, one line of it, their number; the lines stay for ``numbers``."""
        self._db.execute(
            "create or replace temp table records as select n, line, translate(line, ?, '') as shape from lines "
            "where length(line) < 16384 and regexp_matches(line, ?)",
            [SAME, record],
        )
        return self._db.execute(
            "select shape, arg_min(line, n), count(*) from records group by shape "
            f"order by count(*) desc, min(n) limit {SHAPES}"  # ties too: columns stand in the order of the forms
        ).fetchall()

    def assign(self, forms: Mapping[str, int]) -> None:
        """Say which form each shape has."""
        shapes, numbers = list(forms), list(forms.values())
        self._db.execute(
            "create or replace temp table forms as select unnest(?::varchar[]) as shape, unnest(?::integer[]) as form",
            [shapes, numbers],
        )
        self._db.execute(
            "create or replace temp table formed as select n, line, form from records join forms using (shape)"
        )

    def numbers(self, form: int, numbers: Sequence[Number], texts: Mapping[str, str]) -> pd.DataFrame:
        """Return the numbers (and the ``texts``) of the lines of a form, a column for each, with ``_n``."""
        selected, outer = ["n as _n"], ["_n"]
        for at, group in enumerate(groups(numbers)):
            fields = ",".join(f"'c{index}'" for index in range(len(group)))
            selected.append(f"regexp_extract(line, '{text_sql(joined(group))}', [{fields}]) as g{at}")
            for index, number in enumerate(group):
                value = f"g{at}.c{index}"
                value = f"replace({value}, ',', '')" if number.commas else value
                outer.append(f"try_cast({value} as double) as {name_sql(number.key)}")
        for name, expression in texts.items():
            selected.append(f"{expression} as {name_sql(name)}")
            outer.append(name_sql(name))
        query = f"select {', '.join(outer)} from (select {', '.join(selected)} from formed where form = {form})"
        return self._db.execute(query).df()

    def groups(self, pattern: str, names: list[str]) -> pd.DataFrame:
        """Return what the named groups of a user's expression matched, as text, with ``_n``; RE2's syntax."""
        fields = ", ".join(f"g.{name_sql(f'c{at}')} as {name_sql(name)}" for at, name in enumerate(names))
        listed = ", ".join(f"'c{at}'" for at in range(len(names)))
        return self._db.execute(
            f"select n as _n, {fields} from (select n, regexp_extract(line, ?, [{listed}]) as g from lines "
            "where regexp_matches(line, ?))",
            [pattern, pattern],
        ).df()

    def lines(self) -> list[tuple[int, str]]:
        """Return the lines of the block, for what only Python can do."""
        return self._db.execute("select n, line from lines where trim(line) <> ''").fetchall()

    # JSON ---------------------------------------------------------------------------------------------------------

    def objects(self) -> list[tuple[str, str]]:
        """Find the JSON objects (and Python's dicts) in the lines; return each structure with one object of it."""
        self._db.execute(
            "create or replace temp table found as select n, line, '' as prefix, "
            "case when starts_with(line, '{') and json_valid(line) then line end as p from lines "
            "where contains(line, '{')"
        )
        if self._count("select count(*) from found where p is null"):
            self._db.execute(_BEHIND_SOMETHING)
        self._rescue()
        self._db.execute(
            "create or replace temp table objects as select n, p, prefix, cast(json_structure(p) as varchar) as s "
            "from found where p is not null"
        )
        # In the order of the lines: so stand the columns.
        return self._db.execute("select s, arg_min(p, n) from objects group by s order by min(n)").fetchall()

    def _rescue(self) -> None:
        """Read the lines with several objects, or with something behind one, that other ranks wrote into each other."""
        rows = self._db.execute(
            "select n, line from found where p is null and contains(line, '\"') limit 20000"
        ).fetchall()
        decoder = json.JSONDecoder()
        saved: list[tuple[int, str, str]] = []
        for n, line in rows:
            at = line.find("{")
            while at >= 0:
                try:
                    data, end = decoder.raw_decode(line, at)
                except ValueError:
                    end = at + 1
                else:
                    saved.append((n, line[:at].rpartition("}")[2], json.dumps(data)))
                at = line.find("{", end)
        if saved:
            columns = [list(column) for column in zip(*saved, strict=True)]
            self._db.execute(
                "insert into found select unnest(?::bigint[]), '', unnest(?::varchar[]), unnest(?::varchar[])", columns
            )

    def values(
        self, structures: list[str], paths: Mapping[str, str], texts: set[str], prefix: Mapping[str, str]
    ) -> pd.DataFrame:
        """Return the values of the objects of these structures: numbers; for ``texts`` also what is none, as text.

        ``paths`` are JSON pointers by column; the text of column ``a`` is column ``a`` with ``TEXT`` behind it.
        """
        pointers = ", ".join(f"'{text_sql(path)}'" for path in paths.values())
        outer = ["n as _n"]
        for at, name in enumerate(paths, 1):
            outer.append(f"try_cast(x[{at}] as double) as {name_sql(name)}")
            if name in texts:
                outer.append(
                    f"case when try_cast(x[{at}] as double) is null then x[{at}] end as {name_sql(name + TEXT)}"
                )
        outer += [f"{expression} as {name_sql(name)}" for name, expression in prefix.items()]
        return self._db.execute(
            f"select {', '.join(outer)} from (select n, prefix as line, json_extract_string(p, [{pointers}]) as x "
            "from objects where s in (select unnest(?::varchar[])))",
            [structures],
        ).df()


def _connect() -> Any:
    try:
        import duckdb
    except ImportError as error:
        raise MissingExtra("autoprof.logs: needs duckdb; pip install 'torch-autoprof[logs]'") from error
    # Order matters: lines are told apart by where they stand.
    db = duckdb.connect(":memory:", config={"memory_limit": MEMORY_LIMIT, "preserve_insertion_order": True})
    db.execute("set enable_progress_bar = false")  # it would write into the user's output
    return db


def need_pandas() -> Any:
    """Return pandas. Raises ``MissingExtra`` where it is not installed."""
    try:
        import pandas as pd
    except ImportError as error:
        raise MissingExtra("autoprof.logs: needs pandas; pip install 'torch-autoprof[logs]'") from error
    return pd


def parse_unique(column: Any, parse: Callable[[str], float]) -> Any:
    """Return a column of texts as numbers, each different text read once."""
    pd = need_pandas()
    codes, different = pd.factorize(column)
    values = [parse(str(text)) for text in different]
    return np.asarray([*values, np.nan], dtype="float64")[codes]  # the code of what is missing is -1
