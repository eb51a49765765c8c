"""The second seed's table, column by column, from a run that has the seed's numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from attached import diagnosis_of
from evidence_builders import MS, evidence_of
from torch import nn

from autoprof.base.summary import MemoryRow, Progress, WhatIf
from autoprof.capture.memory import tabulate
from autoprof.diagnose import Evidence, OptimizerInfo, RunFacts, describe_optimizer, diagnose
from autoprof.reports.card import render_card

GIB = 2**30
HOUR = 3600 * 10**9
STEP = {"data": 0.1, "forward": 1855, "recompute": 1800, "backward": 2100, "optimizer": 100, "comm": 120, "step": 6000}
"""The seed's step: 6 s, a forward of 1855 ms, a backward of 4000 ms with its recompute, batch 1 on 3 GPUs."""
ADAM = OptimizerInfo("AdamW", None, None, 12 * GIB, can_fuse=True, device="cuda")
MEMORY = {"allocated_bytes": 19 * GIB, "reserved_bytes": 33 * GIB, "peak_bytes": 32 * GIB}


def seed(*, saved: int | None = 5 * GIB, progress: bool = True, **changes: Any) -> Evidence:
    """Return the seed's run: 32 GiB of 48, 12 of them Adam's state; 88.5 h to go."""
    facts = RunFacts(memory_capacity_bytes=48 * GIB, optimizers=(ADAM,))
    seen = evidence_of(STEP, repeat=20, facts=facts, **{"memory": MEMORY, "throughput": 0.5, **changes})
    rows = tuple(replace(row, memory_growth_bytes=saved, memory_peak_bytes=28 * GIB) for row in seen.summary.rows)
    summary = replace(seen.summary, rows=rows)
    summary = tabulate(summary, {None: MemoryRow(None, 6 * GIB, 0, 6 * GIB, 12 * GIB)})
    length = Progress("logged", 53100, 53100, round(88.5 * HOUR)) if progress else None
    return replace(seen, summary=replace(summary, progress=length))


def table(seen: Evidence) -> dict[str, WhatIf]:
    return {one.change: one for one in diagnose(seen).what_if}


def test_the_memory_column() -> None:
    """State in 8 bits, activations by the batch, and what checkpointing saves: of what is not held anyway."""
    found = {change: one.memory_bytes for change, one in table(seed()).items()}
    assert found == {
        "8-bit optimizer": 23 * GIB,  # as the seed's: 32 to 23
        "batch x 2": 40 * GIB,
        "no checkpointing": 37 * GIB,
    }


def test_the_step_column() -> None:
    """The optimizer and communication stay, all else follows the batch; recompute falls away."""
    found = {change: one.step_ns for change, one in table(seed()).items()}
    assert found == {
        "8-bit optimizer": 6000 * MS,
        "batch x 2": (220 + 2 * 5780) * MS,
        "no checkpointing": 4200 * MS,
    }


def test_throughput_and_time_to_the_end_follow_from_it() -> None:
    """Both by the time that the same samples take."""
    for change, one in table(seed()).items():
        times = 2 if change == "batch x 2" else 1
        ratio = one.step_ns / times / (6000 * MS)
        assert one.time_ratio == pytest.approx(ratio)
        assert one.throughput == pytest.approx(0.5 / ratio)
        assert one.remaining_ns == pytest.approx(88.5 * HOUR * ratio)


def test_a_run_of_unknown_length_is_marked() -> None:
    """The time for the same samples stands in its place."""
    summary = diagnose(seed(progress=False))
    assert all(one.remaining_ns is None for one in summary.what_if)
    text = " ".join(" ".join(render_card(summary, width=80)).split())
    assert "time to finish: unknown (a framework's callback or session.log tells it)" in text
    assert "x 0.70" in text


def test_a_change_that_does_not_fit_is_marked() -> None:
    """Activations of 23 GiB are 46 with twice the batch, beside 24 GiB of the model, on a card of 48."""
    found = table(seed(memory={**MEMORY, "peak_bytes": 47 * GIB}))
    assert "it does not fit into the memory" in found["batch x 2"].assumed
    assert "does not fit" not in found["8-bit optimizer"].assumed


def test_unmeasured_savings_leave_the_memory_unknown() -> None:
    """The time falls away all the same."""
    found = table(seed(saved=None))
    assert (found["no checkpointing"].memory_bytes, found["no checkpointing"].step_ns) == (None, 4200 * MS)
    assert "was not measured" in found["no checkpointing"].assumed


@pytest.mark.parametrize("width", [80, 200])
@pytest.mark.parametrize("pace", [True, False])
def test_the_table_is_aligned(width: int, pace: bool) -> None:
    """No line is wider than asked for, and every number ends where its heading does."""
    lines = render_card(diagnose(seed(progress=pace)), width=width)
    assert max(map(len, lines)) <= width
    start = next(at for at, line in enumerate(lines) if line.startswith("what if"))
    rows = lines[start : start + 5]
    assert len({len(row) for row in rows}) == 1
    assert [row[:16].strip() for row in rows[1:]] == ["unchanged", *table(seed())]
    assert ("to finish" in rows[0]) is pace


# What an optimizer is.


def described(optimizer: torch.optim.Optimizer, model: nn.Module) -> OptimizerInfo:
    model(torch.ones(2, 64)).sum().backward()
    optimizer.step()
    return describe_optimizer(optimizer)


def test_an_8_bit_version_leaves_a_quarter_of_the_state() -> None:
    """Where bitsandbytes has one."""
    model = nn.Linear(64, 128)
    fact = described(torch.optim.AdamW(model.parameters()), model)
    small = 2 * (128 * 4) + 2 * 4  # the bias's state, and two counts of steps
    assert fact.state_bytes == 2 * 8192 * 4 + small
    assert fact.freed_bytes == 3 * fact.state_bytes // 4
    assert (fact.kind, fact.origin, fact.can_fuse, fact.device) == (
        "AdamW",
        "torch",
        True,
        "cpu",
    )


def test_an_optimizer_without_state_is_described_after_some_steps() -> None:
    """SGD without momentum keeps nothing; that it loops over its parameters is known all the same."""
    import autoprof

    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    config = {"sinks": {}, "targets": [{"match": ".*"}], "sample": {"warmup": 0, "budget": None}}
    with autoprof.instrument(model, config, optimizer=optimizer) as session:
        for _ in range(12):
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
            session.step()
        session.summary()
        (fact,) = diagnosis_of(session).facts().optimizers or ()
    assert (fact.kind, fact.foreach, fact.state_bytes) == ("SGD", False, 0)
