"""``TimingLogger``: a log of durations that a program measures itself, with autoprof's statistics and verdict.

timing_logger = TimingLogger(log_dir="runs/logs")
set_global_timing_logger(timing_logger)
…
    log_timing("VRT/Stage1", elapsed_ms)     # anywhere
    timing_logger.step()                     # at the end of each step
timing_logger.print_summary()
timing_logger.close()
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from ..base.failures import contain, describe
from ..base.frame import Phase
from ..base.log import logger
from ..base.names import clean_name
from ..base.process.ranks import rank as rank_here
from ..base.stats import Aggregate
from ..base.stats.name_lines import parent_name
from ..base.storage.line_file import LineFile
from ..base.summary import Finding, Summary
from ..base.units import NS_PER_S, format_percent
from ..capture.hooks.function import LONGEST_NS
from ..capture.hooks.function import log_timing as record_in_session
from ..capture.marks.codes import MAX_MARKS
from ..devices import HostClock
from ..diagnose import MIN_STEPS
from ..errors import OutputError
from ..reports.card import HEALTHY, render_card
from ..reports.log import LABEL
from ..reports.name_tree import NameAverages
from ..sinks import RunInfo
from ..sinks.console import ConsoleOptions, ConsoleSink
from ._durations import Duration, StepBuilder
from ._timing_log import NUMBERS_WIDTH, render_timing_step, render_timing_summary


class TimingLogger:
    """Collect durations by name, write each step to ``timing_{timestamp}.log`` and show the longest names in place.

    All methods may be called from several threads. After the constructor none raises.

    Args:
        log_dir: the folder of the log.
        enable_console: whether to show the run on ``stream``.
        enable_file: whether to write the log.
        console_update_interval: steps between two updates of the console.
        file_flush_interval: steps between two writes to the disk.
        all_ranks: whether ranks other than 0 record too, to ``timing_{timestamp}_rank{N}.log``.
        stream: the stream of the console; by default standard output.
        clock: the clock of the steps; tests replace it.
        enabled: False creates a logger that does nothing.

    Raises:
        OutputError: the folder cannot be written.
    """

    def __init__(
        self,
        log_dir: str | os.PathLike[str] = "logs",
        enable_console: bool = True,
        enable_file: bool = True,
        console_update_interval: int = 10,
        file_flush_interval: int = 50,
        *,
        all_ranks: bool = False,
        stream: TextIO | None = None,
        clock: HostClock | None = None,
        enabled: bool = True,
    ) -> None:
        for name, value in (
            ("console_update_interval", console_update_interval),
            ("file_flush_interval", file_flush_interval),
        ):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"TimingLogger: {name} is {value!r}; allowed: a whole number, at least 1")
        self.rank = rank_here()
        self.log_file: Path | None = None
        """The log; None without ``enable_file``."""
        self._owner_pid = os.getpid()
        self._enabled = self._is_recording = enabled and (self.rank == 0 or all_ranks)
        self._clock = clock or HostClock()
        self._lock = threading.RLock()
        self._builder = StepBuilder(self._clock.read())
        self._aggregate = Aggregate()
        self._averages = NameAverages()
        self._durations: list[Duration] = []
        self._covered_ns = self._overhead_ns = self._invalid = 0
        self._flush_interval = file_flush_interval
        self._file: LineFile | None = None
        self._is_shown = enable_console and self.rank == 0
        run = RunInfo(None, self.rank, stream or sys.stdout, lambda: self._clock.read() / NS_PER_S)
        self._console = ConsoleSink(ConsoleOptions(every=console_update_interval), run)
        if not self._enabled:
            return
        if enable_file:
            self.log_file = _create_log(Path(log_dir).absolute(), self.rank)
            self._file = LineFile(self.log_file, float("inf"), time.monotonic)  # flushed after steps instead
        atexit.register(self.close)

    @classmethod
    def from_config(
        cls, config: str | os.PathLike[str] | Mapping[str, Any], log_dir: str | os.PathLike[str] | None = None
    ) -> TimingLogger:
        """Create a logger from the ``LOG:`` block of a project's configuration.

        Without ``log_dir`` it writes to ``{SAVE_DIR}/logs``. With ``ENABLE_TIMING_LOG: false`` it does nothing.
        Raises ``ConfigError`` as ``autoprof.instrument`` does.
        """
        from ..sinks import load_config

        settings = load_config(config)
        console, log = settings.sinks.console, settings.sinks.log
        return cls(
            log_dir=settings.output / "logs" if log_dir is None else log_dir,
            enable_console=console is not None,
            enable_file=log is not None,
            console_update_interval=10 if console is None else console.every,
            file_flush_interval=50 if log is None or log.flush_every is None else log.flush_every,
            enabled=settings.enabled,
        )

    @property
    def _is_owner(self) -> bool:
        """Whether the logger is enabled, and was made by this process rather than by the parent of a fork."""
        return self._enabled and os.getpid() == self._owner_pid

    def log_timing(self, name: str, time_ms: float) -> None:
        """Record a duration in milliseconds. Durations of one name in a step add up."""
        now_ns = self._clock.read()
        if not (self._is_recording and self._is_owner):
            return
        try:
            ns = round(float(time_ms) * 1e6)
        except (TypeError, ValueError, OverflowError, RuntimeError):
            ns = -1
        with self._lock:
            if 0 <= ns < LONGEST_NS and len(self._durations) < MAX_MARKS:
                self._durations.append(Duration(clean_name(str(name)), ns, now_ns, threading.get_ident()))
            else:
                self._invalid += 1

    def step(self) -> None:
        """End a step: add it to the statistics, write it, and update the console if due."""
        now_ns = self._clock.read()
        if not (self._is_recording and self._is_owner):
            return
        with self._lock:
            began_ns = time.perf_counter_ns()
            with contain(self._fail):  # a failure here must not end the training
                self._end_step(now_ns)
            self._overhead_ns = time.perf_counter_ns() - began_ns

    def _fail(self, error: Exception) -> None:
        self._is_recording = False
        logger.warning(f"timing log: recording is off after {describe(error)}")

    def _end_step(self, now_ns: int) -> None:
        durations, self._durations = self._durations, []
        frame, covered_ns = self._builder.build(durations, now_ns, threading.get_ident(), self._overhead_ns)
        self._covered_ns += covered_ns
        self._aggregate.add(frame)
        self._write(render_timing_step(frame, self._averages, covered_ns), frame.step % self._flush_interval == 0)
        self._console.write(frame)
        if self._is_shown and self._console.due():
            summary = self.summary()
            names = {row.name for row in summary.rows}
            top = tuple(row for row in summary.rows if parent_name(row.name, names) is None)
            with contain(self._hide):
                self._console.show(replace(summary, rows=top), frame.step)

    def _hide(self, error: Exception) -> None:
        self._is_shown = False

    def _write(self, text: str, flush: bool) -> None:
        """Append text to the log; a log that cannot be written is given up with one warning."""
        try:
            if self._file is not None:
                self._file.write(text)
                if flush:
                    self._file.flush()
        except OSError as error:
            self._file = None
            logger.warning(f"{self.log_file}: nothing more is written after {type(error).__name__}: {error}")

    def summary(self) -> Summary:
        """Return the statistics so far, with the findings about them."""
        with self._lock:
            skipped = {"values that are not durations": self._invalid} if self._invalid else {}
            summary = self._aggregate.summary(skipped=skipped)
            other_ns = summary.total_step_ns - self._covered_ns
            bare = replace(summary, phases={Phase.USER: self._covered_ns, Phase.OTHER: other_ns})
            return replace(bare, findings=tuple(_dominating(bare)))

    def bottlenecks(self) -> tuple[Finding, ...]:
        """Return the finding on a name that dominates, if there is one."""
        return self.summary().findings

    def print_summary(self) -> None:
        """Print the statistics and the verdict below the panel, and write the statistics to the log."""
        if not self._is_owner:
            return
        with self._lock:
            summary = self.summary()
            self._write("\n" + "\n".join(render_timing_summary(summary)) + "\n", flush=True)
            if self.rank == 0:
                width = shutil.get_terminal_size(fallback=(LABEL + NUMBERS_WIDTH, 24)).columns
                lines = render_timing_summary(summary, min(max(width - NUMBERS_WIDTH, 16), LABEL))
                quiet = [f"Verdict   {HEALTHY}"] if summary.steps >= MIN_STEPS else []
                with contain(self._hide):
                    self._console.print("\n".join([*lines, *(render_card(summary) or quiet), ""]))

    def close(self) -> None:
        """Write pending lines and release the terminal. A second call does nothing."""
        with self._lock:
            atexit.unregister(self.close)
            if self._is_recording and self._is_owner:
                self._is_recording = False
                self._write("", flush=True)
                self._console.restore_screen()

    def __enter__(self) -> TimingLogger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _dominating(summary: Summary) -> Iterator[Finding]:
    """Yield the finding on the name that takes half of the step and three times as long as the next one."""
    rows = sorted(summary.rows, key=lambda row: (-row.self_ns, row.name))
    if len(rows) < 2 or summary.steps < MIN_STEPS:
        return
    hot, beside = rows[:2]
    share, times = hot.self_ns / max(summary.total_step_ns, 1), hot.self_ns / max(beside.self_ns, 1)
    if share >= 0.5 and times >= 3.0:
        why = (
            f"{hot.name} takes {format_percent(share)} of the step, {times:.1f} x as long as {beside.name}, the "
            "longest name beside it"
        )
        advice = "look there first: time its parts under names of their own; the possible gain was not measured"
        yield Finding("hot-module", "warning", why, advice, hot.name, hot.phase)


def _create_log(folder: Path, rank: int) -> Path:
    """Create the log of this second; a number is added if another logger has the name."""
    of_rank = f"_rank{rank}" if rank else ""
    stamp = int(time.time())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number in count():
            path = folder / f"timing_{stamp}{f'_{number}' if number else ''}{of_rank}.log"
            if not path.exists():
                break
        path.touch()
    except OSError as error:
        raise OutputError(
            f"TimingLogger: log_dir {folder} cannot be written ({error.strerror}); it must be a writable folder"
        ) from error
    return path


_global: TimingLogger | None = None


def set_global_timing_logger(timing_logger: TimingLogger | None) -> None:
    """Set the logger that ``log_timing`` writes to; None: no logger."""
    global _global
    _global = timing_logger


def log_timing(name: str, time_ms: float) -> None:
    """Record a duration in milliseconds in the global logger and in the open autoprof session, if any."""
    if _global is not None:
        _global.log_timing(name, time_ms)
    record_in_session(name, time_ms)
