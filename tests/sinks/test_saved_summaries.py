"""``summary.json`` of an older version is read, with the values under today's names."""

from __future__ import annotations

import json
import math
from pathlib import Path

from autoprof._reports.summary_text import render_summary
from autoprof.summary import Excluded, MetricStats, Progress, Summary, UnfusedAttention

SAVED = json.loads((Path(__file__).parent / "fixtures" / "summary_before_renames.json").read_text("utf-8"))
"""Written by the commit before ``apart``, ``pace`` and ``gauges`` were renamed."""


def test_renamed_keys_of_a_saved_summary_are_read() -> None:
    """``apart``, ``pace`` with ``left_steps`` and ``left_ns``, and ``gauges`` are today's fields."""
    summary = Summary.from_dict(SAVED)
    assert {"apart", "pace", "gauges"} <= SAVED.keys()
    assert summary.excluded == (Excluded("pause", 1, SAVED["apart"][0]["total_ns"]),)
    assert summary.progress == Progress(
        "session.log", 60.0, SAVED["pace"]["epoch_ns"], 100, 40, SAVED["pace"]["left_ns"]
    )
    assert summary.metrics == {"gpu_utilization": MetricStats(0.75, 0.5, 1.0, 1.0, 4)}
    assert [one.remaining_ns for one in summary.what_if] == [one["left_ns"] for one in SAVED["what_if"]]
    assert summary.work is not None
    assert summary.work.attention == (UnfusedAttention(**SAVED["work"]["attention"][0]),)
    assert math.isnan(summary.scalars["loss"])


def test_a_saved_summary_is_written_with_the_new_keys() -> None:
    """Nothing is lost on the way, and the report shows it."""
    data = Summary.from_dict(SAVED).to_dict()
    assert {"excluded", "progress", "metrics"} <= data.keys()
    assert not {"apart", "pace", "gauges"} & data.keys()
    assert json.dumps(Summary.from_dict(json.loads(json.dumps(data))).to_dict()) == json.dumps(data)
    text = "\n".join(render_summary(Summary.from_dict(data)))
    assert "excluded   pause " in text
    assert "40 of 100 steps to go" in text
