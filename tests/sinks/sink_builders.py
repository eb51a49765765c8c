"""Frames and summaries made by hand, so that every number a renderer shows is known."""

import unicodedata
from collections.abc import Mapping, Sequence

import numpy as np

from autoprof.base.frame import Layout, Phase, StepFrame
from autoprof.base.stats import Aggregate
from autoprof.base.summary import Summary

MS = 1_000_000

Rows = Sequence[tuple[str, str, int, float]]
"""Name, phase, index of the parent (-1: none), milliseconds; parents first."""

VRT: Rows = (
    ("VRT", "forward", -1, 280),
    ("VRT/Stage8", "forward", 0, 150),
    ("Spike时间自注意力", "forward", 0, 80),
    ("VRT", "backward", -1, 540),
    ("VRT/Stage8", "backward", 3, 350),
    ("VRT/Stage8", "recompute", 4, 100),
    ("Spike时间自注意力", "backward", 3, 160),
    ("Loss/VGG", "user", -1, 20),
    ("optimizer", "optimizer", -1, 60),
    ("data", "data", -1, 40),
)
"""A step of 1000 ms: 940 are covered, 60 are other."""


def acts(text: str) -> bool:
    """Say whether a text holds a character that acts instead of showing."""
    return any(unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") for char in text)


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def layout_of(rows: Rows, lanes: Sequence[int] | None = None) -> Layout:
    names, phases, parents, _ = zip(*rows, strict=True) if rows else ((), (), (), ())
    return Layout(
        names=tuple(names),
        fqns=tuple(None for _ in names),
        phases=tuple(Phase(phase) for phase in phases),
        parents=tuple(parents),
        calls=tuple(1 for _ in names),
        lanes=tuple(lanes or [0] * len(names)),
    )


def frame_of(
    rows: Rows = VRT,
    *,
    step: int = 1,
    step_ms: float = 1000,
    layout: Layout | None = None,
    lanes: Sequence[int] | None = None,
    scalars: Mapping[str, float] | None = None,
    memory: Mapping[str, int] | None = None,
    warmup: bool = False,
    **columns: object,
) -> StepFrame:
    """Make one frame; times in milliseconds."""
    return StepFrame(
        step=step,
        start_unix_ns=1_763_640_000_000_000_000 + step,
        duration_ns=int(step_ms * MS),
        layout=layout or layout_of(rows, lanes),
        start_ns=np.arange(len(rows), dtype=np.int64),
        host_ns=np.array([int(ms * MS) for *_, ms in rows], dtype=np.int64),
        scalars=scalars or {},
        memory=memory or {},
        overhead_ns=3 * MS,
        warmup=warmup,
        **columns,  # type: ignore[arg-type]
    )


def summary_of(frames: Sequence[StepFrame], notes: tuple[str, ...] = ()) -> Summary:
    """Aggregate frames as a session does."""
    aggregate = Aggregate()
    for frame in frames:
        aggregate.add(frame)
    return aggregate.summary(notes=notes)
