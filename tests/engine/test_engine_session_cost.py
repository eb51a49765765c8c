"""The processor time of a session outside of steps: counted once, and in every report."""

import json
from pathlib import Path
from typing import Any

import torch
from torch import nn

import autoprof


def test_every_report_has_the_start_and_the_end(tmp_path: Path, capsys: Any) -> None:
    """The console, ``summary.txt`` and ``summary.json`` state them beside the cost of the steps."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    session = autoprof.instrument(model, {"output": str(tmp_path), "monitor": "off"}, optimizer=optimizer)
    for _ in range(6):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        session.step()
    assert session.summary().end_ns is None
    session.close()
    summary = session.summary()
    assert summary.start_ns is not None
    assert summary.end_ns is not None
    assert min(summary.start_ns, summary.end_ns) > 0
    assert session.folder is not None
    saved = json.loads((session.folder / "summary.json").read_text())
    assert (saved["start_ns"], saved["end_ns"]) == (summary.start_ns, summary.end_ns)
    for text in (capsys.readouterr().out, (session.folder / "summary.txt").read_text()):
        (line,) = [line for line in text.splitlines() if line.startswith("overhead ")]
        assert "start " in line
        assert ", steps " in line
        assert ", end " in line
