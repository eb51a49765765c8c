"""Logs in the formats of many tools: no value is read that is not true."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("pandas")

sys.path.insert(0, str(Path(__file__).parent / "corpus"))
from log_truth import CORPUS, expected_failures, judge, truths

KNOWN = expected_failures()


def _case(truth: Path) -> pytest.param:
    name = truth.relative_to(CORPUS).as_posix().removesuffix(".truth.yaml")
    # strict (pyproject.toml): of a log that is read rightly the line in expected_failures.txt has to go
    marks = [pytest.mark.xfail(reason="a wrong value is known")] if name in KNOWN else []
    return pytest.param(truth, id=name, marks=marks)


@pytest.mark.parametrize("truth", [_case(truth) for truth in truths()])
def test_no_wrong_value_is_read(truth: Path) -> None:
    """Every value that is claimed is one that the log prints, at its step; values may be absent."""
    verdict = judge(truth)
    assert not verdict.wrong, "\n".join(verdict.wrong)


def test_the_list_of_failures_names_logs_of_the_corpus() -> None:
    """A log that is renamed or removed leaves no line in expected_failures.txt."""
    names = {truth.relative_to(CORPUS).as_posix().removesuffix(".truth.yaml") for truth in truths()}
    assert not names ^ (names | KNOWN)


def test_every_log_has_its_truth() -> None:
    """No log of the corpus is unchecked."""
    logs = [path for path in CORPUS.glob("*/*.*") if not path.name.endswith((".truth.yaml", ".py", ".pyc"))]
    assert not [path.name for path in logs if not path.with_name(f"{path.name}.truth.yaml").exists()]
