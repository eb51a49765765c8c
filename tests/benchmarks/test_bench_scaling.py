"""The chart of cost by number of modules and by length of step."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from PIL import Image

from benchmarks import scaling
from benchmarks.floors import ForwardFloor
from benchmarks.interleave import time_steps
from benchmarks.scaling_page import page, write_page
from benchmarks.variant import Variant


def results() -> dict[str, Any]:
    """Costs of two points a panel: 1 % by default, 50 % for all others."""
    labels = {variant.name: variant.label for variant in scaling.variants() if variant.family != "bare"}
    costs = {name: 0.0123 if name == "default" else 0.5 for name in labels}
    return {
        "machine": {"cpu": "a processor", "usable_cores": 2, "torch": "2.13", "date": "2026-11-23"},
        "labels": labels,
        "seconds": 540,
        "seconds_of_default": 30.0,
        "modules": [{"modules": count, "step_s": count / 50_000, "costs": costs} for count in (10, 10_000)],
        "lengths": [{"modules": 5, "step_s": length, "costs": costs} for length in (1e-4, 1.0)],
    }


def test_every_variant_has_a_cost_at_a_point(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default and a stateless variant, each on a model of its own, beside the bare one."""
    monkeypatch.setattr(scaling, "TURN_S", 0.002)
    chosen = [Variant(), scaling.Default(), scaling.EveryStep(), ForwardFloor()]
    point = scaling.measure_point(partial(scaling.chain, 3), 0.01, chosen)
    assert point["modules"] == 3
    assert set(point["costs"]) == {"default", "every_step", "floor_forward"}
    assert sum(point["turns"]["default"]["steps"]) >= 2
    assert len(point["turns"]["floor_forward"]["seconds"]) == point["rounds"] == scaling.ROUNDS


def test_a_step_has_its_length() -> None:
    """The loop after the layers fills the step; it is never shorter."""
    workload = scaling.chain(2, 60.0)
    assert min(time_steps(workload.step, 2, workload.synchronize).steps_ns) > 30_000_000
    assert len(workload.targets) == 2


def test_the_cost_of_the_default_is_that_of_its_whole_run() -> None:
    """A turn of few steps counts as many; of the others the median turn counts."""
    lane = scaling._Lane(Variant(), scaling.chain(1), stays_open=True, seconds=[0.3, 0.1, 0.1], turns=[10, 95, 95])
    assert scaling._cost(lane, 0.1, whole=True) == pytest.approx(0.1)
    assert scaling._cost(lane, 0.1, whole=False) == median([0.3, 0.1, 0.1]) / 0.1 - 1


def test_the_page_has_a_cell_for_each_variant_and_point(tmp_path: Path) -> None:
    """Its tables are the results, and the pictures of both themes lie where it says."""
    write_page(results(), tmp_path)
    text = (tmp_path / "scaling.md").read_text()
    assert text.count("| 1.23 % | 50 % | 50 % | 50 % | 50 % | 50 % |") == 4
    assert "| 10,000, 200 ms |" in text
    assert "| 0.1 ms |" in text
    assert "| 1 s |" in text
    assert all(len(line) <= 130 for line in page(results()) if not line.startswith("|"))
    for theme, paper in (("light", (255, 255, 255)), ("dark", (13, 17, 23))):
        assert f"pictures/scaling-{theme}.png" in text
        with Image.open(tmp_path / "pictures" / f"scaling-{theme}.png") as picture:
            assert picture.convert("RGB").getpixel((2, 2)) == paper
