"""Saved runs made by hand: every time in them is known."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from autoprof.base.frame import Layout, Phase, StepFrame
from autoprof.base.stats import Aggregate
from autoprof.base.storage.runs import RunFolder
from autoprof.base.summary import Finding, Summary
from tests.saved_records import write_records

MS = 1_000_000
EVIL = "<script>alert(1)</script>"

Rows = Sequence[tuple[str, str, int, float]]
"""Name, phase, index of the parent (-1: none), milliseconds; parents first."""

ROWS: Rows = (
    ("data", "data", -1, 10),
    ("Net", "forward", -1, 40),
    ("Net/A", "forward", 1, 25),
    (EVIL, "forward", 1, 5),
    ("Net", "backward", -1, 40),
    ("Net/A", "backward", 4, 30),
    ("Net/A", "recompute", 5, 10),
    ("optimizer", "optimizer", -1, 5),
)
"""A step of 100 ms: 95 are covered, 5 are in no span."""


def layout_of(rows: Rows = ROWS) -> Layout:
    names, phases, parents, _ = zip(*rows, strict=True)
    fqns = tuple(f"net.{name.lower()}" if phase in ("forward", "backward") else None for name, phase, *_ in rows)
    ones, zeros = (1,) * len(rows), (0,) * len(rows)
    return Layout(names, fqns, tuple(Phase(phase) for phase in phases), parents, ones, zeros)


def frame_of(layout: Layout, step: int, times_ms: Sequence[float], step_ms: float, **values: object) -> StepFrame:
    return StepFrame(
        step=step,
        start_unix_ns=1_763_640_000_000_000_000 + step * 100 * MS,
        duration_ns=int(step_ms * MS),
        layout=layout,
        start_ns=np.arange(len(layout), dtype=np.int64),
        host_ns=np.array([int(ms * MS) for ms in times_ms], dtype=np.int64),
        memory={"rss_bytes": 1_000_000_000 + step},
        scalars={"loss": 1 / step},
        **values,  # type: ignore[arg-type]
    )


def frames_of(steps: int, slow: Sequence[int] = (), extra_ms: float = 200.0) -> list[StepFrame]:
    """Return equal steps; in the ``slow`` ones the data takes ``extra_ms`` longer."""
    layout, times = layout_of(), [ms for *_, ms in ROWS]
    frames = []
    for step in range(1, steps + 1):
        extra = extra_ms if step in slow else 0.0
        frames.append(frame_of(layout, step, [times[0] + extra, *times[1:]], 100 + extra, warmup=step <= 2))
    return frames


def summary_of(frames: Sequence[StepFrame], findings: Sequence[Finding] = ()) -> Summary:
    aggregate = Aggregate()
    for frame in frames:
        aggregate.add(frame)
    from dataclasses import replace

    return replace(aggregate.summary(), findings=tuple(findings))


def save_run(
    output: Path,
    frames: Sequence[StepFrame],
    *,
    name: str = "run",
    rank: int = 0,
    world_size: int = 1,
    closed: bool = True,
    edit: Callable[[Summary], Summary] = lambda summary: summary,
) -> Path:
    """Write the files of one rank of a run, as a session does."""
    folder = RunFolder.create(output, name=name, rank=rank, world_size=world_size, devices=("cpu",))
    write_records(folder.rank_path, frames)
    if closed:
        folder.write_summary(edit(summary_of(frames)), [])
        folder.finish("closed")
    return folder.path
