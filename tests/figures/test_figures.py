"""Every figure with short, long, odd and missing data: nothing covers data, overlaps or is cut off."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from figure_geometry import problems
from matplotlib.colors import to_rgb

from autoprof._reports import memory
from autoprof._reports.fonts import script_for
from autoprof._reports.memory import HeldMemory, MemoryHistory, NameMemory, finding, held_memory, memory_figure
from autoprof._reports.text import elide_all
from autoprof.compat._timeline import timeline_figure
from autoprof.compat.timer_logs import TimerRecord
from autoprof.frame import NOT_MEASURED
from autoprof.logs import plot_metrics
from autoprof.summary import MemoryRow, Summary

GIB = 1 << 30
ODD = [
    "模型/编码器/第1层", "🔥/block", r"$\alpha$/x_1", "a_b_c", r"$\frac{$", "%d{}\\n", "<b>x</b>", "x",
    "model.transformer.encoder.layers.blocks.0.attention.self.query_key_value_projection",
]  # fmt: skip
MANY = [f"model/layers/{at}/self_attn" for at in range(40)]


def history(steps: int, names: Sequence[str] = (), **others: Any) -> MemoryHistory:
    """Return the readings of a GPU."""
    allocated = (18 * GIB + np.random.default_rng(0).normal(0, 1e7, steps)).astype(np.int64)
    reserved = np.full(steps, 64 * GIB)
    series = {"allocated_bytes": allocated, "reserved_bytes": reserved, "peak_bytes": allocated + 40 * GIB}
    held = tuple(NameMemory(name, GIB // (at + 1), 0, GIB, GIB, 2 * GIB) for at, name in enumerate(names))
    about = {"whole": NameMemory("", 0, 0, 3 * GIB, 3 * GIB, 6 * GIB), "capacity_bytes": 80 * GIB, **others}
    return MemoryHistory(np.arange(1, steps + 1), series, held, **about)


@pytest.mark.parametrize("names", [[], ["VRT"], ODD, MANY], ids=["none", "one", "odd", "many"])
@pytest.mark.parametrize("steps", [1, 30, 2048])
def test_the_memory_figure(steps: int, names: list[str]) -> None:
    """With any number of steps and names."""
    assert problems(memory_figure(history(steps, names))) == []


def test_the_memory_figure_of_a_process() -> None:
    """Small parts of a large process have labels that do not overlap."""
    rss = np.full(30, 700 << 20)
    parts = NameMemory("", 0, 0, 1 << 20, 1 << 20, 2 << 20)
    figure = memory_figure(MemoryHistory(np.arange(30), {"rss_bytes": rss, "rss_peak_bytes": rss}, (), 1, parts))
    assert problems(figure) == []


@pytest.mark.parametrize(
    "readings",
    [{}, {"allocated_bytes": np.zeros(5, np.int64)}, {"peak_bytes": np.full(5, NOT_MEASURED)}],
    ids=["none", "zero", "unmeasured"],
)
def test_the_memory_figure_without_readings(readings: dict[str, Any]) -> None:
    """No series, a series of zeros, a series without a value."""
    held = (NameMemory("VRT", 0, 0, GIB),)
    assert problems(memory_figure(MemoryHistory(np.arange(5), readings, held, 1, held[0]))) == []


def test_the_title_of_the_memory_figure_is_its_finding() -> None:
    """The peak, the device's memory, and the part that holds most of it."""
    series = {"peak_bytes": np.array([50 * GIB, 58 * GIB])}
    whole = NameMemory("", 0, 0, 3 * GIB, 3 * GIB, 6 * GIB)
    known = MemoryHistory(np.arange(2), series, (), 1, whole, 80 * GIB)
    assert finding(known) == (
        "Peak 58.00 GiB of 80.00 GiB, held mostly by activations and other tensors (46.00 GiB, 79 %)"
    )
    even = MemoryHistory(np.arange(2), series, (), 1, NameMemory("", 0, 0, 10 * GIB, 10 * GIB, 20 * GIB))
    assert finding(even) == "Peak 58.00 GiB; largest part: optimizer state (20.00 GiB, 34 %)"
    assert finding(MemoryHistory(np.arange(2), series)) == "Peak 58.00 GiB"
    rss = MemoryHistory(np.arange(2), {"rss_bytes": np.array([GIB, GIB])}, (), 1, NameMemory("", 0, 0, GIB // 2))
    assert finding(rss) == "Process peak 1.00 GiB, held mostly by parameters (512.0 MiB, 50 %)"


def test_the_whole_run_of_a_summary_gives_the_parts() -> None:
    """Of a summary without a count of the model, and of none without a device, nothing is invented."""
    table = (MemoryRow(None, 10, 2, 12, 24), MemoryRow("A", 10, 2, 12, 24))
    assert held_memory(replace(Summary.empty(), memory_table=table)) == HeldMemory(
        (NameMemory("A", 0, 0, 12, 12, 24),), NameMemory("", 0, 0, 12, 12, 24)
    )
    assert held_memory(replace(Summary.empty(), memory_table=(MemoryRow(None),))) == HeldMemory()


def test_neighbouring_parts_differ_in_grey_print() -> None:
    """By lightness, or by a hatch; lines differ by lightness, or by dashes."""
    looks = list(memory._PARTS.values())
    for (color, hatch), (other, other_hatch) in pairwise(looks):
        assert hatch != other_hatch or abs(_lightness(color) - _lightness(other)) > 0.25
    for keys in (("allocated_bytes", "reserved_bytes", "peak_bytes"), ("rss_bytes", "rss_peak_bytes")):
        dashes = [str(memory._STYLES[key].get("linestyle")) for key in keys]
        assert len(set(dashes)) == len(dashes)


def _lightness(color: str) -> float:
    red, green, blue = to_rgb(color)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


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


@pytest.mark.parametrize("steps", [2, 30, 5000])
def test_the_figure_of_a_log(steps: int) -> None:
    """Short and long, with validation in every step."""
    loss = np.linspace(3, 1, steps)
    assert problems(plot_metrics(training(steps, val_loss=loss), None)) == []


def test_the_figure_of_a_log_with_values_that_are_none() -> None:
    """NaN, infinite, all zero, and one step far above the others."""
    table = training(300)
    table.loc[100:150, "loss"] = np.nan
    table.loc[200, "loss"] = np.inf
    table.loc[9, "step_time_s"] = 60.0
    assert problems(plot_metrics(table, None)) == []
    assert problems(plot_metrics(table * 0, None)) == []


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
    assert problems(timeline_figure(spans)) == []


def test_names_that_would_look_alike_keep_their_ends_apart() -> None:
    """A common beginning goes before the part that differs."""
    assert elide_all(["model/encoder/layers/1/attention", "model/encoder/layers/2/attention"], 16) == [
        "…1/attention", "…2/attention",
    ]  # fmt: skip
    assert elide_all(["a", "model/encoder/1"], 9) == ["a", "mode…er/1"]


def test_ascii_names_need_no_search() -> None:
    """The base font has them."""
    assert script_for(["VRT/Stage8", "$x_1$"]).families == ("DejaVu Sans",)


def test_the_pictures_of_the_documentation_are_small_and_all_shown() -> None:
    """``docs/figures.md`` shows each picture that ``make figures`` draws, at most 100 kB each."""
    docs = Path(__file__).resolve().parents[2] / "docs"
    shown = set(re.findall(r"!\[[^]]*\]\(figures/(\S+)\)", (docs / "figures.md").read_text(encoding="utf-8")))
    sizes = {picture.name: picture.stat().st_size for picture in (docs / "figures").iterdir()}
    assert shown == set(sizes)
    assert max(sizes.values()) <= 100_000
