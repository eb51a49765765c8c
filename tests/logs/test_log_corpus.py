"""Logs in the formats of many tools: no value is read that is not true, and what is absent is counted."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from log_truth import CORPUS, judge, truths

from autoprof.errors import AutoprofError
from autoprof.logs import load_logs
from autoprof.logs.fields import TABLE

ABSENT: dict[str, int] = yaml.safe_load((CORPUS / "absent.yaml").read_text("utf-8"))
"""By log: how many of its values are not read."""
RULES: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "rules.yaml").read_text("utf-8"))
"""Small logs of what a counter, an average, a total and a validation are, and the values that are read of them."""


def _name(truth: Path) -> str:
    return truth.relative_to(CORPUS).as_posix().removesuffix(".truth.yaml")


@pytest.mark.parametrize("truth", truths(), ids=_name)
def test_every_value_that_is_read_is_true(truth: Path) -> None:
    """A value is one that the log prints, at its step; the absent ones are as many as absent.yaml says."""
    verdict = judge(truth)
    assert not verdict.wrong, "\n".join(verdict.wrong)
    assert verdict.absent == ABSENT.get(_name(truth), 0), verdict.missing


def test_every_log_has_its_truth() -> None:
    """No log of the corpus is unchecked, and absent.yaml names logs of the corpus."""
    logs = {path.relative_to(CORPUS).as_posix() for path in CORPUS.glob("*/*.*")}
    known = set(map(_name, truths()))
    assert {name for name in logs if not name.endswith(".truth.yaml")} == known
    assert set(ABSENT) <= known


def test_the_table_has_at_most_forty_tools() -> None:
    """A further tool takes the place of one that is used less."""
    assert len(TABLE["tools"]) <= 40


def _write(folder: Path, text: str) -> Path:
    path = folder / "log"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", RULES["logs"])
def test_only_true_values_are_read(tmp_path: Path, name: str) -> None:
    """Every column has the values that the log prints for it, at their steps, or is absent."""
    entry = RULES["logs"][name]
    df = load_logs(_write(tmp_path, entry["text"]))
    for column, values in entry["columns"].items():
        if values is None:
            assert column not in df, df[column].tolist()
            continue
        read = df[column].dropna() if column == "val_loss" else df[column]
        wanted = values if isinstance(values, list) else [values] * len(read)
        assert read.tolist() == pytest.approx(wanted, rel=1e-6, nan_ok=True), column


@pytest.mark.parametrize("name", RULES["no_record"])
def test_settings_and_prose_are_no_run(tmp_path: Path, name: str) -> None:
    """A configuration and a README hold losses, rates and epochs, and no record."""
    with pytest.raises(AutoprofError, match="no training record"):
        load_logs(_write(tmp_path, RULES["no_record"][name]))
