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
from autoprof._reports.shapes import render_shapes
from autoprof.cli import main
from autoprof.frame import NamedShape, ShapeChange
from autoprof.summary import Summary
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


def test_inputs_and_outputs_are_noted_by_name() -> None:
    """As ``forward`` calls its arguments; a list's tensors by their place."""
    summary, _ = run(DETAILED, [32])
    encoder = next(one for one in summary.shapes if one.name == "编码器")
    assert encoder.inputs == (NamedShape("rgb", (2, 3, 32, 32)), NamedShape("spike", (1, 3, 32, 32)))
    assert encoder.outputs == tuple(NamedShape(f"[{at}]", (2, 4, 16 >> at, 16 >> at)) for at in range(3))
    assert (encoder.fqns, encoder.step) == (("encoder",), 1)


def test_they_are_noted_once_for_each_change() -> None:
    """The same shapes again are no news, nor are those of three steps ago."""
    summary, sink = run(DETAILED, [32, 32, 16, 16, 32, 16])
    assert [len(frame.shapes) for frame in sink.frames] == [8, 0, 4, 0, 0, 0]
    sets = [one for one in summary.shapes if one.name == "编码器"]
    assert [(one.step, one.inputs[0].shape[-1]) for one in sets] == [(1, 32), (3, 16)]


def test_scales_have_their_times_and_blocks_their_number() -> None:
    """Per scale the time and the shapes; four blocks with their total and the average of one."""
    summary, _ = run(DETAILED, [32, 32])
    text = "\n".join(render_shapes(summary, 80))
    assert "编码器/尺度2: 1 module\n  forward        1 call      30.0 ms in all     30.0 ms a call" in text
    assert "\n  in      x [2,4,8,8]\n  out     [2,4,4,4]" in text
    assert "Blocks: 4 modules\n  forward        4 calls     12.0 ms in all     3.00 ms a call" in text
    assert "  recompute      4 calls     12.0 ms in all     3.00 ms a call" in text


def test_a_rule_without_detail_costs_nothing() -> None:
    """Nothing further is called around its modules, and nothing noted."""
    plain = {**DETAILED, "targets": [{"match": "blocks"}]}
    model = Model(FakeClock())
    with open_session(model, plain, clock=FakeClock()) as session:
        bare = len(hooks_of(model.blocks[0])["marks"])
        assert session.summary().shapes == ()
    with open_session(model, DETAILED, clock=FakeClock()):
        assert len(hooks_of(model.blocks[0])["marks"]) == bare + 1
    assert not is_marked(model.blocks[0])


def test_ever_new_shapes_are_bounded() -> None:
    """Sixteen sets of a module are kept; further ones are counted."""
    summary, _ = run({**DETAILED, "targets": [{"match": "encoder", "detail": "shapes"}]}, list(range(8, 28)))
    assert len(summary.shapes) == 16
    assert summary.skipped["sets of shapes beyond 16 of a module"] == 4


def test_the_log_the_summary_and_the_records_have_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``timing.log`` where they are met, the summaries at the end, ``show`` also where there is no summary."""
    model = Model(FakeClock())
    config = {**DETAILED, "sinks": {"log": {}, "jsonl": {}}, "output": str(tmp_path)}
    with autoprof.instrument(model, config) as session:
        for _ in range(2):
            model(torch.ones(2, 3, 32, 32)).sum().backward()
            session.step()
    folder = session.folder
    assert folder is not None
    log = (folder / "rank0/timing.log").read_text(encoding="utf-8")
    line = "shapes 编码器 (encoder): rgb [2,3,32,32], spike [1,3,32,32] -> [0] [2,4,16,16]"
    assert log.count(line) == 1
    assert log.index("Step 1") < log.index(line) < log.index("Step 2")
    assert "shapes Blocks (4 modules): x [2,4] -> [2,4]" in log
    assert "Blocks: 4 modules" in (folder / "summary.txt").read_text(encoding="utf-8")
    saved = autoprof.read_run(folder)
    assert saved.summary is not None
    assert saved.summary.shapes == session.summary().shapes
    assert [one for frame in saved.frames for one in frame.shapes][-1] == ShapeChange(
        "Blocks", "blocks.3", (NamedShape("x", (2, 4)),), (NamedShape("", (2, 4)),)
    )
    (folder / "summary.json").unlink()
    assert main(["show", str(folder), "--full"]) == 0
    assert "Blocks: 4 modules" in capsys.readouterr().out
