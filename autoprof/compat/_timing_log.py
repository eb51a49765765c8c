"""The files of a timing logger: the log, in the text form that users' scripts read, and autoprof's records."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from .._core.units import NS_PER_MS, format_percent
from .._reports.log import LABEL, LABEL_MAX, RULE, SUM_OF_PARTS
from .._reports.name_averages import NameAverages
from .._reports.name_lines import name_lines, walk
from .._reports.name_tree import NameTree, name_tree
from .._reports.text import elide, fit, pad, safe
from .._storage.line_file import LineFile
from .._storage.steps_jsonl import FrameEncoder
from ..errors import OutputError
from ..frame import Phase, StepFrame
from ..summary import Summary

NUMBERS_WIDTH: Final = len(": avg= 1805.28ms  min= 1799.99ms  max= 1805.28ms  (n=1000)")
MIN_NAME_WIDTH: Final = 16
MIN_OTHER_MS: Final = 0.005
"""The line ``other`` is omitted below it: it would read 0.00ms."""

logger = logging.getLogger("autoprof")


class TimingFiles:
    """Writes steps to the log and to the records. A file that fails is given up with one warning."""

    def __init__(self, folder: Path, rank: int, flush_every: int) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(
                f"TimingLogger: log_dir {folder} cannot be created ({error.strerror}); it must be a folder"
            ) from error
        self.log = _create_log(folder.absolute(), rank)
        self.records = self.log.with_suffix(".jsonl")
        self._files: dict[Path, LineFile] = {}
        for path in (self.log, self.records):
            # The files are flushed after a number of steps instead.
            self._files[path] = LineFile(path, float("inf"), time.monotonic)
        self._encode = FrameEncoder().encode
        self._averages = NameAverages()
        self._flush_every = flush_every
        self._steps_to_flush = flush_every

    def write(self, frame: StepFrame, covered_ns: int) -> None:
        """Append a step to both files; flush them at each ``flush_every``-th step."""
        text = render_timing_step(frame, self._averages, covered_ns)
        self._attempt(self.log, lambda file: file.write(text))
        self._attempt(self.records, lambda file: file.write(self._encode(frame)))
        self._steps_to_flush -= 1
        if not self._steps_to_flush:
            self.flush()

    def write_text(self, text: str) -> None:
        """Append text to the log."""
        self._attempt(self.log, lambda file: file.write(text))

    def flush(self) -> None:
        """Write pending lines to both files."""
        self._steps_to_flush = self._flush_every
        for path in (self.log, self.records):
            self._attempt(path, LineFile.flush)

    def close(self) -> None:
        """Write pending lines and close both files."""
        for path in (self.log, self.records):
            self._attempt(path, LineFile.close)

    def _attempt(self, path: Path, action: Callable[[LineFile], None]) -> None:
        file = self._files.get(path)
        if file is None:
            return
        try:
            action(file)
        except OSError as error:
            del self._files[path]
            logger.warning(f"{path}: nothing more is written after {type(error).__name__}: {error}")


def _create_log(folder: Path, rank: int) -> Path:
    """Create the log of this second; a number is added if another logger has the name."""
    stamp, number = int(time.time()), 0
    of_rank = f"_rank{rank}" if rank else ""
    while True:
        suffix = f"_{number}" if number else ""
        path = folder / f"timing_{stamp}{suffix}{of_rank}.log"
        try:
            path.touch(exist_ok=False)
        except FileExistsError:
            number += 1
            continue
        except OSError as error:
            raise OutputError(
                f"TimingLogger: {path} cannot be written ({error.strerror}); log_dir must be a writable folder"
            ) from error
        return path


def render_timing_step(frame: StepFrame, averages: NameAverages, covered_ns: int) -> str:
    """Return the section of a step: names in descending order, parts indented, percentages of the step.

    ``Total`` is the step, ``other`` its time without a name. Names without a slash between them may overlap.
    """
    tree = name_tree(frame.layout)
    averages.count(frame)
    totals_ns = tree.totals_ns(frame.total_ns).tolist()
    lines = ["", RULE, f"Step {frame.step}", RULE]
    _add_names(lines, tree, tree.separate, totals_ns, averages.of(frame.layout), frame.step_ns)
    other_ns = frame.step_ns - covered_ns
    if other_ns >= MIN_OTHER_MS * NS_PER_MS:
        lines.append(f"{_label('other', 0)}: {_ms(other_ns)} ({_percent(other_ns, frame.step_ns)})")
    return "\n".join([*lines, "", f"Total{'-' * (LABEL - 5)}: {_ms(frame.step_ns)}", ""])


def _add_names(
    lines: list[str],
    tree: NameTree,
    siblings: list[int],
    values_ns: list[int],
    averages: list[float | None],
    step_ns: int,
) -> None:
    for index in sorted(siblings, key=lambda index: -values_ns[index]):
        node, ns, average = tree.nodes[index], values_ns[index], averages[index]
        share = f" ({_percent(ns, step_ns)})" if not node.depth else ""
        mean = "" if average is None else f" [avg: {_ms(average)}]"
        suffix = SUM_OF_PARTS if node.is_header else ""
        lines.append(f"{_label(node.label, node.depth)}: {_ms(ns)}{share}{mean}{suffix}")
        _add_names(lines, tree, tree.children[index + 1], values_ns, averages, step_ns)


def render_timing_summary(summary: Summary, width: int = LABEL + NUMBERS_WIDTH) -> list[str]:
    """Return the summary: average, minimum and maximum per step of each name, and the steps in which it occurred.

    If ``width`` is too narrow, the middle of names is omitted, down to ``MIN_NAME_WIDTH`` cells.
    """
    name_width = min(max(width - NUMBERS_WIDTH, MIN_NAME_WIDTH), LABEL)
    lines = [RULE, f"Timing Summary (Total {summary.steps} steps)", RULE]
    grouped = name_lines(summary)
    for line, depth, name in (*walk(grouped.roots), *walk(grouped.separate)):
        row = line.rows[0]
        calls = f"  calls={row.calls}" if row.calls != row.steps else ""
        label = _label(name, depth) if name_width == LABEL else fit(_label(name, depth).rstrip(), name_width)
        lines.append(_statistics(label, (row.mean_ns, row.min_ns, row.max_ns), row.steps) + calls)
    lines += _unattributed(summary, name_width)
    if summary.steps:
        times = summary.step_mean_ns, summary.step_min_ns, summary.step_max_ns
        lines += ["", _statistics(f"Total{'-' * (name_width - 5)}", times, summary.steps)]
    lines += [f"dropped: {count} {reason}" for reason, count in {**summary.dropped, **summary.skipped}.items()]
    return [*lines, RULE]


def _unattributed(summary: Summary, name_width: int) -> list[str]:
    """Return the line of the time without a name; if that is most of the step, with advice."""
    other_ns = summary.phases.get(Phase.OTHER, 0)
    if not summary.steps or other_ns < MIN_OTHER_MS * NS_PER_MS * summary.steps:
        return []
    share = other_ns / summary.total_step_ns
    mean_ms = other_ns / summary.steps / NS_PER_MS
    lines = [f"{pad('other', name_width)}: avg={mean_ms:>7.2f}ms  ({format_percent(share)} of Total)"]
    # The share of a step without a name from which on the summary advises to time more of it.
    if share > 0.5:
        lines.append("Most of the step has no name. Log backward, optimizer and data loading as well,")
        lines.append("or let autoprof.instrument(model) time them.")
    return lines


def _statistics(label: str, times_ns: tuple[int, int, int], steps: int) -> str:
    mean, least, most = (f"{ns / NS_PER_MS:>7.2f}ms" for ns in times_ns)
    return f"{label}: avg={mean}  min={least}  max={most}  (n={steps})"


def _label(name: str, depth: int) -> str:
    return pad(elide("  " * depth + ("- " if depth else "") + safe(name), LABEL_MAX), LABEL)


def _ms(ns: float) -> str:
    return f"{ns / NS_PER_MS:>8.2f}ms"


def _percent(ns: int, step_ns: int) -> str:
    return f"{100 * ns / step_ns if step_ns else 0.0:5.1f}%"
