"""A saved run is data: it equals the live run field by field, and every file can be written again from it."""

from __future__ import annotations

import json
from math import isnan
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from random_frames import runs, same
from sink_builders import summary_of
from torch import nn

import autoprof
from autoprof.base.frame import StepFrame
from autoprof.base.storage.runs import RunFolder
from autoprof.base.summary import Summary
from autoprof.frontends.cli import main
from autoprof.testing import ListSink
from tests.saved_records import write_records

SINKS: dict[str, object] = {"log": {}, "jsonl": {}, "memory_plot": {}}


@settings(max_examples=40)
@given(runs())
def test_every_summary_reads_back_equal(frames: list[StepFrame]) -> None:
    """The statistics go to strict JSON and back without a change, numbers that are not finite included."""
    summary = summary_of(frames)
    text = json.dumps(summary.to_dict(), allow_nan=False)
    back = Summary.from_dict(json.loads(text))
    assert {name: repr(value) for name, value in back.scalars.items()} == {
        name: repr(value) for name, value in summary.scalars.items()
    }
    if not any(isnan(value) for value in summary.scalars.values()):
        assert back == summary


def train(output: Path, sinks: dict[str, object] = SINKS, steps: int = 6) -> tuple[Path, ListSink, autoprof.Summary]:
    """Train a small model with a late scalar; return the run's folder, the live frames and the live summary."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    live = ListSink()
    config = {
        "targets": [{"match": "0", "name": "VRT/第一"}, {"match": "2", "memory": True}],
        "output": str(output), "sinks": sinks,
    }  # fmt: skip
    with autoprof.instrument(model, config, optimizer=optimizer, sinks=[live]) as session:
        for step in range(steps):
            with autoprof.span("Loss/L1"):
                loss = model(torch.randn(8, 4)).abs().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            session.log(samples=8, **({"loss": loss} if step % 2 else {}))
            session.step()
        folder = session.folder
    assert folder is not None
    return folder, live, session.summary()


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ListSink, autoprof.Summary]:
    return train(tmp_path_factory.mktemp("runs"))


def test_a_live_run_and_its_records_are_the_same(saved: tuple[Path, ListSink, autoprof.Summary]) -> None:
    """Each frame that a sink of the live run got is there field by field, and so is the summary."""
    folder, live, summary = saved
    run = autoprof.read_run(folder)
    frames = list(run.frames)
    assert len(frames) == len(live.frames) == 6
    assert all(same(one, other) for one, other in zip(frames, live.frames, strict=True))
    assert run.summary == live.summary == summary


REMADE = {
    "--memory-plot": "memory.png",
    "--log": "rank0/timing.log",
}


@pytest.mark.parametrize("option", REMADE)
def test_a_file_made_again_is_the_file(
    option: str, saved: tuple[Path, ListSink, autoprof.Summary], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``autoprof show`` writes the file of the live run's sink, byte for byte."""
    folder = saved[0]
    again = tmp_path / "again"
    assert main(["show", str(folder), option, str(again)]) == 0
    assert again.read_bytes() == (folder / REMADE[option]).read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["again"]
    assert capsys.readouterr().out == ""


@pytest.fixture
def two_ranks(tmp_path: Path) -> tuple[Path, dict[int, list[StepFrame]]]:
    """Two ranks of one run; the second began half a second later and has a summary of its own."""
    frames: dict[int, list[StepFrame]] = {}
    for rank in (0, 1):
        from test_sink_trace import vrt_frame

        folder = RunFolder.create(tmp_path, rank=rank, world_size=2, name="both")
        frames[rank] = [
            StepFrame.of(**{**vars(frame), "start_unix_ns": frame.start_unix_ns + rank * 500_000_000})
            for frame in map(vrt_frame, range(1, 4 + rank))
        ]
        write_records(folder.rank_path, frames[rank])
        folder.write_summary(summary_of(frames[rank]), [])
    return tmp_path / "both", frames


def test_one_trace_shows_all_ranks(two_ranks: tuple[Path, dict[int, list[StepFrame]]], tmp_path: Path) -> None:
    """Each rank is a process, on one timeline; ``--rank`` and ``--steps`` choose."""
    from trace_rules import check

    out = tmp_path / "trace.json"
    assert main(["show", str(two_ranks[0]), "--trace", str(out)]) == 0
    events = check(out.read_text("utf-8"))
    begins = [(event["pid"], event["ts"]) for event in events if event["name"] == "step 1"]
    assert begins == [(100_000, 0), (200_000, 500_000)]
    assert main(["show", str(two_ranks[0]), "--trace", str(out), "--rank", "1", "--steps", "2:3"]) == 0
    names = [event["name"] for event in check(out.read_text("utf-8")) if event.get("cat") == "step"]
    assert names == ["step 2", "step 3"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rank", "7"], "has no records of rank 7; it has: 0, 1"),
        (["--steps", "9"], "'9' is not a range of steps; allowed: two numbers such as 10:20, 10: or :20"),
        (["--steps", "5:2"], "'5:2' is not a range of steps"),
        (["--steps", "a:b"], "'a:b' is not a range of steps"),
        (["--memory-plot", "m.png"], "there is nothing to draw; the records have no reading of memory"),
        (["--trace", "no/such/folder/t.json"], "cannot be written (No such file or directory)"),
    ],
)
def test_a_wrong_request_is_one_message(
    arguments: list[str],
    message: str,
    two_ranks: tuple[Path, dict[int, list[StepFrame]]],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One line with the option, the problem and the allowed values; nothing is written."""
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    assert main(["show", str(two_ranks[0]), *arguments]) == 2
    assert message in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == before


def test_all_sinks_of_a_session_write_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A real run with every sink that needs no server: each has its files, no note says that one failed."""
    reports = {"every": 1, "interval_s": 0}
    sinks = {
        **SINKS, "console": {}, "tensorboard": reports, "prometheus": {**reports, "port": 0},
    }  # fmt: skip
    folder, live, summary = train(tmp_path / "runs", sinks)
    assert summary.notes == ()
    files = [path for path in folder.rglob("*") if path.is_file() and "tfevents" not in path.name]
    assert sorted(str(path.relative_to(folder)) for path in files) == [
        "memory.png", "rank0/spans.bin", "rank0/steps.jsonl", "rank0/timing.log",
        "run.json", "summary.json", "summary.txt",
    ]  # fmt: skip
    assert len(list((folder / "rank0" / "tensorboard").glob("*tfevents*"))) == 1
    assert len(live.frames) == 6


def test_a_missing_package_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error comes before the first step, and no folder stays."""
    import sys

    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(autoprof.MissingExtra, match=r"pip install 'torch-autoprof\[wandb\]'"):
        train(tmp_path / "runs", {"jsonl": {}, "wandb": {}})
    assert list(tmp_path.iterdir()) == []
