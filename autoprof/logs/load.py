"""``load_logs``: any log of a training, or several, as one table."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..errors import AutoprofError, nearest
from .engine import Engine, need_pandas
from .fields import FIELDS
from .readers import READERS, Pattern, Reader, detect
from .source import Source, find_files
from .table import Built

if TYPE_CHECKING:
    import pandas as pd
    from rich.progress import Progress

_BAR_FROM_BYTES: Final = 16 << 20
"""Smaller files are read before a bar could be read."""
_CHECKPOINT: Final = re.compile(r"^checkpoint-(\d+)$")

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


def load_logs(
    path: Paths, *, pattern: str | None = None, reader: str | None = None, progress: bool | None = None
) -> pd.DataFrame:
    """Read a log, or several, into one table: a row a step (and rank), known columns under one name and in one unit.

    ``path`` is a file, a folder, a pattern with ``*``, or several of them; a file's kind is told by its content.
    ``pattern`` is a regular expression whose named groups are columns; ``reader`` is the name of a kind, where the
    guess is wrong. ``progress`` shows a bar (None: for long files, on a terminal). ``df.attrs`` has ``units``, and
    ``files`` with what was read, skipped and assumed. Raises ``AutoprofError`` for what is no log, ``MissingExtra``.
    """
    pd = need_pandas()
    given = [path] if isinstance(path, (str, os.PathLike)) else list(path)
    chosen = _choose(pattern, reader)
    files = [file for entry in given for file in find_files(entry)]
    if not files:
        raise AutoprofError(
            f"{', '.join(map(str, given))}: there is no file in it; allowed: a log file or a folder with some"
        )
    read: list[tuple[Path, Any]] = []
    said: list[dict[str, Any]] = []
    unread: list[str] = []
    known = _leave_out_doubles(list(dict.fromkeys(files)))
    with _bar(known, progress) as advance, Engine() as engine:
        for file in known:
            built = _read(Source(file, advance), chosen, engine, said)
            if built is None:
                unread.append(str(file))
                continue
            read.append((file, built.frame))
    if not read:
        raise AutoprofError(_nothing(given, unread, pattern))
    runs = _run_names([file for file, _ in read])
    tables = [_label(table, file, runs[file]) for file, table in read]
    frame = pd.concat(tables, ignore_index=True) if len(tables) > 1 else tables[0]
    frame["run"] = frame["run"].astype("category")
    units = {name: FIELDS[name].unit for name in frame.columns if name in FIELDS and FIELDS[name].unit}
    units |= {name: "%" for name in frame.columns if str(name).startswith("gpu_util_")}
    frame.attrs = {"units": units, "files": said, "unread": unread}
    return frame


def _choose(pattern: str | None, reader: str | None) -> Reader | None:
    if pattern is not None:
        return Pattern(pattern)
    if reader is None:
        return None
    names = {entry.name: entry for entry in READERS}
    if reader not in names:
        raise AutoprofError(f"reader: {reader!r} is no kind of log; {nearest(reader, names)}")
    return names[reader]


def _read(source: Source, chosen: Reader | None, engine: Engine, said: list[dict[str, Any]]) -> Built | None:
    if not source.is_text():
        return None
    reader = chosen if chosen is not None else detect(source)
    if reader is None:
        return None
    raw = reader.read(source, engine)
    built = Built(raw)
    if not len(built.frame):
        return None
    notes = list(built.notes)
    if source.odd_lines:
        notes.append(f"lines that are not UTF-8, read as GB 18030 or Latin-1: {source.odd_lines}")
    said.append(
        {
            "path": str(source.path),
            "reader": raw.reader,
            "lines": raw.lines,
            "records": built.records,
            "rows": len(built.frame),
            "skipped": raw.skipped,
            "repeated": built.repeated,
            "out_of_order": built.out_of_order,
            "notes": notes,
        }
    )
    return built


def _label(frame: pd.DataFrame, file: Path, run: str) -> pd.DataFrame:
    folder = re.match(r"^rank[_-]?(\d+)$", file.parent.name)
    if folder is not None and "rank" not in frame:
        frame.insert(0, "rank", int(folder[1]))
    frame.insert(0, "run", run)
    return frame


def _leave_out_doubles(files: list[Path]) -> list[Path]:
    """Leave out files that say what another says: older checkpoints' states, texts beside the same records."""
    newest: dict[tuple[Path, str], tuple[int, Path]] = {}
    names = {file.parent for file in files if file.name == "steps.jsonl"}
    scalars = {file.parent.parent for file in files if file.parent.name == "vis_data" and file.name == "scalars.json"}
    kept = []
    for file in files:
        checkpoint = _CHECKPOINT.match(file.parent.name)
        if checkpoint is not None and file.name == "trainer_state.json":
            key, number = (file.parent.parent, file.name), int(checkpoint[1])
            if number >= newest.get(key, (-1, file))[0]:
                newest[key] = number, file
        elif (file.name == "timing.log" and file.parent in names) or (
            scalars and file.name != "scalars.json" and (file.parent in scalars or file.parent.parent in scalars)
        ):
            continue
        else:
            kept.append(file)
    return kept + [file for _, file in newest.values()]


def _run_names(files: list[Path]) -> dict[Path, str]:
    """Name each file's run by as much of the path as tells the files apart; the ranks of a run have one name."""
    homes = {}
    for file in files:
        home = file.resolve()
        if re.match(r"^rank[_-]?\d+$", home.parent.name) or _CHECKPOINT.match(home.parent.name):
            home = home.parent.parent
        homes[file] = home
    different = sorted(set(homes.values()))
    for depth in range(1, 64):
        names = {home: "/".join(home.parts[-depth:]) for home in different}
        if len(set(names.values())) == len(different):
            break
    if len(different) > 1 and len({name.rpartition("/")[2] for name in names.values()}) == 1:
        names = {home: name.rpartition("/")[0] or name for home, name in names.items()}  # the same file name in each
    return {file: names[home] for file, home in homes.items()}


def _nothing(given: list[Any], unread: list[str], pattern: str | None) -> str:
    where = ", ".join(map(str, given))
    if pattern is not None:
        return f"{where}: no line matches the pattern {pattern!r}; allowed: an expression that finds your lines"
    what = "no record of a training" if len(unread) == 1 else f"no record of a training in any of {len(unread)} files"
    return (
        f"{where}: {what} was found; allowed: lines with a step and a loss, throughput, time, … (docs/logs.md has the "
        r"formats), or a pattern for your own, such as --pattern 'step (?P<step>\d+) .* loss (?P<loss>\S+)'"
    )


@contextmanager
def _bar(files: Iterable[Path], wanted: bool | None) -> Iterator[Any]:
    """Show how much of the files was read."""
    total = sum(file.stat().st_size for file in files if file.exists())
    if wanted is None:
        wanted = total >= _BAR_FROM_BYTES and sys.stderr.isatty()
    if not wanted:
        yield lambda _count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    bar: Progress = Progress(
        TextColumn("reading logs"), BarColumn(), DownloadColumn(binary_units=True), TimeRemainingColumn(),
        console=Console(stderr=True), transient=True,
    )  # fmt: skip
    with bar:
        task = bar.add_task("reading", total=total)
        yield lambda count: bar.advance(task, count)
