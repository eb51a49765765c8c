"""ProfilerWrapper: the interface of the old tool, implemented by ``autoprof.deep_capture``.

``is_st`` → prefix, ``profile_memory`` → memory, ``record_shapes`` → shapes, ``log_dir`` → folder, ``mem_dir`` →
snapshot_folder, ``enabled_record_memory_pickle`` → snapshot, ``enabled_record_cuda_average_time`` → layer_time and
patterns, ``enable_record_cuda_mm`` → layer_memory, ``enable_print_summary`` → tables; ``activities`` as it was.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TypeVar

from .._process import lifecycle
from .._process.ranks import rank
from .._reports.text import safe
from ..deep import SEED_PATTERNS, DeepCapture, DeepProfile, FileNames, make_options, make_patterns, render_profile
from ..deep.options import choose_stem
from ..errors import SessionError

Result = TypeVar("Result")
NAMES: Final = FileNames(
    trace="{stem}_rank{rank}_trace.json",
    tables="{stem}_rank_{rank}.log",
    time="{stem}_rank{rank}_cuda_time_plot.png",
    memory="{stem}_rank{rank}_memory_usage_line_chart.png",
    memory_text="{stem}_rank{rank}_memory_usage.txt",
    snapshot="{stem}_rank{rank}_mem.pickle",
)


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
        patterns: Mapping[str, str] | Iterable[str] = (),
    ) -> None:
        for name, value in (("log_dir", log_dir), ("mem_dir", mem_dir)):
            if not isinstance(value, (str, os.PathLike)):
                raise SessionError(f"ProfilerWrapper: {name} is {value!r}; allowed: a folder")
        options = make_options(
            activities=activities or None,
            memory=bool(profile_memory),
            shapes=bool(record_shapes),
            snapshot=bool(enabled_record_memory_pickle),
            layer_time=bool(enabled_record_cuda_average_time),
            layer_memory=bool(enable_record_cuda_mm),
            tables=bool(enable_print_summary),
            max_steps=100,
        )
        found = (*SEED_PATTERNS, *make_patterns(patterns))
        self.prefix = "opensora" if is_st else "cogvideo"
        self.rank = rank()
        self.counter = 0
        """Runs so far."""
        self.profiler: DeepCapture | None = None
        """The open run, else the last one."""
        self.result: DeepProfile | None = None
        """The results of all runs."""
        self._options = replace(options, patterns=found, names=NAMES)
        self._folder = Path(log_dir).absolute()
        self._snapshots = Path(mem_dir).absolute()
        self._stem: str | None = None

    def __enter__(self) -> ProfilerWrapper:
        session: Any = lifecycle.session_of(None)
        self.counter += 1
        if self._stem is None:
            self._stem = choose_stem(self._folder, self.prefix, NAMES, self.rank)
        self.profiler = DeepCapture(
            self._options,
            self._folder,
            self._stem,
            targets=() if session is None else session.targets,
            session=session,
            snapshot_folder=self._snapshots,
            replace=True,
            first_step=self.counter,
            earlier=self.result,
        )
        self.profiler.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.profiler is None or not self.profiler.entered:
            return
        self.profiler.__exit__(kind, error, trace)
        if self.profiler.result is not None:
            self.result = self.profiler.result
            if self._options.tables:
                self.print_summary()

    def record_function(self, name: str, func: Callable[..., Result], *args: Any, **kwargs: Any) -> Result:
        """Call ``func`` as a layer of this name; return its result. Its exceptions are not caught."""
        if self.profiler is None:
            return func(*args, **kwargs)
        return self.profiler.record(name, func, *args, **kwargs)

    def print_summary(self) -> None:
        """Print the tables of all runs."""
        if self.result is not None:
            encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
            for line in render_profile(self.result, width=100, rows=10):
                print(safe(line, encoding))

    def leave(self) -> None:
        """End the open run, if any; then the files of all runs are complete."""
        self.__exit__(None, None, None)

    @property
    def files(self) -> tuple[Path, ...]:
        """The files of the last run."""
        return () if self.profiler is None else self.profiler.files
