"""Read the files of many ranks through DuckDB, from this machine, a shared file system or an object store.

The folder may be any path that DuckDB reads: ``runs/a``, ``s3://bucket/runs/a``, ``hf://…``. The queries are the same
for each; DuckDB loads its extension for the store, which finds the credentials.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ..errors import OutputError, import_extra
from ..frame import MODULE_PHASES
from .record import RANK_SCALARS

COLUMNS: Final = {
    "step": "BIGINT",
    "step_time_s": "DOUBLE",
    "duration_ns": "BIGINT",
    "device_duration_ns": "BIGINT",
    "start_unix_ns": "BIGINT",
    "warmup": "BOOLEAN",
    "overhead_ns": "BIGINT",
    "model_ns": f"STRUCT({', '.join(f'{phase} BIGINT' for phase in MODULE_PHASES)})",
    **dict.fromkeys(RANK_SCALARS, "DOUBLE"),
    "layout_id": "BIGINT",
    "layout": "JSON",
    "spans": "JSON",
    "spans_at": "BIGINT[]",
}
"""The keys of a line of ``steps.jsonl`` that are read, with their types in SQL; all others are skipped."""
_COLUMNS_TEXT: Final = ",\n                 ".join(f"{name}: '{kind}'" for name, kind in COLUMNS.items())
_MODEL_TEXT: Final = ", ".join(f"model_ns.{phase} AS model_{phase}" for phase in MODULE_PHASES)
HEADS: Final = f"""
SELECT filename, step, start_unix_ns, warmup, overhead_ns, {_MODEL_TEXT},
       {", ".join(RANK_SCALARS)},
       layout_id, layout, spans, spans_at[1] AS block, spans_at[2] AS place,
       device_duration_ns IS NOT NULL AS on_device,
       coalesce(device_duration_ns, duration_ns, round(step_time_s * 1e9)::BIGINT) AS step_ns
FROM read_json($files, format = 'newline_delimited', ignore_errors = true, filename = true,
               columns = {{
                 {_COLUMNS_TEXT}}})
"""
"""One row a line, in order; a line that is not JSON is a row of nulls."""
BLOBS: Final = "SELECT filename, content FROM read_blob($files)"
FILES: Final = "SELECT file FROM glob($pattern)"
MEMORY: Final = "768MB"
"""The memory that DuckDB may use; above it, DuckDB uses files."""

Column = npt.NDArray[Any]


class RankFiles:
    """The files of the ranks in one folder."""

    def __init__(self, folder: str, caller: str = "autoprof ranks") -> None:
        duckdb = import_extra("duckdb", "ranks", caller)
        self.folder = folder.rstrip("/") or "/"
        self._errors: tuple[type[Exception], ...] = (duckdb.Error,)
        self._connection = duckdb.connect(config={"memory_limit": MEMORY, "preserve_insertion_order": True})

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    @property
    def connection(self) -> Any:
        """The connection to DuckDB."""
        return self._connection

    def names(self) -> list[str]:
        """Return the paths of all files of ranks and of ``run.json``, below the folder. Raises ``OutputError``."""
        start = "".join(f"[{letter}]" if letter in "[*?" else letter for letter in self.folder)
        found: list[str] = []
        try:
            for pattern, parts in (("run.json", 1), ("rank*/*", 2)):
                paths = self._connection.execute(FILES, {"pattern": f"{start}/{pattern}"}).fetchall()
                found += [_tail(path, parts) for (path,) in paths]
        except self._errors as error:
            raise OutputError(
                f"{self.folder}: DuckDB cannot list it ({_first_line(error)}); allowed: the folder of a run, here or "
                "at an address that DuckDB reads, such as s3://bucket/run"
            ) from error
        return found

    def heads(self, names: Sequence[str]) -> tuple[dict[str, Column], dict[str, str]]:
        """Return the columns of the lines of some files, in order, and the files that cannot be read, with the reason.

        A value that a line lacks is -1, NaN, False or None.
        """
        return self._read(names, self._fetch_heads, _join)

    def blobs(self, names: Sequence[str]) -> tuple[dict[str, bytes], dict[str, str]]:
        """Return the content of files by name, and the files that cannot be read, with the reason."""
        found, failed = self._read(
            names, self._fetch_blobs, lambda parts: {k: v for one in parts for k, v in one.items()}
        )
        return found, {**dict.fromkeys(set(names) - found.keys(), "is missing"), **failed}

    def json(self, names: Sequence[str]) -> tuple[dict[str, Mapping[str, Any]], dict[str, str]]:
        """Return the objects of JSON files by name, and the files that are none, with the reason."""
        contents, failed = self.blobs(names)
        found: dict[str, Mapping[str, Any]] = {}
        for name, content in contents.items():
            try:
                data = json.loads(content)
                if not isinstance(data, dict):
                    raise ValueError("it is not an object")
                found[name] = data
            except (ValueError, RecursionError) as error:
                failed[name] = f"is not JSON ({error})"
        return found, failed

    def _read(self, names: Sequence[str], fetch: Any, join: Any) -> tuple[Any, dict[str, str]]:
        """Fetch all files at once; where that fails, one by one, to know which of them cannot be read."""
        if not names:
            return join([]), {}
        try:
            return join([fetch(names)]), {}
        except self._errors:
            parts, failed = [], {}
        for name in names:
            try:
                parts.append(fetch([name]))
            except self._errors as error:
                failed[name] = f"cannot be read ({_first_line(error)})"
        return join(parts), failed

    def _fetch_heads(self, names: Sequence[str]) -> dict[str, Column]:
        found = self._connection.execute(HEADS, {"files": self._paths(names)}).fetchnumpy()
        columns = {name: _filled(column) for name, column in found.items()}
        columns["filename"] = _names(columns["filename"].tolist(), names)
        return columns

    def _fetch_blobs(self, names: Sequence[str]) -> dict[str, bytes]:
        rows = self._connection.execute(BLOBS, {"files": self._paths(names)}).fetchall()
        return dict(zip(_names([path for path, _ in rows], names), (content for _, content in rows), strict=True))

    def _paths(self, names: Sequence[str]) -> list[str]:
        return [f"{self.folder}/{name}" for name in names]


def _join(parts: list[dict[str, Column]]) -> dict[str, Column]:
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([part[name] for part in parts]) for name in (parts[0] if parts else ())}


def _filled(column: Any) -> Column:
    """Return a column of DuckDB with -1, NaN, False or None in the place of null."""
    if not np.ma.isMaskedArray(column):
        return np.asarray(column)
    missing = column.mask | np.zeros(len(column), dtype=bool)
    values = column.data.copy()
    values[missing] = {"O": None, "b": False, "f": np.nan}.get(values.dtype.kind, -1)
    return np.asarray(values)


def _tail(path: str, parts: int) -> str:
    """Return the last components of a path, which may be spelt otherwise than it was given."""
    return "/".join(path.replace("\\", "/").split("/")[-parts:])


def _names(paths: Sequence[str], names: Sequence[str]) -> Column:
    """Return the names of the files that DuckDB read: of each path the one that was asked for."""
    asked = set(names)
    known: dict[str, str] = {}
    for path in paths:
        if path not in known:
            known[path] = next(tail for parts in (2, 1) if (tail := _tail(path, parts)) in asked)
    return np.array([known[path] for path in paths], dtype=object)


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
