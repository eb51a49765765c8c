"""The cost of modules and of steps: each variant runs, leaves nothing behind, and is compared with its limit."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import longest, module, paired, steps
from benchmarks.stats import Estimate
from benchmarks.table import at_most
from benchmarks.variants import variants
from benchmarks.workloads import tiny_layers

NAMES = [variant.name for variant in variants("")]


def hooks(model: torch.nn.Module) -> int:
    """Count the hooks on a model."""
    kinds = ("_forward_pre_hooks", "_forward_hooks", "_backward_hooks", "_backward_pre_hooks")
    return sum(len(getattr(one, kind)) for one in model.modules() for kind in kinds)


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize("name", NAMES)
def test_a_variant_leaves_the_model_without_hooks(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And without a folder: what is opened for a block is closed after it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    workload = tiny_layers(torch.device("cpu"))
    with tempfile.TemporaryDirectory() as folder:
        chosen = [variant for variant in variants(folder) if variant.name == name]
        found = paired.measure_blocks(lambda: workload, chosen, rounds=1, steps=2, settling=1)
    assert found.errors == {}
    assert len(found.pairs[name]["wall"]["own"]) == len(found.pairs[name]["cpu"]["bare"]) == 1
    assert hooks(workload.model) == 0
    # torch makes a cache of compiled code where the count of FLOPs imports its compiler first
    assert not [path for path in tmp_path.iterdir() if not path.name.startswith("torchinductor_")]


def test_a_variant_that_raises_is_left_out_with_its_reason() -> None:
    """The others are measured."""
    broken, good = variants("")[:2]

    def fail(_workload: object) -> None:
        raise RuntimeError("breaks the model")

    broken.open = fail  # type: ignore[method-assign]
    make = lambda: tiny_layers(torch.device("cpu"))  # noqa: E731
    found = paired.measure_blocks(make, [broken, good], rounds=2, steps=1, settling=1)
    assert found.errors == {broken.name: "RuntimeError: breaks the model"}
    assert len(found.pairs[good.name]["wall"]["own"]) == 2


@pytest.mark.parametrize("is_shared", [True, False])
def test_recorded_and_bare_turns_alternate_in_an_open_session(is_shared: bool) -> None:
    """Each pair of turns has a figure of both sides by both clocks, of one model or of two."""
    make = lambda: steps.timed_chain(3, 0.1)  # noqa: E731
    found = paired.turns(make, {"sinks": {}}, is_shared=is_shared, turn_s=0.001, count=3, settling=2)
    assert {clock: {side: len(times) for side, times in sides.items()} for clock, sides in found["pairs"].items()} == {
        "wall": {"own": 3, "bare": 3},
        "cpu": {"own": 3, "bare": 3},
    }


def test_a_limit_inside_the_interval_is_inconclusive() -> None:
    """A figure below it is kept, one above it is not."""
    assert at_most("x", 1.0, Estimate(0.9, 0.8, 1.1, 20)).verdict == "kept, inconclusive"
    assert at_most("x", 1.0, Estimate(1.2, 1.1, 1.3, 20)).verdict == "**not kept**"


def test_the_page_of_a_module_has_the_cost_of_each_variant() -> None:
    """Costs are beyond the bare steps beside them, and limits over those of the floor."""
    chosen = variants("")
    cost_ns = {"floor": 8000.0, "recording": 4000.0, "full_backward_hook": 40000.0}
    pairs = {}
    for variant in chosen:
        own = [1e6 + 40 * cost_ns.get(variant.name, 2000.0)] * 10
        pairs[variant.name] = {clock: {"own": own, "bare": [1e6] * 10} for clock in paired.CLOCKS}
    found = paired.Blocks(pairs, rounds=10)
    text = "\n".join(module.page(found, chosen, module.bounds_of(found, chosen)))
    assert "| autoprof, marks alone | 4.00 | 4.00, 4.00 | 4.00 |" in text
    assert "| marks alone, over the floor | ≤ 0.25 × | 0.50 × [0.50, 0.50] | **not kept** |" in text
    assert "**Result**: 4.00 µs for the marks of a module, 2.00 with all default sinks; hand-written hooks 8.00" in text


def test_the_tail_of_the_steps_is_read_from_all_runs() -> None:
    """An extra is beyond the median step of the pooled runs."""
    usual = np.full((2, 999), 200_000)
    late = np.concatenate([usual, [[5_200_000], [4_200_000]]], axis=1)
    found = longest.tail([late, late])
    assert (found["steps"], found["median"], found["max"], found["processor_max"]) == (2000, 0.2, 5.2, 4.2)
    assert found["noticed"] == pytest.approx(2 / ((1998 * 0.2 + 2 * 5.2) / 1e3))
