"""A log format of another package: one module and an entry point, and ``load_logs`` reads it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from autoprof._core.plugins import PartKind
from autoprof.errors import AutoprofError
from autoprof.logs import formats, load_logs
from autoprof.logs.formats import LogFormat

GUIDE = Path(__file__).parents[2] / "docs/extending/log-format.md"
FORMAT = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)[0]
"""The example of the guide is the format that is added."""
LOG = "starting\n" + "".join(f"@{step} cost={step / 4} took={step * 10}\n" for step in range(1, 9))


def test_a_format_of_another_package_is_detected_and_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its records become the known columns, in their units; ``reader`` knows its name."""
    (tmp_path / "acme_logs.py").write_text(FORMAT)
    info = tmp_path / "acme_logs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-logs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[autoprof.logs.formats]\nacme = acme_logs:FORMAT\n")
    monkeypatch.syspath_prepend(tmp_path)
    kind = PartKind("log format", "autoprof.logs.formats", "FORMAT", LogFormat)
    monkeypatch.setattr(formats, "LOG_FORMATS", kind)  # the process's own has already searched for entry points
    path = tmp_path / "training.log"
    path.write_text(LOG)
    df = load_logs(path)
    (report,) = df.attrs["files"]
    assert (report["reader"], report["skipped"]) == ("acme", 1)
    assert list(df["loss"]) == [step / 4 for step in range(1, 9)]
    assert list(df["step_time_s"]) == pytest.approx([step / 100 for step in range(1, 9)])
    with pytest.raises(AutoprofError, match="did you mean 'acme'"):
        load_logs(path, reader="acm")
    sys.modules.pop("acme_logs", None)


def test_equal_scores_are_decided_by_priority(tmp_path: Path) -> None:
    """detectron2's metrics have the keys of mmengine's as well; neither alphabet nor file name decides."""
    path = tmp_path / "log"
    row = '{{"iteration": {}, "eta_seconds": 1, "time": 1, "data_time": 1, "loss": 1}}\n'
    path.write_text("".join(map(row.format, range(3))))
    assert load_logs(path).attrs["files"][0]["reader"] == "detectron2 metrics"
