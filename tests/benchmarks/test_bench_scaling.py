"""The chart of cost by number of modules and by length of step."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from benchmarks import scaling
from benchmarks.floors import ForwardFloor
from benchmarks.interleave import time_steps
from benchmarks.scaling_default import Default, DefaultRun, Turn, measure
from benchmarks.scaling_page import page, write_page
from benchmarks.variant import Variant


def results() -> dict[str, Any]:
    """Costs of two points a panel: 1 % by default, 50 % for all others."""
    labels = {variant.name: variant.label for variant in scaling.variants() if variant.family != "bare"}
    after = [{"seconds": seconds, "added_s": 0.045, "cost": 0.045 / seconds} for seconds in (1.0, 5.2, 30.4)]
    default = {"opening_s": 0.06, "closing_s": 1.24, "after": after}
    costs = {name: 0.0123 if name == "default" else 0.5 for name in labels}
    return {
        "machine": {"cpu": "a processor", "usable_cores": 2, "torch": "2.13", "date": "2026-11-23"},
        "labels": labels,
        "seconds": 540,
        "seconds_of_default": 30.0,
        "modules": [
            {"modules": count, "step_s": count / 50_000, "costs": costs, "default": default} for count in (10, 10_000)
        ],
        "lengths": [{"modules": 5, "step_s": length, "costs": costs} for length in (1e-4, 1.0)],
    }


def test_every_variant_has_a_cost_at_a_point(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default and a stateless variant, each on a model of its own, beside the bare one."""
    monkeypatch.setattr(scaling, "TURN_S", 0.002)
    chosen = [Variant(), Default(), scaling.EveryStep(), ForwardFloor()]
    point = scaling.measure_point(partial(scaling.chain, 3), 0.01, chosen)
    assert point["modules"] == 3
    assert set(point["costs"]) == {"default", "every_step", "floor_forward"}
    assert point["default"]["after"][-1]["steps"] >= 1
    assert len(point["turns"]["floor_forward"]["seconds"]) == point["rounds"] == scaling.ROUNDS


def test_a_variant_with_a_long_turn_has_no_further_one_and_no_cost(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its cell is a dash with the reason below the table; the bare model keeps its turns."""
    monkeypatch.setattr(scaling, "TURN_S", 0.002)
    monkeypatch.setattr(scaling, "LONGEST_TURN_S", 0.0)
    point = scaling.measure_point(partial(scaling.chain, 3), 0.01, [Variant(), ForwardFloor()])
    assert point["costs"] == {"floor_forward": None}
    assert len(point["turns"]["floor_forward"]["seconds"]) == 1
    assert len(point["turns"]["bare"]["seconds"]) == point["rounds"] == scaling.ROUNDS
    made = results()
    made["modules"][1]["costs"] = {**made["modules"][1]["costs"], "torch_profiler": None}
    made["modules"][1]["omitted"] = {"torch_profiler": "its first 2 steps took 70 s"}
    write_page(made, tmp_path)
    text = (tmp_path / "scaling.md").read_text()
    assert "| 50 % | 50 % | — | 50 % | 50 % |" in text
    assert "—, 10,000, 200 ms: *torch.profiler, always recording* is not measured; its first 2 steps took 70 s." in text


def test_long_steps_have_shorter_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two steps of each variant, so that 10,000 modules take minutes."""
    monkeypatch.setattr(scaling, "LONG_STEP_S", 0.0)
    monkeypatch.setattr(scaling, "TURN_S", 0.0)
    point = scaling.measure_point(partial(scaling.chain, 3), 0.01, [Variant(), ForwardFloor()])
    assert set(point["turns"]["floor_forward"]["steps"]) == {scaling.FEWEST_LONG_STEPS}


def test_a_step_has_its_length() -> None:
    """The loop after the layers fills the step; it is never shorter."""
    workload = scaling.chain(2, 60.0)
    assert min(time_steps(workload.step, 2, workload.synchronize).steps_ns) > 30_000_000
    assert len(workload.targets) == 2


def turn(steps: int, seconds: float, bare_seconds: float) -> Turn:
    """Return a turn with half as many bare steps, all of it processor time."""
    return Turn(steps, seconds, seconds, steps // 2, bare_seconds, bare_seconds)


def test_the_cost_of_the_default_is_what_its_steps_took_beyond_bare_ones_beside_them() -> None:
    """The machine became slower in the second turn, for both."""
    made = DefaultRun(turns=[turn(20, 2.4, 1.0), turn(20, 4.0, 2.0)])
    assert made.cost == pytest.approx(0.4 / 6.0)


def test_the_cost_after_some_seconds_is_that_of_the_turns_up_to_then() -> None:
    """The first steps cost most of it."""
    made = DefaultRun(turns=[turn(20, 1.2, 0.5), turn(80, 4.0, 2.0), turn(80, 4.0, 2.0)]).to_dict()["after"]
    assert [(one["seconds"], one["steps"]) for one in made] == [(1.2, 20), (5.2, 100), (9.2, 180)]
    assert [one["added_s"] for one in made] == pytest.approx([0.2] * 3)
    assert [one["cost"] for one in made] == pytest.approx([0.2, 0.04, 0.2 / 9.0])


def test_a_run_that_ends_at_one_of_the_times_is_stated_once() -> None:
    """It ends some steps after the five seconds that were asked for."""
    made = DefaultRun(turns=[turn(20, 1.2, 0.5), turn(80, 3.9, 1.9)]).to_dict()["after"]
    assert [one["steps"] for one in made] == [20, 100]


def test_a_default_run_is_measured_from_its_set_up_to_its_end() -> None:
    """Bare steps lie between its turns and belong to no step of the session."""
    made = measure(partial(scaling.chain, 2), 0.02)
    assert made.opening_s > 0
    assert made.closing_s > 0
    assert made.overhead is not None
    assert sum(one.seconds for one in made.turns) >= 0.02
    assert all(one.bare_steps for one in made.turns)


def test_the_page_has_a_cell_for_each_variant_and_point(tmp_path: Path) -> None:
    """Its tables are the results, and the pictures of both themes lie where it says."""
    write_page(results(), tmp_path)
    text = (tmp_path / "scaling.md").read_text()
    assert text.count("| 1.23 % | 50 % | 50 % | 50 % | 50 % | 50 % |") == 4
    assert "| 10,000, 200 ms |" in text
    assert text.count("| 60 ms | 45 ms, 4.50 % | 45 ms, 0.87 % | 45 ms, 0.15 % | 1.2 s |") == 2
    assert "| 0.1 ms |" in text
    assert "| 1 s |" in text
    assert all(len(line) <= 130 for line in page(results()) if not line.startswith("|"))
    for theme, paper in (("light", (255, 255, 255)), ("dark", (13, 17, 23))):
        assert f"pictures/scaling-{theme}.png" in text
        with Image.open(tmp_path / "pictures" / f"scaling-{theme}.png") as picture:
            assert picture.convert("RGB").getpixel((2, 2)) == paper
