"""Every figure with short, long, odd and missing data: nothing covers data, overlaps or is cut off."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from figure_geometry import problems

from autoprof.base.frame import NOT_MEASURED
from autoprof.base.summary import Summary, WhatIf
from autoprof.compat.timer_logs import timeline_figure
from autoprof.logs import plot_metrics
from autoprof.logs.formats.global_timer import TimerRecord
from autoprof.reports.memory import MemoryHistory, memory_figure, memory_finding
from autoprof.reports.text import elide_all

GIB = 1 << 30
ODD = [
    "模型/编码器/第1层", "🔥/block", r"$\alpha$/x_1", "a_b_c", r"$\frac{$", "%d{}\\n", "<b>x</b>", "x",
    "model.transformer.encoder.layers.blocks.0.attention.self.query_key_value_projection",
]  # fmt: skip
MANY = [f"model/layers/{at}/self_attn" for at in range(40)]


def summary_of(*, capacity: int | None = None) -> Summary:
    """Return a summary of a run on a device of this capacity."""
    what_if = () if capacity is None else (WhatIf("x", 1, None, capacity // 2, None, "", memory_share=0.5),)
    return replace(Summary.empty(), memory={"allocated_bytes": 1}, what_if=what_if)


def history(steps: int) -> MemoryHistory:
    """Return the readings of a GPU."""
    allocated = (18 * GIB + np.random.default_rng(0).normal(0, 1e7, steps)).astype(np.int64)
    reserved = np.full(steps, 64 * GIB)
    series = {"allocated_bytes": allocated, "reserved_bytes": reserved, "peak_bytes": allocated + 40 * GIB}
    return MemoryHistory(np.arange(1, steps + 1), series)


@pytest.mark.parametrize("steps", [1, 2048])
def test_the_memory_figure(steps: int) -> None:
    """With any number of steps."""
    assert problems(memory_figure(history(steps), summary_of(capacity=80 * GIB))) == []


@pytest.mark.parametrize(
    "readings",
    [{}, {"allocated_bytes": np.zeros(5, np.int64)}, {"peak_bytes": np.full(5, NOT_MEASURED)}],
    ids=["none", "zero", "unmeasured"],
)
def test_the_memory_figure_without_readings(readings: dict[str, Any]) -> None:
    """No series, a series of zeros, a series without a value."""
    assert problems(memory_figure(MemoryHistory(np.arange(5), readings), summary_of())) == []


def test_the_title_of_the_memory_figure_is_its_finding() -> None:
    """The peak, and the device's memory where it is known."""
    peak = MemoryHistory(np.arange(2), {"peak_bytes": np.array([50 * GIB, 58 * GIB])})
    assert memory_finding(peak, summary_of(capacity=80 * GIB)) == "Peak 58.00 GiB of 80.00 GiB"
    assert memory_finding(peak, summary_of()) == "Peak 58.00 GiB"
    rss = MemoryHistory(np.arange(2), {"rss_bytes": np.array([GIB, GIB])})
    assert memory_finding(rss, summary_of()) == "Process peak 1.00 GiB"


def training(steps: int, **others: Any) -> pd.DataFrame:
    """Return the log of a training."""
    random = np.random.default_rng(0)
    step = np.arange(1, steps + 1)
    return pd.DataFrame({
        "step": step, "loss": 1 + 2 * np.exp(-step / (steps / 6)) + random.normal(0, 0.05, steps),
        "lr": np.linspace(0, 3e-4, steps), "throughput": 350 + random.normal(0, 9, steps), "batch_size": 64,
        "step_time_s": 0.18 + random.gamma(2, 0.003, steps), "data_time": random.gamma(2, 0.004, steps),
        "grad_norm": np.exp(random.normal(0, 0.3, steps)), "memory": 40.0, **others,
    })  # fmt: skip


@pytest.mark.parametrize("steps", [2, 5000])
def test_the_figure_of_a_log(steps: int) -> None:
    """Short and long, with validation in every step."""
    loss = np.linspace(3, 1, steps)
    assert problems(plot_metrics(training(steps, val_loss=loss), None)) == []


def test_the_figure_of_a_log_with_odd_names() -> None:
    """Columns of any name, and runs of any name."""
    columns = {f"{name} (ms)": np.linspace(1, 2, 50) for name in ODD}
    columns |= {f"loss_{name}": np.linspace(2, 1, 50) for name in ODD[:4]}
    assert problems(plot_metrics(pd.DataFrame({"step": range(50), **columns}), None)) == []
    runs = [training(50).assign(run=name) for name in ODD[-3:]]
    assert problems(plot_metrics(pd.concat(runs), None)) == []
    assert problems(plot_metrics(pd.concat([training(20).assign(run=f"runs/{at}") for at in range(40)]), None)) == []


@pytest.mark.parametrize(("ranks", "names"), [(1, ["a"]), (3, ODD), (8, MANY)])
def test_the_timeline(ranks: int, names: list[str]) -> None:
    """Intervals of some ranks."""
    spans = [
        TimerRecord(rank, name, at + rank / 10, at + 1 / (at + 1) + rank / 10, 1.0, None)
        for rank in range(ranks)
        for at, name in enumerate(names)
    ]
    assert problems(timeline_figure(pd.DataFrame(spans, columns=list(TimerRecord._fields)))) == []


def test_names_that_would_look_alike_keep_their_ends_apart() -> None:
    """A common beginning goes before the part that differs."""
    assert elide_all(["model/encoder/layers/1/attention", "model/encoder/layers/2/attention"], 16) == [
        "…1/attention", "…2/attention",
    ]  # fmt: skip
    assert elide_all(["a", "model/encoder/1"], 9) == ["a", "mode…er/1"]


def test_the_pictures_of_the_documentation_are_small_and_all_shown() -> None:
    """``docs/figures.md`` shows each picture that ``make figures`` draws, at most 100 kB each."""
    docs = Path(__file__).resolve().parents[2] / "docs"
    shown = set(re.findall(r"!\[[^]]*\]\(figures/(\S+)\)", (docs / "figures.md").read_text(encoding="utf-8")))
    sizes = {picture.name: picture.stat().st_size for picture in (docs / "figures").iterdir()}
    assert shown == set(sizes)
    assert max(sizes.values()) <= 100_000
