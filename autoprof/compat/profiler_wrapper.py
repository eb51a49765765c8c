"""ProfilerWrapper: the interface of the old tool, implemented by ``autoprof.deep_capture``.

``is_st`` → prefix, ``profile_memory`` → memory, ``record_shapes`` → shapes, ``log_dir`` → folder, ``mem_dir`` →
the snapshot's folder, ``enabled_record_memory_pickle`` → snapshot; ``activities`` as it was. The two pictures and the
text of the memory (``enabled_record_cuda_average_time``, ``enable_record_cuda_mm``) exist only here.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Final, TypeVar

from ..base.process import lifecycle
from ..base.process.ranks import rank
from ..base.storage.atomic import write_atomic
from ..errors import SessionError
from ..reports.figures import encode_figure
from ..reports.text import in_encoding
from ..session.deep_capture import DeepCapture
from ..session.flight.capture import FileNames, make_options
from ._profiler_curves import SEED_PATTERNS, LayerMemory, ProfilerCurves

Result = TypeVar("Result")
TRACE: Final = "{stem}_rank{rank}_trace.json"
TABLES: Final = "{stem}_rank_{rank}.log"


class ProfilerWrapper:
    """Profile the code in ``with`` blocks. Each block is a run; tables and figures cover all runs of the wrapper.

    ``patterns`` adds operators, kernels and layers to the tables: regular expressions by name. The trace contains the
    names of an open session. Raises ``SessionError`` for invalid parameters.
    """

    def __init__(
        self,
        is_st: bool = False,
        activities: Iterable[Any] | None = None,
        profile_memory: bool = False,
        record_shapes: bool = True,
        log_dir: str | os.PathLike[str] = "pf_logs",
        mem_dir: str | os.PathLike[str] = "memory_logs",
        thresold: int = 4,
        enabled_record_memory_pickle: bool = False,
        enabled_record_cuda_average_time: bool = False,
        enable_record_cuda_mm: bool = False,
        enable_print_summary: bool = False,
        *,
        patterns: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        for name, value in (("log_dir", log_dir), ("mem_dir", mem_dir)):
            if not isinstance(value, (str, os.PathLike)):
                raise SessionError(f"ProfilerWrapper: {name} is {value!r}; allowed: a folder")
        snapshots = str(Path(mem_dir).absolute()).replace("{", "{{").replace("}", "}}")
        self._options = make_options(
            activities=activities or None,
            memory=bool(profile_memory),
            shapes=bool(record_shapes),
            snapshot=bool(enabled_record_memory_pickle),
            max_steps=100,
            names=FileNames(TRACE, "", f"{snapshots}/{{stem}}_rank{{rank}}_mem.pickle"),
        )
        self.prefix = "opensora" if is_st else "cogvideo"
        self.rank = rank()
        self.counter = 0
        """Runs so far."""
        self.profiler: DeepCapture | None = None
        """The open run, else the last one."""
        self.result = ProfilerCurves(_compile({**SEED_PATTERNS, **patterns}))
        """The results of all runs."""
        self.files: tuple[Path, ...] = ()
        """The files of the last run."""
        self._times = bool(enabled_record_cuda_average_time)
        self._memory = bool(enable_record_cuda_mm)
        self._prints = bool(enable_print_summary)
        self._folder = Path(log_dir).absolute()
        self._stem: str | None = None
        self._tables: list[str] = []

    def __enter__(self) -> ProfilerWrapper:
        session: Any = lifecycle.session_of(None)
        self.counter += 1
        if self._stem is None:
            self._stem = self._free_stem()
        self.profiler = DeepCapture(
            self._options,
            self._folder,
            self._stem,
            targets=() if session is None else session.targets,
            session=session,
            replace=True,
            first_step=self.counter,
        )
        self.profiler.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        profiler = self.profiler
        if profiler is None or not profiler.entered:
            return
        profiler.__exit__(kind, error, trace)
        self.files = profiler.files
        if profiler.capture.profile is None:
            return
        self._tables.append(profiler.table())
        self.result.add(profiler.capture)
        self._write()
        if self._prints:
            self.print_summary()

    def _free_stem(self) -> str:
        stem, number = self.prefix, 1
        while any((self._folder / name.format(stem=stem, rank=self.rank)).exists() for name in (TRACE, TABLES)):
            number += 1
            stem = f"{self.prefix}-{number}"
        return stem

    def _write(self) -> None:
        """Write the files of all runs that were asked for."""
        content: dict[str, bytes | str] = {}
        if self._prints:
            content[TABLES] = "\n\n".join(self._tables) + "\n"
        if self._times and (figure := self.result.time_figure()) is not None:
            content["{stem}_rank{rank}_cuda_time_plot.png"] = encode_figure(figure)
        if self._memory and (figure := self.result.memory_figure()) is not None:
            content["{stem}_rank{rank}_memory_usage_line_chart.png"] = encode_figure(figure)
            content["{stem}_rank{rank}_memory_usage.txt"] = self.result.memory_text()
        for name, data in content.items():
            path = self._folder / name.format(stem=self._stem, rank=self.rank)
            write_atomic(path, data)
            self.files = (*self.files, path)

    def record_function(self, name: str, func: Callable[..., Result], *args: Any, **kwargs: Any) -> Result:
        """Call ``func`` as a layer of this name; return its result. Its exceptions are not caught."""
        if self.profiler is None:
            return func(*args, **kwargs)
        result = self.profiler.record(name, func, *args, **kwargs)
        if self._memory:
            self.result.memory.append(LayerMemory.read(self.counter, name))
        return result

    def print_summary(self) -> None:
        """Print the tables of all runs."""
        print(in_encoding("\n\n".join(self._tables), getattr(sys.stdout, "encoding", None) or "utf-8"))


def _compile(patterns: Mapping[str, str]) -> dict[str, re.Pattern[str]]:
    try:
        return {str(name): re.compile(text) for name, text in patterns.items()}
    except (re.error, TypeError) as error:
        raise SessionError(
            f"ProfilerWrapper: patterns: {error}; allowed: regular expressions that are found in the names of "
            "operators or layers"
        ) from error
