"""The pages of the rows inside compiled graphs are made from the results alone."""

from typing import Any

from benchmarks.compiled import families, growth, known

COMPILE = {"graphs": 1, "breaks": 0, "misses": 0}
SITES = {"joined": 98, "unknown": 1, "missing": 1, "owned": 98}


def family(bits: str = "a") -> dict[str, Any]:
    """Return the result of a model in its three runs."""
    again = {"bits": "a", "compile": COMPILE, "shares": {"across": 0.04}}
    return {
        "verdict": "right", "family": "transformer", "bits": bits, "compile": COMPILE, "sites": SITES, "wrong": [],
        "shares": {"across": 0.03, "runtime": 0.1}, "bare": {"bits": "a", "compile": COMPILE}, "again": again,
        "bits_vary": bits != "a",
    }  # fmt: skip


def test_each_figure_of_the_models_stands_beside_its_bound() -> None:
    """A model that could not run has a line and a reason, and counts for no figure."""
    missing = {"verdict": "not run", "error": "x is not installed"}
    text = "\n".join(families.page({"gpt": family(), "vae": family("b"), "t5": missing}))
    assert "2 of 2 models right: 196 of 200 kernel calls joined, 196 with an owner" in text
    assert "| time in rows of several blocks, transformer nets | ≤ 5% | 2 of 2 models, at most 3.0% |" in text
    assert "parameters against the bare model | equal | 1 of 2 equal |" in text
    assert "- t5: not run: `x is not installed`" in text


def test_each_problem_has_a_sentence() -> None:
    """Beside the line of its model."""
    phases = {"forward": {"step": 10.0, "row": 9.0, "fused": 0.5}}
    wrong = {"verdict": "wrong", "phases": phases, "wrong": ["act grew"]}
    text = "\n".join(growth.page({"linear": wrong}))
    assert "0 of 1 modules grow with their work" in text
    assert "| linear | 10.0, 9.0 + 0.5 | - | wrong |" in text
    assert "- linear: `act grew`" in text


def test_a_model_that_is_timed_whole_says_why() -> None:
    """It does not count as right."""
    results = {
        "chain": {"verdict": "right", "rows": 8, "worst": 0.5, "wrong": [], "note": ""},
        "moved": {"verdict": "whole", "rows": 8, "worst": 9.0, "reasons": ["no rows, in the module around them: why"]},
    }
    text = "\n".join(known.page(results))
    assert "1 of 2 models right" in text
    assert "- moved: timed whole: why" in text
