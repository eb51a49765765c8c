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
import logging
import os
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from .._capture.hooks.function import LONGEST_NS
from .._capture.hooks.function import log_timing as record_in_session
from .._capture.marks.codes import MAX_MARKS
from .._core.failures import contain, describe
from .._core.names import clean_name
from .._process.ranks import rank as rank_here
from .._reports.card import HEALTHY, render_card
from .._stats import Aggregate
from ..devices import HostClock
from ..diagnose import MIN_STEPS, Evidence, EvidenceCollector, RunFacts, diagnose
from ..errors import OutputError
from ..frame import TRAINING_LANE, Phase
from ..summary import Finding, Summary
from ._display import Display
from ._durations import Duration, StepBuilder, on_training_lane
from ._timing_log import TimingFiles, render_timing_summary

logger = logging.getLogger("autoprof")


class TimingLogger:
    """Collect durations by name, write each step to ``timing_{timestamp}.log`` and show the longest names in place.

    Beside the log it writes ``timing_{timestamp}.jsonl``, autoprof's records, which ``export_csv``, ``export_json`` and
    ``plot`` read. All methods may be called from several threads. After the constructor only the exports raise.

    Args:
        log_dir: the folder of the log.
        enable_console: whether to show the run on ``stream``.
        enable_file: whether to write the log and the records.
        console_update_interval: steps between two updates of the console.
        file_flush_interval: steps between two writes to the disk.
        all_ranks: whether ranks other than 0 record too, to ``timing_{timestamp}_rank{N}.log``;
            ``autoprof.compat.timing_export.compare_ranks`` reads the files of all ranks.
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
        self._owner_pid = os.getpid()
        self._enabled = enabled and (self.rank == 0 or all_ranks)
        self._clock = clock or HostClock()
        self._lock = threading.RLock()
        self._builder = StepBuilder(self._clock.read())
        self._aggregate = Aggregate()
        self._evidence = EvidenceCollector()
        self._durations: list[Duration] = []
        self._closed = self._failed = False
        self._covered_ns = 0
        self._overhead_ns = 0
        self._invalid = 0
        self._console_update_interval = console_update_interval
        self._files: TimingFiles | None = None
        self._is_shown = enable_console and self.rank == 0
        if not self._enabled:
            return
        self._display = Display(stream or sys.stdout, live=self._is_shown)
        if enable_file:
            self._files = TimingFiles(Path(log_dir), self.rank, file_flush_interval)
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
    def log_file(self) -> Path | None:
        """The log; None without ``enable_file``."""
        return None if self._files is None else self._files.log

    @property
    def _recording(self) -> bool:
        return self._enabled and not (self._closed or self._failed) and os.getpid() == self._owner_pid

    def log_timing(self, name: str, time_ms: float) -> None:
        """Record a duration in milliseconds. Durations of one name in a step add up."""
        now_ns = self._clock.read()
        if not self._recording:
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
        if not self._recording:
            return
        with self._lock:
            began_ns = time.perf_counter_ns()
            try:
                with contain(self._fail):  # a failure here must not end the training
                    self._end_step(now_ns)
            finally:
                self._overhead_ns = time.perf_counter_ns() - began_ns

    def _fail(self, error: Exception) -> None:
        self._failed = True
        logger.warning(f"timing log: recording is off after {describe(error)}")

    def _end_step(self, now_ns: int) -> None:
        durations, self._durations = self._durations, []
        step = self._builder.build(durations, now_ns, time.time_ns(), threading.get_ident(), self._overhead_ns)
        self._covered_ns += step.covered_ns
        self._aggregate.add(step.frame)
        self._evidence.add(on_training_lane(step.frame))
        if self._files is not None:
            self._files.write(step.frame, step.covered_ns)
        if self._is_shown and step.frame.step % self._console_update_interval == 0:
            self._display.show(self.summary(), step.frame.step)

    def summary(self) -> Summary:
        """Return the statistics so far, with the findings about them."""
        with self._lock:
            skipped = {"values that are not durations": self._invalid} if self._invalid else {}
            summary = self._aggregate.summary(skipped=skipped)
            other_ns = summary.total_step_ns - self._covered_ns
            bare = replace(summary, phases={Phase.USER: self._covered_ns, Phase.OTHER: other_ns})
            # The rules search modules; here each name is treated as one.
            rows = tuple(replace(row, fqn=row.name, lane=TRAINING_LANE) for row in bare.rows)
            evidence = Evidence(replace(bare, rows=rows), RunFacts(has_model=False), longest=self._evidence.longest())
            judged = diagnose(evidence) if bare.steps else bare
            # Rules that apply to durations without phases. The others would only report missing signals.
            findings = (
                one for one in judged.findings if one.severity != "info" or one.rule in ("hot-module", "jitter")
            )
            return replace(bare, findings=tuple(findings))

    def bottlenecks(self) -> tuple[Finding, ...]:
        """Return the findings: a name that dominates, steps that take several times as long as the others."""
        return tuple(finding for finding in self.summary().findings if finding.severity != "info")

    def print_summary(self) -> None:
        """Print the statistics and the verdict below the panel, and write the statistics to the log."""
        if not self._enabled or os.getpid() != self._owner_pid:
            return
        with self._lock:
            summary = self.summary()
            lines = render_timing_summary(summary)
            if self._files is not None:
                self._files.write_text("\n" + "\n".join(lines) + "\n")
            if self.rank == 0:
                lines = render_timing_summary(summary, self._display.width)
                quiet = [f"Verdict   {HEALTHY}"] if summary.steps >= MIN_STEPS else []
                self._display.print([*lines, *(render_card(summary) or quiet), ""])

    def close(self) -> None:
        """Write pending lines and release the terminal. A second call does nothing."""
        with self._lock:
            atexit.unregister(self.close)
            if not self._enabled or self._closed or os.getpid() != self._owner_pid:
                return
            self._closed = True
            if self._files is not None:
                self._files.close()
            self._display.close()

    def export_csv(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Write a line per name and step, by default beside the log; return the file."""
        from .timing_export import export_csv

        return export_csv(self._source(), path)

    def export_json(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Write all steps and the statistics as one JSON document, by default beside the log; return the file."""
        from .timing_export import export_json

        return export_json(self._source(), path)

    def plot(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Draw the longest names over the steps, and their means; return the file, by default beside the log."""
        from .timing_export import plot_timings

        return plot_timings(self._source(), path)

    def _source(self) -> Path:
        if self._files is None:
            raise OutputError("TimingLogger: no records to export, because enable_file is False; pass enable_file=True")
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
    """Set the logger that ``log_timing`` writes to; None: no logger."""
    global _global
    _global = timing_logger


def log_timing(name: str, time_ms: float) -> None:
    """Record a duration in milliseconds in the global logger and in the open autoprof session, if any."""
    if _global is not None:
        _global.log_timing(name, time_ms)
    record_in_session(name, time_ms)
