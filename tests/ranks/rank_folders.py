"""Write the folder of a run of many ranks without training: real files, drawn times, a known slow rank."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from autoprof.base.frame import Layout, Nanoseconds, Phase, StepFrame
from autoprof.base.storage.records import RecordWriter
from autoprof.base.storage.runs import RunFolder

NAME: Final = "run"
BLOCKS: Final = 12
"""Blocks of the model: each has a forward and a backward."""
BLOCK_NS: Final = 2_000_000
"""The time of a block's forward; its backward takes twice as long."""
NOISE: Final = 0.02
"""The spread of each span's length from step to step, as a part of it."""


@dataclass(frozen=True, slots=True)
class SlowBlock:
    """The defect: one rank's ``phase`` of ``blocks.<block>`` takes ``extra_ns`` longer in each step."""

    rank: int
    block: int
    phase: Phase
    extra_ns: int

    @property
    def name(self) -> str:
        """The block's name."""
        return f"model/blocks.{self.block}"


def layout_of(blocks: int = BLOCKS) -> Layout:
    """Return the spans of a step: a batch, its copy, the blocks' forward and backward, all-reduce, optimizer."""
    rows: list[tuple[str, str | None, Phase, int]] = [
        ("(data)", None, Phase.DATA, -1),
        ("(copy)", None, Phase.H2D, -1),
        ("model", "model", Phase.FORWARD, -1),
    ]
    rows += [(f"model/blocks.{i}", f"model.blocks.{i}", Phase.FORWARD, 2) for i in range(blocks)]
    backward = len(rows)
    rows += [("(backward)", None, Phase.BACKWARD, -1), ("model", "model", Phase.BACKWARD, backward)]
    rows += [(f"model/blocks.{i}", f"model.blocks.{i}", Phase.BACKWARD, backward + 1) for i in reversed(range(blocks))]
    rows += [("all_reduce", None, Phase.COMM, backward), ("(optimizer)", None, Phase.OPTIMIZER, -1)]
    names, fqns, phases, parents = zip(*rows, strict=True)
    return Layout(names, fqns, phases, parents, (1,) * len(rows), (0,) * len(rows))


def usual_self_ns(layout: Layout) -> Nanoseconds:
    """Return the self time of each span of a usual step."""
    usual = {Phase.DATA: 1, Phase.H2D: 1, Phase.COMM: 2, Phase.OPTIMIZER: 3}
    times = []
    for name, phase in zip(layout.names, layout.phases, strict=True):
        if "blocks" in name:
            times.append(BLOCK_NS if phase is Phase.FORWARD else 2 * BLOCK_NS)
        else:
            times.append(usual.get(phase, 1) * BLOCK_NS // 4)
    return np.array(times, dtype=np.int64)


def draw_self_ns(layout: Layout, steps: int, seed: Sequence[int]) -> Nanoseconds:
    """Return the drawn self times of the spans in each step (steps × spans)."""
    noise = np.random.default_rng(seed).normal(1.0, NOISE, size=(steps, len(layout))).clip(0.5, 2.0)
    drawn: Nanoseconds = (usual_self_ns(layout) * noise).astype(np.int64)
    return drawn


def frames_of(layout: Layout, own_ns: Nanoseconds, longest_ns: Nanoseconds, steps: Sequence[int]) -> list[StepFrame]:
    """Return the frames with these self times; the all-reduce lasts until the slowest rank's step is ``longest_ns``."""
    own_ns = own_ns.copy()
    own_ns[:, layout.phases.index(Phase.COMM)] += longest_ns - own_ns.sum(axis=1)
    totals, starts = own_ns.copy(), np.zeros_like(own_ns)
    for span in reversed(range(len(layout))):
        if layout.parents[span] >= 0:
            totals[:, layout.parents[span]] += totals[:, span]
    ends: dict[int, Nanoseconds] = {-1: np.zeros(len(own_ns), dtype=np.int64)}
    for span, parent in enumerate(layout.parents):
        starts[:, span] = ends[parent]
        ends[span] = starts[:, span].copy()
        ends[parent] = ends[parent] + totals[:, span]
    begins = 1_790_000_000_000_000_000 + np.cumsum(longest_ns)
    return [
        StepFrame(
            step=step,
            start_unix_ns=int(begins[at]),
            duration_ns=int(longest_ns[at]),
            layout=layout,
            start_ns=starts[at],
            host_ns=totals[at],
            scalars={"samples": 32.0},
            overhead_ns=50_000,
        )
        for at, step in enumerate(steps)
    ]


def write_rank(
    output: Path, rank: int, world_size: int, steps: Sequence[int], slow: SlowBlock | None = None, seed: int = 0
) -> None:
    """Write the folder of one rank; the folder of the run is ``output / NAME``."""
    layout = layout_of()
    own_ns = draw_self_ns(layout, len(steps), (seed, rank))
    longest = np.full(len(steps), int(usual_self_ns(layout).sum() * (1 + 2 * NOISE)), dtype=np.int64)
    if slow is not None:
        longest += slow.extra_ns
        if slow.rank == rank:
            spans = zip(layout.names, layout.phases, strict=True)
            own_ns[:, list(spans).index((slow.name, slow.phase))] += slow.extra_ns
    folder = RunFolder.create(output, rank=rank, world_size=world_size, name=NAME, config={}, devices=["cpu"])
    writer = RecordWriter(folder.rank_path, 1e9, lambda: 0.0)
    try:
        for frame in frames_of(layout, own_ns, longest, steps):
            writer.write(frame)
    finally:
        writer.close()
    folder.finish("closed")


def write_ranks(
    output: Path,
    world_size: int,
    steps: Sequence[int],
    slow: SlowBlock | None = None,
    *,
    seed: int = 0,
    processes: int = 1,
) -> Path:
    """Write the run of all ranks, on some processes; return its folder."""
    output.mkdir(parents=True, exist_ok=True)
    tasks = [(output, rank, world_size, steps, slow, seed) for rank in range(world_size)]
    write_rank(*tasks[0])
    if processes == 1:
        for task in tasks[1:]:
            write_rank(*task)
    else:
        with multiprocessing.get_context("spawn").Pool(processes) as pool:
            pool.starmap(write_rank, tasks[1:], chunksize=4)
    return output / NAME
