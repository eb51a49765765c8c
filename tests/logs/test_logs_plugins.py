"""A log format of another package: one module and an entry point, and ``load_logs`` reads it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from autoprof._plugins import PartKind
from autoprof.errors import AutoprofError
from autoprof.logs import formats, load_logs
from autoprof.logs.fields import TABLE
from autoprof.logs.formats import LogFormat

GUIDE = Path(__file__).parents[2] / "docs/extending/log-format.md"
FORMAT = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)[0]
"""The example of the guide is the format that is added."""
LOG = "starting\n" + "".join(f"@{step} cost={step / 4} took={step * 10}\n" for step in range(1, 9))


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An installed package with the format ``acme``; yields a log in that format."""
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
    yield path
    sys.modules.pop("acme_logs", None)


def test_a_format_of_another_package_is_detected_and_read(acme: Path) -> None:
    """Its records become the known columns, in their units."""
    df = load_logs(acme)
    (report,) = df.attrs["files"]
    assert report["reader"] == "acme"
    assert report["skipped"] == 1
    assert list(df["step"]) == list(range(1, 9))
    assert list(df["loss"]) == [step / 4 for step in range(1, 9)]
    assert list(df["step_time_s"]) == pytest.approx([step / 100 for step in range(1, 9)])


def test_a_format_of_another_package_can_be_chosen_by_name(acme: Path) -> None:
    """``reader`` knows it, and an unknown name is answered with the nearest."""
    assert load_logs(acme, reader="acme").attrs["files"][0]["reader"] == "acme"
    with pytest.raises(AutoprofError, match="did you mean 'acme'"):
        load_logs(acme, reader="acm")


def test_a_built_in_format_keeps_its_name(acme: Path) -> None:
    """Another package cannot replace a format by using its name."""
    (acme.parent / "acme_logs.py").write_text(FORMAT.replace('"acme"', '"jsonl"'))
    assert isinstance(formats.formats_by_name()["jsonl"], formats.JsonFormat)


def test_equal_scores_are_decided_by_priority(tmp_path: Path) -> None:
    """detectron2's metrics have the keys of mmengine's as well; neither alphabet nor file name decides."""
    path = tmp_path / "log"
    row = '{{"iteration": {}, "eta_seconds": 1, "time": 1, "data_time": 1, "loss": 1}}\n'
    path.write_text("".join(map(row.format, range(3))))
    assert load_logs(path).attrs["files"][0]["reader"] == "detectron2 metrics"


def test_every_built_in_format_has_a_name_of_its_own() -> None:
    """Two formats with one name would hide each other."""
    assert len(formats.formats_by_name()) == len(formats.LOG_FORMATS.modules) + len(TABLE["tools"])


def test_a_format_that_raises_costs_only_itself(acme: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file of another format is read, with one warning."""
    broken = "class Broken(TextFormat):\n    def score(self, sample):\n        return 1 / 0\n\n\nFORMAT = Broken("
    (acme.parent / "acme_logs.py").write_text(FORMAT.replace("FORMAT = TextFormat(", broken))
    other = acme.parent / "other.jsonl"
    other.write_text("".join(f'{{"step": {n}, "loss": 0.5}}\n' for n in range(4)))
    for _ in range(2):
        assert len(load_logs(other)) == 4
    assert caplog.text.count("log format 'acme' of another package: ZeroDivisionError") == 1
