"""The memory tables in the report: the whole run, the names, and the unmeasured columns."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import autoprof
from autoprof.base.summary import MemoryRow, Summary
from autoprof.frontends.cli import main
from autoprof.reports.memory_text import render_memory
from tests.fake_memory import FakeAllocator

GIB = 2**30


def summary_of(*names: MemoryRow, whole: MemoryRow | None = None, **unmeasured: str) -> Summary:
    rows = (whole or MemoryRow(None, 6 * GIB, 0, 6 * GIB, 12 * GIB, 5 * GIB, 32 * GIB), *names)
    return replace(Summary.empty(), memory_table=rows, unmeasured=unmeasured)


def test_the_parts_and_the_rest_are_the_peak() -> None:
    """With the share of each; an empty category has no line."""
    lines = render_memory(summary_of(), width=80)
    assert [line.split()[-4:] for line in lines[1:]] == [
        ["6.00", "GiB", "18.8", "%"],
        ["6.00", "GiB", "18.8", "%"],
        ["12.00", "GiB", "37.5", "%"],
        ["8.00", "GiB", "25.0", "%"],
        ["32.00", "GiB", "100.0", "%"],
    ]
    assert not any(line.startswith("buffers") for line in lines)


def test_a_peak_that_is_only_bounded_is_shown_as_such() -> None:
    """At least the level that was reached, unless it is the peak of the run."""
    highest = MemoryRow("A", 1, 0, 1, 1, 1, 32 * GIB)
    lines = render_memory(summary_of(highest, replace(highest, name="B", peak_bytes=GIB)), width=80)
    assert next(line for line in lines if line.startswith("A ")).endswith(" 32.00 GiB")
    assert next(line for line in lines if line.startswith("B ")).endswith(">=1.00 GiB")


@pytest.mark.parametrize("width", [80, 200])
def test_no_line_is_wider_than_asked_for(width: int) -> None:
    """Long names lose their middle, the rest of many names is counted."""
    names = [MemoryRow(f"模型/{'x' * 90}{at}", GIB, 0, GIB, GIB, GIB, 2 * GIB) for at in range(30)]
    lines = render_memory(summary_of(*names, activations="word " * 60), width=width)
    assert max(map(len, lines)) <= width
    assert "… and 18 more names with less" in lines


def test_show_prints_the_table_of_a_saved_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same lines as in summary.txt, which is as wide as a narrow terminal; a wide one has more room."""
    monkeypatch.setenv("COLUMNS", "200")
    model = nn.Sequential(nn.Linear(8, 8))
    optimizer = torch.optim.Adam(model.parameters())
    config = {"output": str(tmp_path), "sinks": {"jsonl": {}}}
    with autoprof.instrument(model, config, optimizer=optimizer) as session:
        for _ in range(5):
            model(torch.randn(2, 8)).sum().backward()
            optimizer.step()
            session.step()
    (folder,) = tmp_path.iterdir()
    assert main(["show", str(folder), "--full"]) == 0
    shown = capsys.readouterr().out
    for width, text in ((120, shown), (80, (folder / "summary.txt").read_text(encoding="utf-8"))):
        table = render_memory(session.summary(), width=width)
        assert "\n".join(line.rstrip() for line in table) in text


def test_a_run_that_was_killed_still_has_what_its_records_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Peaks by name come from the records; figures of the live model are unmeasured."""
    from autoprof.testing import FakeClock
    from tests.defects.training import MEMORY_CONFIG, four_layers, train

    clock, allocator = FakeClock(), FakeAllocator(40 * GIB, base_bytes=GIB)
    model = four_layers(clock)
    for layer in model:
        layer.allocator, layer.activation_bytes = allocator, GIB
    train(model, clock, config={**MEMORY_CONFIG, "output": str(tmp_path), "sinks": {"jsonl": {}}}, memory=allocator)
    (folder,) = tmp_path.iterdir()
    (folder / "summary.json").unlink()
    assert main(["show", str(folder), "--full"]) == 0
    shown = capsys.readouterr().out
    assert "peak allocated" in shown
    assert "unmeasured parameters: the model was not available" in shown
