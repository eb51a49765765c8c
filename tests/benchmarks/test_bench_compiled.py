"""The page of the rows inside compiled graphs is made from the JSON alone."""

from __future__ import annotations

from typing import Any

from benchmarks.compiled.page import render

COMPILE = {"graphs": 1, "breaks": 0, "hits": 3, "misses": 0}
SITES = {"joined": 98, "unknown": 1, "missing": 1, "owned": 98, "bytes": 1000, "bytes_unowned": 5}
RATIO = {"ratio": 1.004, "low": 0.99, "high": 1.02}


def family(bits: str = "a", **more: Any) -> dict[str, Any]:
    """Return the result of a model in its three runs."""
    again = {"bits": "a", "compile": COMPILE, "shares": {"across": 0.04}}
    return {
        "verdict": "right", "family": "transformer", "bits": bits, "compile": COMPILE, "sites": SITES, "wrong": [],
        "shares": {"across": 0.03, "runtime": 0.1}, "bare": {"bits": "a", "compile": COMPILE}, "again": again, **more,
    }  # fmt: skip


RESULTS = {
    "machine": {"cpu": "a processor", "usable_cores": 2, "torch": "2", "date": "2026-01-02T03:04"},
    "truth": {
        "chain": {"verdict": "right", "rows": 8, "worst": 0.5, "wrong": [], "note": ""},
        "moved": {"verdict": "whole", "rows": 8, "worst": 9.0, "reasons": ["no rows, in the module around them: why"]},
    },
    "growth": {
        "linear": {
            "verdict": "wrong", "path": "mid", "phases": {"forward": {"step": 10.0, "row": 9.0, "fused": 0.5}},
            "wrong": ["act grew"], "note": "",
        },
    },
    "models": {"gpt": family(), "vae": family("b"), "t5": {"verdict": "not run", "error": "x is not installed"}},
    "cost": {
        "gpt": {
            "verdict": "measured", "bare_ms": 5.0, "spans": 9, "blocks_ms": {"bare": [5.0]},
            "recorded": RATIO, "unrecorded": RATIO,
        },
    },
}  # fmt: skip


def test_each_figure_stands_beside_its_bound() -> None:
    page = render(RESULTS)
    assert "| kernel call sites joined, of 200 in 2 models | 100 % | 98.00% |" in page
    assert "| bytes of kernels without an owner | ≤ 1 % | 0.50% |" in page
    assert "| time in rows of several blocks, transformer nets | ≤ 5% | 2 of 2 models, at most 3.0% |" in page
    assert "parameters against the bare model | equal | 1 of 2 equal |" in page
    assert "| recorded step / bare step | ≤ 1.01 | 1.004 |" in page
    assert "| gpt | 5.0 ms | 9 | 1.004 [0.990, 1.020] |" in page


def test_each_model_has_a_line_and_each_problem_a_sentence() -> None:
    page = render(RESULTS)
    assert "1 of 2 models right" in page
    assert "| linear | `mid` | 10.0, 9.0 + 0.5 | - | wrong |  |" in page
    assert "- linear: `act grew`" in page
    assert "- moved: timed whole: why" in page
    assert "- t5: not run: `x is not installed`" in page


def test_a_result_that_was_measured_again_keeps_the_former_one_in_sight() -> None:
    former = [{"verdict": "wrong", "wrong": ["other bits than the bare model"]}]
    page = render({"models": {"gpt": family(former=former)}, "remarks": ["the machine was busy"]})
    assert "parameters against the bare model | equal | 0 of 1 equal |" in page
    assert "- gpt: measured again; before: wrong: `other bits than the bare model`" in page
    assert "- the machine was busy" in page


def test_a_part_that_has_not_run_has_no_table() -> None:
    assert "## One module does ten times" not in render({"truth": RESULTS["truth"]})
