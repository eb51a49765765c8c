"""The folder of a run: made once, never overwritten, and read back into the types of a live run."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import secrets
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from ...errors import OutputError
from ..names import file_name
from ..summary import Summary
from .atomic import write_atomic
from .records import Frames

FORMAT: Final = 1
"""The version of the files of a run, which ``run.json`` has: a reader of another one refuses the run."""


@dataclass(slots=True)
class RunFolder:
    """The folder that one rank of one run writes to."""

    path: Path
    rank: int = 0
    info: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def create(
        cls,
        output: str | os.PathLike[str],
        *,
        rank: int = 0,
        world_size: int = 1,
        name: str | None = None,
        config: Mapping[str, Any] | None = None,
        devices: Sequence[str] = (),
    ) -> RunFolder:
        """Make ``<output>/<name>/rank<rank>/`` and write ``run.json`` there.

        Without a ``name`` the run is named by its start and a random suffix. A name that exists gets a number; several
        ranks share the folder by its name until it has this rank. Raises ``OutputError`` where it cannot be written.
        """
        root = Path(output)
        try:
            root.mkdir(parents=True, exist_ok=True)
            shared = f"rank{rank}" if world_size > 1 and name is not None else None
            path = _claim(root, name, shared)
            folder = cls(path.absolute(), rank, _describe(rank, world_size, config, devices))
            folder.rank_path.mkdir()
            folder._write_info()
        except (OSError, ValueError) as error:
            raise OutputError(f"{root}: cannot be written ({error}); output must name a folder of this user") from error
        return folder

    @property
    def rank_path(self) -> Path:
        """The folder of this rank's own files."""
        return self.path / f"rank{self.rank}"

    def note(self, key: str, value: Any) -> None:
        """Add a fact to ``run.json``."""
        self.info[key] = value
        self._write_info()

    def finish(self, how: str) -> None:
        """Add to ``run.json`` when and how the run ended: ``closed``, ``interrupted`` or ``error: …``."""
        self.info.update(end=_now(), ended=how)
        self._write_info()

    def discard(self) -> None:
        """Remove the files and folders of this run: for a run that failed before it began."""
        shutil.rmtree(self.rank_path, ignore_errors=True)
        if self.rank == 0:
            self._info_path.unlink(missing_ok=True)
        for folder in (self.path, self.path.parent):
            with contextlib.suppress(OSError):  # not empty: another run has files there
                if folder != Path.cwd():
                    folder.rmdir()

    def write_summary(self, summary: Summary, report: Sequence[str]) -> None:
        """Write ``summary.json``, and the lines of the report to ``summary.txt``; ranks but 0 in their own folders."""
        where = shared_folder(self.path, self.rank)
        write_atomic(where / "summary.json", json.dumps(summary.to_dict(), indent=1, ensure_ascii=False) + "\n")
        write_atomic(where / "summary.txt", "\n".join(report) + "\n")

    @property
    def _info_path(self) -> Path:
        return shared_folder(self.path, self.rank) / "run.json"

    def _write_info(self) -> None:
        write_atomic(self._info_path, json.dumps(self.info, indent=1, ensure_ascii=False, default=str) + "\n")


def shared_folder(run: Path, rank: int) -> Path:
    """Return the folder of a rank's ``run.json`` and summary; those of rank 0 are the run's."""
    return run if rank == 0 else run / f"rank{rank}"


def _claim(root: Path, name: str | None, shared: str | None) -> Path:
    """Make the folder of a run, or return one that exists and lacks the folder ``shared`` of this rank."""
    # Names tried; a second one is needed when two runs draw the same random suffix in one second.
    attempts = 100
    for attempt in range(1, attempts + 1):
        if name is None:
            path = root / f"{datetime.now():%Y-%m-%d_%H-%M-%S}-{secrets.token_hex(2)}"
        else:
            path = root / file_name(name if attempt == 1 else f"{name}-{attempt}")
        try:
            path.mkdir()
        except FileExistsError:
            if shared is not None and path.is_dir() and not (path / shared).exists():
                return path
            continue
        return path
    raise OutputError(f"{root}: {attempts} folders for this run exist already; name another output folder")


