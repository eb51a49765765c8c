"""What a counter, an average, a total and a validation are: a log of each kind, and the values that are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from autoprof.errors import AutoprofError
from autoprof.logs import load_logs

RULES: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "rules.yaml").read_text(encoding="utf-8"))


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
