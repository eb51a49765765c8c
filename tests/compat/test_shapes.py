"""``detail: shapes``: the values of the second seed's debug prints, without a print in the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from attached import hooks_of, is_marked
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import autoprof
from autoprof.base.summary import Summary
from autoprof.frontends.cli import main
from autoprof.reports.summary_text import render_summary
from autoprof.testing import FakeClock, ListSink, open_session

MS = 1_000_000


class Timed(nn.Module):
    """A layer that takes so many milliseconds of a fake clock."""

    def __init__(self, clock: FakeClock, ms: int, layer: nn.Module) -> None:
        super().__init__()
        self.clock, self.ms, self.layer = clock, ms, layer

    def forward(self, x: Tensor) -> Any:
        self.clock.advance(self.ms * MS)
        return self.layer(x)


class Encoder(nn.Module):
    """Three scales, as the encoder of the second seed."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        layers = (nn.Conv2d(channels, 4, 3, 2, 1) for channels in (3, 4, 4))
        self.scales = nn.ModuleList(Timed(clock, 10 * at, layer) for at, layer in enumerate(layers, 1))

    def forward(self, rgb: Tensor, spike: Tensor | None = None) -> list[Tensor]:
        found = []
        for scale in self.scales:
            rgb = scale(rgb)
            found.append(rgb)
        return found


class Model(nn.Module):
    """An encoder and blocks in a list that is never called itself."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self.encoder = Encoder(clock)
        self.blocks = nn.ModuleList(Timed(clock, 3, nn.Linear(4, 4)) for _ in range(4))

    def forward(self, rgb: Tensor) -> Tensor:
        x = self.encoder(rgb, spike=rgb[:1])[-1].mean((2, 3))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.training else block(x)
        return x


DETAILED = {
    "targets": [
        {"match": "encoder", "name": "编码器", "detail": "shapes"},
        {"match": r"encoder\.scales\.(\d)", "name": r"编码器/尺度\1", "detail": "shapes"},
        {"match": "blocks", "name": "Blocks", "detail": "shapes"},
    ],
    "sample": {"warmup": 0},
    "sinks": {},
}


def run(config: dict[str, Any], sizes: list[int]) -> tuple[Summary, ListSink]:
    """Train a step of each size on a fake clock."""
    clock, sink = FakeClock(), ListSink()
    model = Model(clock)
    with open_session(model, config, clock=clock, sinks=[sink]) as session:
        for size in sizes:
            model(torch.ones(2, 3, size, size)).sum().backward()
            session.step()
    assert sink.summary is not None
    return sink.summary, sink


def shape_notes(summary: Summary) -> list[str]:
    """Return the notes on shapes."""
    return [note for note in summary.notes if note.startswith("shapes of ")]


def test_inputs_and_outputs_are_noted_by_name() -> None:
    """As ``forward`` calls its arguments; a list's tensors by their place."""
    summary, _ = run(DETAILED, [32])
    outputs = ", ".join(f"[{at}] [2,4,{16 >> at},{16 >> at}]" for at in range(3))
    assert f"shapes of 编码器: rgb [2,3,32,32], spike [1,3,32,32] -> {outputs}" in shape_notes(summary)
    assert "shapes of 编码器/尺度2: x [2,4,8,8] -> [2,4,4,4]" in shape_notes(summary)


def test_a_name_has_one_note_where_its_modules_are_alike() -> None:
    """Four blocks of one name take the same; a later step with other shapes adds nothing."""
    summary, _ = run(DETAILED, [32, 16])
    assert [note for note in shape_notes(summary) if "Blocks" in note] == ["shapes of Blocks: x [2,4] -> [2,4]"]
    assert len(shape_notes(summary)) == 5


def test_scales_have_their_times_and_blocks_their_number() -> None:
    """Per scale the time; four blocks with their total, and the calls of a step."""
    summary, _ = run(DETAILED, [32, 32])
    lines = [line.split() for line in render_summary(summary)]
    assert any(line[0] == "尺度2" and "30.0" in line for line in lines if line)
    assert any(line[:2] == ["Blocks", "4"] and "12.0" in line for line in lines if line)


def test_nothing_is_logged_inside_of_a_step(caplog: pytest.LogCaptureFixture) -> None:
    """The report alone has the shapes."""
    run(DETAILED, [32])
    assert "shapes of" not in caplog.text


def test_a_rule_without_detail_costs_nothing() -> None:
    """Nothing further is called around its modules, and nothing noted."""
    plain = {**DETAILED, "targets": [{"match": "blocks"}]}
    model = Model(FakeClock())
    with open_session(model, plain, clock=FakeClock()) as session:
        bare = len(hooks_of(model.blocks[0])["marks"])
        assert shape_notes(session.summary()) == []
    with open_session(model, DETAILED, clock=FakeClock()):
        assert len(hooks_of(model.blocks[0])["marks"]) == bare + 1
    assert not is_marked(model.blocks[0])


def test_the_report_of_a_saved_run_has_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In ``summary.txt`` and in ``show --full``."""
    model = Model(FakeClock())
    with autoprof.instrument(model, {**DETAILED, "sinks": {"jsonl": {}}, "output": str(tmp_path)}) as session:
        for _ in range(2):
            model(torch.ones(2, 3, 32, 32)).sum().backward()
            session.step()
    folder = session.folder
    assert folder is not None
    assert main(["show", str(folder), "--full"]) == 0
    assert "shapes of Blocks: x [2,4] -> [2,4]" in capsys.readouterr().out
