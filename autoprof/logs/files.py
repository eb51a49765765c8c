"""The log files that a path names, without duplicates, and the run that each belongs to."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ..errors import AutoprofError
from .log_file import STANDARD_INPUT

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
    place = Path(text).expanduser()
    if place.is_dir():
        return [
            file
            for file in sorted(place.rglob("*"))
            if file.is_file()
            and file.suffix.lower() not in _NO_LOGS
            and not any(part.startswith(".") for part in file.relative_to(place).parts)
        ]
    if place == STANDARD_INPUT or place.exists():
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
    with_records = {file.parent for file in files if file.name == "steps.jsonl"}
    kept: dict[Path, Path] = {}
    for file in sorted(files, key=_checkpoint):
        if file.name not in ("timing.log", "timing.log.1") or file.parent not in with_records:
            is_state = file.name == "trainer_state.json" and _checkpoint(file) >= 0
            kept[file.parent.parent if is_state else file] = file
    return [*kept.values()]


def _checkpoint(file: Path) -> int:
    """Return the step in the name of a checkpoint's folder, -1 for another folder."""
    found = _CHECKPOINT.match(file.parent.name)
    return -1 if found is None else int(found[1])


def rank_of(file: Path) -> int | None:
    """Return the rank in the name of the file's folder, or of a log of ``TimingLogger``; None if it has none."""
    found = _RANK.match(file.parent.name) or _RANK_OF_TIMING_LOG.match(file.name)
    return None if found is None else int(found[1] or 0)


def name_runs(files: Sequence[Path]) -> dict[Path, str]:
    """Return the name of each file's run: its path below the folder of all. Ranks of one run share it."""
    places = {file: Path(os.path.abspath(file)) for file in files if file != STANDARD_INPUT}
    for file, place in places.items():
        if _RANK.match(place.parent.name) or _checkpoint(place) >= 0:
            places[file] = place.parent.parent
    root = os.path.commonpath([place.parent for place in places.values()]) if places else ""
    names = {file: os.path.relpath(place, root) for file, place in places.items()}
    if len(set(names.values())) > 1 and len({Path(name).name for name in names.values()}) == 1:
        names = {file: str(Path(name).parent) for file, name in names.items()}  # the same file name in each
    return {file: names.get(file, "standard input") for file in files}
