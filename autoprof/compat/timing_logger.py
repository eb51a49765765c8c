"""``TimingLogger``: a log of durations that the program measures itself, with autoprof's statistics and verdict.

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
import logging
import os
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TextIO

from .._capture.marks import MAX_MARKS
from .._capture.probes import log_timing as record_in_session
from .._capture.probes.function import LONGEST_NS
from .._names import clean_name
from .._process.signals import raised_by_handler
from .._reports.card import HEALTHY, render_card
from .._session.outputs import rank as rank_here
from .._stats import Aggregate
from ..devices import HostClock
from ..diagnose import MIN_STEPS, Evidence, EvidenceCollector, diagnose
from ..errors import OutputError
from ..summary import Finding, Summary
from .display import Display
from .durations import Duration, Steps, account, on_training_lane
from .timing_files import TimingFiles
from .timing_text import render_timing_summary

if TYPE_CHECKING:
    from .timing_export import Scalars

JUDGED: Final = ("hot-module", "jitter")
"""Rules that durations without a phase say something to; the others would only list what they miss."""

logger = logging.getLogger("autoprof")


class TimingLogger:
    """Collect durations by name, write each step to ``timing_{timestamp}.log`` and show the longest names in place.

    ``console_update_interval`` and ``file_flush_interval`` count steps. Only rank 0 records, unless ``all_ranks``: then
    the other ranks write files of their own (``timing_{timestamp}_rank{N}.log``), and ``autoprof.compat.timing_export``
    puts them together. ``tensorboard`` is a folder or a ``SummaryWriter``; it gets the mean of each name at each
    console update. Beside the log lies ``timing_{timestamp}.jsonl``, autoprof's records, from which
    ``export_csv``, ``export_json`` and ``plot`` are made. Safe to call from several threads; nothing raises but set-up.

    Raises ``OutputError`` when the folder cannot be written, ``MissingExtra`` for TensorBoard without its package.
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
        tensorboard: str | os.PathLike[str] | Scalars | None = None,
        stream: TextIO | None = None,
        clock: HostClock | None = None,
    ) -> None:
        for name, value in (
            ("console_update_interval", console_update_interval),
            ("file_flush_interval", file_flush_interval),
        ):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"TimingLogger: {name} is {value!r}; allowed: a whole number, at least 1")
        self.rank = rank_here()
        self._owner = os.getpid()
        self._on = self.rank == 0 or all_ranks
        self._clock = clock or HostClock()
        self._lock = threading.RLock()
        self._steps = Steps(self._clock.read())
        self._aggregate = Aggregate()
        self._evidence = EvidenceCollector()
        self._open: list[Duration] = []
        self._closed = self._failed = False
        self._covered_ns = 0
        self._work_ns = 0
        self._refused = 0
        self._every = console_update_interval
        self._files: TimingFiles | None = None
        self._display: Display | None = None
        self._scalars: Scalars | None = None
        if not self._on:
            return
        if enable_file:
            self._files = TimingFiles(Path(log_dir), self.rank, file_flush_interval)
        if tensorboard is not None and self.rank == 0:
            from .timing_export import scalars_to

            self._scalars = scalars_to(tensorboard)
        if enable_console and self.rank == 0:
            self._display = Display(stream or sys.stdout)
        self._printing = Display(stream or sys.stdout, live=False) if self._display is None else self._display
        atexit.register(self.close)

    @classmethod
    def from_config(
        cls, config: str | os.PathLike[str] | Mapping[str, Any], log_dir: str | os.PathLike[str] | None = None
    ) -> TimingLogger:
        """Make the logger that the ``LOG:`` block of a project's configuration asks for.

        Without ``log_dir`` it writes to ``{SAVE_DIR}/logs``. ``ENABLE_TIMING_LOG: false`` makes one that does nothing.
        Raises ``ConfigError`` as ``autoprof.instrument`` does.
        """
        from ..config import load_config

        settings = load_config(config)
        console, log = settings.sinks.console, settings.sinks.log
        made = cls(
            log_dir=settings.output / "logs" if log_dir is None else log_dir,
            enable_console=settings.enabled and console is not None,
            enable_file=settings.enabled and log is not None,
            console_update_interval=10 if console is None else console.every,
            file_flush_interval=50 if log is None or log.flush_every is None else log.flush_every,
        )
        made._on = made._on and settings.enabled
        return made

    @property
    def log_file(self) -> Path | None:
        """The log, or None where none is written."""
        return None if self._files is None else self._files.log

    @property
    def record_file(self) -> Path | None:
        """The records beside the log."""
        return None if self._files is None else self._files.records

    @property
    def _recording(self) -> bool:
        return self._on and not (self._closed or self._failed) and os.getpid() == self._owner

    # What the program calls.

    def log_timing(self, name: str, time_ms: float) -> None:
        """Record a duration in milliseconds. Several of one name in a step add up."""
        now_ns = self._clock.read()
        if not self._recording:
            return
        try:
            ns = round(float(time_ms) * 1e6)
        except (TypeError, ValueError, OverflowError, RuntimeError):
            ns = -1
        with self._lock:
            if 0 <= ns < LONGEST_NS and len(self._open) < MAX_MARKS:
                self._open.append(Duration(clean_name(str(name)), ns, now_ns, threading.get_ident()))
            else:
                self._refused += 1

    def step(self) -> None:
        """End a step: count it, write it, and show the run when it is time to."""
        now_ns = self._clock.read()
        if not self._recording:
            return
        with self._lock:
            began_ns = time.perf_counter_ns()
            try:
                self._end_step(now_ns)
            except Exception as error:  # nothing of ours may end a training run
                if raised_by_handler(error):
                    raise
                self._failed = True
                logger.warning(f"timing log: recording is off after {type(error).__name__}: {error}")
            finally:
                self._work_ns = time.perf_counter_ns() - began_ns

    def _end_step(self, now_ns: int) -> None:
        durations, self._open = self._open, []
        step = self._steps.close(durations, now_ns, time.time_ns(), threading.get_ident(), self._work_ns)
        self._covered_ns += step.covered_ns
        self._aggregate.add(step.frame)
        self._evidence.add(on_training_lane(step.frame))
        if self._files is not None:
            self._files.write(step.frame, step.covered_ns, self._steps.nesting.parents)
        if step.frame.step % self._every == 0 and (self._display is not None or self._scalars is not None):
            summary = self.summary()
            if self._display is not None:
                self._display.show(summary, step.frame.step)
            if self._scalars is not None:
                from .timing_export import write_scalars

                write_scalars(self._scalars, summary, step.frame.step)

    def summary(self) -> Summary:
        """Return the statistics so far, with what stands out among them."""
        with self._lock:
            lost = {"values that are no duration": self._refused} if self._refused else {}
            bare = account(self._aggregate.summary(skipped=lost), self._steps.nesting, self._covered_ns)
            # The rules look for modules, and a name is what stands for one here.
            named = replace(bare, rows=tuple(replace(row, fqn=row.name) for row in bare.rows))
            judged = diagnose(Evidence(named, longest=self._evidence.longest())) if bare.steps else bare
            heard = (one for one in judged.findings if one.severity != "info" or one.rule in JUDGED)
            return replace(bare, findings=tuple(heard))

    def bottlenecks(self) -> tuple[Finding, ...]:
        """Return what stands out: the name that dominates, steps that take several times as long as the others."""
        return tuple(finding for finding in self.summary().findings if finding.severity != "info")

    def print_summary(self) -> None:
        """Print the statistics and the verdict; they stay on the screen. The log gets the statistics as well."""
        if not self._on or os.getpid() != self._owner:
            return
        with self._lock:
            summary = self.summary()
            lines = render_timing_summary(summary)
            if self._files is not None:
                self._files.write_text("\n" + "\n".join(lines) + "\n")
            if self.rank == 0:
                lines = render_timing_summary(summary, self._printing.width)
                quiet = [f"Verdict   {HEALTHY}"] if summary.steps >= MIN_STEPS else []
                self._printing.print([*lines, *(render_card(summary) or quiet), ""])

    def close(self) -> None:
        """Write what is pending and give the screen back. A second call does nothing."""
        with self._lock:
            atexit.unregister(self.close)
            if not self._on or self._closed or os.getpid() != self._owner:
                return
            self._closed = True
            if self._files is not None:
                self._files.close()
            if self._scalars is not None:
                self._scalars.flush()
            self._printing.close()

    # What it can be turned into.

    def export_csv(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Write a line for each name of each step, by default beside the log; return the file."""
        from .timing_export import export_csv

        return export_csv(self._source(), path)

    def export_json(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Write all steps and the statistics as one JSON document, by default beside the log; return the file."""
        from .timing_export import export_json

        return export_json(self._source(), path)

    def plot(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Draw the longest names over the steps, and their means; return the picture, by default beside the log."""
        from .timing_export import plot_timings

        return plot_timings(self._source(), path)

    def _source(self) -> Path:
        if self._files is None:
            raise OutputError("TimingLogger: enable_file is off, so there are no records; it must be on for an export")
        with self._lock:
            self._files.flush()
        return self._files.records

    def __enter__(self) -> TimingLogger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


_global: TimingLogger | None = None


def set_global_timing_logger(timing_logger: TimingLogger | None) -> None:
    """Choose the logger that ``log_timing`` writes to; None switches it off."""
    global _global
    _global = timing_logger


def get_global_timing_logger() -> TimingLogger | None:
    """Return the logger that ``log_timing`` writes to."""
    return _global


def log_timing(name: str, time_ms: float) -> None:
    """Record a duration in milliseconds in the global logger and in the open autoprof session, where there are any."""
    if _global is not None:
        _global.log_timing(name, time_ms)
    record_in_session(name, time_ms)