def _describe(rank: int, world_size: int, config: Mapping[str, Any] | None, devices: Sequence[str]) -> dict[str, Any]:
    uname = platform.uname()  # platform.platform() runs a command, whose end is a SIGCHLD for the program
    return {
        "format": FORMAT,
        "command": shlex.join([sys.executable, *sys.argv]),
        "versions": {"python": platform.python_version(), "torch": _version("torch"), "autoprof": _version()},
        "host": f"{uname.node} ({uname.system}-{uname.release}-{uname.machine})",
        "rank": rank,
        "world_size": world_size,
        "devices": list(devices),
        "config": dict(config) if config is not None else None,
        "start": _now(),
        "end": None,
        "ended": None,
    }


def _now() -> str:
    return datetime.now(timezone.utc).astimezone().isoformat(timespec="seconds")


def _version(distribution: str = "torch-autoprof") -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


@dataclass(frozen=True)
class Run:
    """A saved run: ``info`` is ``run.json``, ``ranks`` are those with records."""

    path: Path
    info: Mapping[str, Any]
    ranks: tuple[int, ...]

    @cached_property
    def summary(self) -> Summary | None:
        """The summary of rank 0; None for a run that was not closed. Raises ``OutputError`` for an unreadable one."""
        return self.rank_summary(0)

    @property
    def frames(self) -> Frames:
        """The frames of the lowest rank that has any."""
        return self.rank_frames(self.ranks[0] if self.ranks else 0)

    def rank_frames(self, rank: int) -> Frames:
        """Return the frames of one rank."""
        return Frames(self.path / f"rank{rank}" / "steps.jsonl")

    def rank_summary(self, rank: int) -> Summary | None:
        """Return the summary of one rank, None where it did not write one."""
        path = shared_folder(self.path, rank) / "summary.json"
        if not path.is_file():
            return None
        try:
            return Summary.from_dict(read_json(path))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            raise OutputError(
                f"{path}: cannot be read ({type(error).__name__}: {error}); it is incomplete or of another version"
            ) from error


def find_run(path: str | os.PathLike[str]) -> Path:
    """Return the folder of a run: the path itself, or the run in it that started last.

    Raises ``OutputError`` where there is none.
    """
    folder = Path(path)
    if (folder / "run.json").is_file():
        return folder
    return latest_runs(folder, 1)[0]


def latest_runs(folder: Path, count: int) -> list[Path]:
    """Return the ``count`` runs in a folder that started last, the latest first.

    Raises ``OutputError`` where there are fewer.
    """
    starts = {one.parent: _start(one) for one in folder.glob("*/run.json")}
    if not folder.exists():
        raise OutputError(
            f"{folder}: does not exist here; allowed: the folder of a run, or of runs (autoprof run records one)"
        )
    if not starts:
        raise OutputError(
            f"{folder}: neither the folder of a run nor a folder of runs; a run has a run.json, name its folder"
        )
    if len(starts) < count:
        raise OutputError(f"{folder}: contains {len(starts)} run, and {count} are needed; name the folders of runs")
    return sorted(starts, key=lambda run: (starts[run], run.name), reverse=True)[:count]


def _start(path: Path) -> float:
    """Return when a run started, in seconds; of a run without a readable start, when its file was written."""
    try:
        return datetime.fromisoformat(read_json(path)["start"]).timestamp()
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return path.stat().st_mtime


def read_run(path: str | os.PathLike[str]) -> Run:
    """Open a saved run. Raises ``OutputError`` where there is none, or one whose files have another format."""
    folder = Path(path)
    try:
        info = read_json(folder / "run.json")
        if not isinstance(info, dict):
            raise ValueError("run.json is not an object")
    except (OSError, ValueError) as error:
        raise OutputError(f"{folder}: is not the folder of a run ({error}); it must have a run.json") from error
    if info.get("format") != FORMAT:
        raise OutputError(
            f"{folder}: was written by another version of autoprof (its format is not {FORMAT}); "
            "read it with that version"
        )
    return Run(folder, info, _recorded_ranks(folder))


def read_json(path: Path) -> Any:
    """Read a file of JSON. Raises ``OSError``, or ``ValueError`` for a text that is none or nests too deeply."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _recorded_ranks(folder: Path) -> tuple[int, ...]:
    """Return the ranks with records; a copy such as ``rank0-backup`` is no rank."""
    names = (path.parent.name for path in folder.glob("rank*/steps.jsonl") if os.path.isfile(path))
    return tuple(sorted(int(found[1]) for name in names if (found := re.fullmatch(r"rank(0|[1-9][0-9]{0,8})", name))))
