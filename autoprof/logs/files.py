"""The log files that a path names, without duplicates, and the run that each belongs to."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ..errors import AutoprofError
from .log_file import STANDARD_INPUT, LogFile, is_pipe

_CHECKPOINT: Final = re.compile(r"^checkpoint-(\d+)$")
_RANK: Final = re.compile(r"^rank[_-]?(\d+)$")
_RANK_OF_TIMING_LOG: Final = re.compile(r"^timing_[\d_]+?(?:_rank(\d+))?\.log$")
_NO_LOGS: Final = frozenset(
    {".md", ".rst", ".py", ".yaml", ".yml", ".toml", ".cfg", ".ini", ".sh", ".html", ".ipynb", ".pt", ".pth", ".bin",
     ".safetensors", ".npz", ".npy", ".png", ".jpg", ".pdf", ".svg"}
)  # fmt: skip
"""Ends of the names of files that are no logs, skipped in folders; a file that is named itself is read."""


def find_files(path: str | os.PathLike[str]) -> list[Path]:
    """Return the files of a path, of a folder (recursively, without hidden ones) or of a pattern with ``*``.

    ``-`` is standard input. A pipe is read only if it is named itself: reading another one could wait for ever.
    """
    text = os.fspath(path)
    if text == str(STANDARD_INPUT):
        return [STANDARD_INPUT]
    place = Path(text).expanduser()
    if place.is_dir():
        return [
            file
            for file in sorted(place.rglob("*"))
            if file.is_file()
            and file.suffix.lower() not in _NO_LOGS
            and not any(part.startswith(".") for part in file.relative_to(place).parts)
        ]
    if place.exists():
        return [place]
    found = [Path(name) for name in sorted(glob.glob(str(place), recursive=True))]
    found = [entry for entry in found if entry.is_file() or (entry.is_dir() and "**" not in text)]
    if not found:
        problem = "no file matches this pattern" if glob.has_magic(text) else "no such file or folder"
        raise AutoprofError(
            f"{text}: {problem}; allowed: a log file, a folder, a pattern such as 'runs/*/log.txt', or -"
        )
    return [file for entry in found for file in (find_files(entry) if entry.is_dir() else [entry])]


def drop_duplicates(files: Sequence[Path]) -> list[Path]:
    """Drop files whose records another file has: states of older checkpoints, text beside the same records."""
    newest: dict[tuple[Path, str], tuple[int, Path]] = {}
    with_records = {file.parent for file in files if file.name == "steps.jsonl"}
    kept = []
    for file in files:
        checkpoint = _CHECKPOINT.match(file.parent.name)
        if checkpoint is not None and file.name == "trainer_state.json":
            key, number = (file.parent.parent, file.name), int(checkpoint[1])
            if number >= newest.get(key, (-1, file))[0]:
                newest[key] = number, file
        elif file.name not in ("timing.log", "timing.log.1") or file.parent not in with_records:
            kept.append(file)
    return kept + [file for _, file in newest.values()]


def rank_of(file: Path) -> int | None:
    """Return the rank in the name of the file's folder, or of a log of ``TimingLogger``; None if it has none."""
    found = _RANK.match(file.parent.name) or _RANK_OF_TIMING_LOG.match(file.name)
    return None if found is None else int(found[1] or 0)


def name_runs(files: Sequence[Path]) -> dict[Path, str]:
    """Return the name of each file's run: the shortest end of its path that is unique. Ranks of one run share it."""
    places = {}
    pipes = {file: LogFile(file).name for file in files if is_pipe(file)}
    for file in files:
        place = file.resolve()
        is_part = _RANK.match(place.parent.name) or _CHECKPOINT.match(place.parent.name)
        places[file] = place.parent.parent if is_part else place
    distinct = sorted({place for file, place in places.items() if file not in pipes})
    names = {place: place.name for place in distinct}
    length = 1
    while len(set(names.values())) < len(distinct):
        length += 1
        names = {place: "/".join(place.parts[-length:]) for place in distinct}
    if len(distinct) > 1 and len({name.rpartition("/")[2] for name in names.values()}) == 1:
        names = {place: name.rpartition("/")[0] or name for place, name in names.items()}  # the same file name in each
    return {file: pipes.get(file) or names[place] for file, place in places.items()}
