"""Logs in the formats of many tools: no value is read that is not true."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from log_truth import CORPUS, Verdict, expected_failures, judge, truths

pytest.importorskip("pandas")

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


def _judge(folder: Path, text: str, truth: dict[str, object]) -> Verdict:
    log = folder / "a.log"
    log.write_text(text, "utf-8")
    truth_file = folder / "a.log.truth.yaml"
    truth_file.write_text(yaml.safe_dump(truth), "utf-8")
    return judge(truth_file)


LINES = "".join(f"step {step} loss {2.5 - step / 10:.2f} lr 0.001\n" for step in range(1, 6))
TRUE = {"step": [1, 2, 3, 4, 5], "loss": [2.4, 2.3, 2.2, 2.1, 2.0], "lr": [0.001] * 5}


def test_true_values_are_right(tmp_path: Path) -> None:
    """A log that is read as its truth says has no wrong and no absent value."""
    verdict = _judge(tmp_path, LINES, {"counter": "exact", "records": 5, "training": TRUE})
    assert (verdict.right, verdict.absent, verdict.wrong) == (10, 0, [])


@pytest.mark.parametrize(
    ("counter", "training"),
    [
        ("exact", {**TRUE, "loss": [2.4, 2.3, 9.9, 2.1, 2.0]}),
        ("exact", {**TRUE, "step": [1, 2, 3, 4, 6]}),
        ("order", {**TRUE, "loss": [2.4, 2.3, 2.1, 2.2, 2.0]}),
        ("exact", {"step": TRUE["step"], "loss": TRUE["loss"]}),
        ("exact", {**TRUE, "loss": [2.4, 2.3, None, 2.1, 2.0]}),
    ],
    ids=["value", "step", "order", "column", "record"],
)
def test_a_value_that_is_not_true_is_wrong(tmp_path: Path, counter: str, training: dict[str, object]) -> None:
    """A different value, another step, another order, a column or a record too many are each noticed."""
    verdict = _judge(tmp_path, LINES, {"counter": counter, "records": 5, "training": training})
    assert verdict.wrong


def test_a_missing_value_is_absent(tmp_path: Path) -> None:
    """What the log prints and the table lacks is counted, and is not wrong."""
    training = {**TRUE, "grad_norm": [0.5] * 5}
    verdict = _judge(tmp_path, LINES, {"counter": "exact", "records": 5, "training": training})
    assert (verdict.right, verdict.missing, verdict.wrong) == (10, {"grad_norm": 5}, [])


def test_a_record_of_a_file_without_any_is_wrong(tmp_path: Path) -> None:
    """Of a file without training records no record may be read."""
    verdict = _judge(tmp_path, LINES, {"counter": "order", "records": 0, "training": {}})
    assert len(verdict.wrong) == 1
