"""Records of a rank: exact, compressed, readable after a kill, and limited in size."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from random_frames import runs, same
from sink_builders import VRT, Clock, layout_of

import autoprof
from autoprof.base.frame import Layout, Phase, StepFrame
from autoprof.base.storage.line_file import LineFile
from autoprof.base.storage.records import Frames, RecordWriter
from autoprof.base.storage.runs import read_run
from autoprof.diagnose import saved_summary
from autoprof.ranks import read_record
from autoprof.testing import ListSink

LAYOUT = layout_of(VRT)


def write(folder: Path, frames: list[StepFrame], **options: object) -> Frames:
    """Write records, and return them."""
    writer = RecordWriter(folder, 5.0, Clock(), **options)  # type: ignore[arg-type]
    for frame in frames:
        writer.write(frame)
    writer.close()
    return Frames(folder / "steps.jsonl")


def module_frames(steps: int, modules: int = 200) -> list[StepFrame]:
    """Return steps of a chain of modules: lengths about 15 µs, pauses about 2 µs, as even as those of a real run."""
    names = ("model", *(f"layers/{at}" for at in range(modules)))
    count = 2 * len(names)
    phases = [Phase.FORWARD] * len(names) + [Phase.BACKWARD] * len(names)
    parents = [-1, *[0] * modules, -1, *[len(names)] * modules]
    layout = Layout((*names, *names), (None,) * count, tuple(phases), tuple(parents), (1,) * count, (0,) * count)
    random = np.random.default_rng(0)
    frames = []
    for step in range(1, steps + 1):
        lengths = random.lognormal(np.log(15_000), 0.02, count).astype(np.int64)
        starts = np.cumsum(lengths + random.lognormal(np.log(2_000), 0.1, count).astype(np.int64)) - lengths
        for first in (0, len(names)):
            last = first + modules
            starts[first], lengths[first] = starts[first + 1] - 1_000, starts[last] + lengths[last] - starts[first + 1]
        frames.append(
            StepFrame(
                step, 10**18 + step * 10**8, int(starts[-1] + lengths[-1]) + 5_000, layout, starts, lengths,
                scalars={"loss": 1 / step, "lr": 1e-3, "samples": 16.0}, memory={"rss_bytes": 358_936_576 + step},
                overhead_ns=3_000_000 + step, warmup=step < 4,
            )
        )  # fmt: skip
    return frames


@settings(max_examples=40)
@given(runs())
def test_records_read_back_field_by_field(tmp_path_factory: pytest.TempPathFactory, frames: list[StepFrame]) -> None:
    """Whatever a frame holds; steps of several layouts may alternate."""
    back = list(write(tmp_path_factory.mktemp("run"), frames))
    assert all(same(one, other) for one, other in zip(back, frames, strict=True))


def size_of(folder: Path) -> int:
    """Return the bytes of all files of a folder."""
    return sum(file.stat().st_size for file in folder.iterdir())


def test_a_step_of_200_modules_takes_at_most_1500_bytes(tmp_path: Path) -> None:
    """402 spans: 100,000 of these steps are 150 MB."""
    frames = module_frames(160)
    write(tmp_path, frames[:80])
    first = size_of(tmp_path)
    (tmp_path / "all").mkdir()
    records = write(tmp_path / "all", frames)
    assert (size_of(tmp_path / "all") - first) / 80 <= 1500
    assert all(same(one, other) for one, other in zip(records, frames, strict=True))


@pytest.mark.parametrize("cut", [1, 20, 200])
def test_a_block_that_is_cut_loses_its_steps_only(tmp_path: Path, cut: int) -> None:
    """They are counted; the steps of all blocks before are there."""
    writer, frames = RecordWriter(tmp_path, 5.0, Clock()), module_frames(9)
    for frame in frames:
        writer.write(frame)
        if frame.step % 3 == 0:
            writer.flush()
    writer.close()
    spans = tmp_path / "spans.bin"
    spans.write_bytes(spans.read_bytes()[:-cut])
    records = Frames(tmp_path / "steps.jsonl")
    assert [frame.step for frame in records] == [1, 2, 3, 4, 5, 6]
    assert records.bad_lines == 3


def test_records_stay_below_their_limit(tmp_path: Path) -> None:
    """The first steps and the last ones stay."""
    frames = module_frames(20, modules=40)
    writer, limit = RecordWriter(tmp_path, 0.0, Clock(), max_bytes=600_000), 600_000
    for step in range(1, 6001):
        writer.write(StepFrame.of(**{**vars(frames[step % 20]), "step": step, "warmup": False}))
        if step % 500 == 0:
            assert size_of(tmp_path) <= limit
    writer.close()
    assert writer.has_removed_steps
    records = Frames(tmp_path / "steps.jsonl")
    steps = [frame.step for frame in records]
    assert records.bad_lines == 0
    assert records.has_removed_steps
    assert size_of(tmp_path) > limit / 2
    assert steps == sorted(set(steps))
    assert (steps[0], steps[-1]) == (1, 6000)
    assert sum(np.diff(steps) > 1) == 1
    record = read_record(records.path, 64)
    assert record is not None
    assert record.steps.tolist() == list(range(5937, 6001))


def test_a_log_keeps_its_last_lines(tmp_path: Path) -> None:
    """In two files, which together stay below the limit."""
    file = LineFile(tmp_path / "timing.log", 0.0, Clock(), max_bytes=1000)
    for number in range(500):
        file.write(f"line {number}\n")
        assert sum(one.stat().st_size for one in tmp_path.iterdir()) <= 1000
    file.close()
    assert file.has_lost_lines
    text = (tmp_path / "timing.log.1").read_text() + (tmp_path / "timing.log").read_text()
    assert text.splitlines() == [f"line {number}" for number in range(500)][-len(text.splitlines()) :]
    assert len(text) > 400


@pytest.mark.parametrize("bytes_per_mb", [2_000, 1])
def test_the_report_says_that_a_limit_was_reached(
    bytes_per_mb: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what is gone, and how to get it, however small a rank's part is: no sink fails."""
    from torch import nn

    from autoprof.sinks import _make

    monkeypatch.setattr(_make, "GROWING_BYTES_PER_MB", bytes_per_mb)  # as if 10 MB were 20 kB or less
    model, live = nn.Sequential(nn.Identity()), ListSink()
    config = {
        "output": str(tmp_path), "output_max_mb": 10, "sample": {"budget": None},
        "sinks": {"log": {"flush_s": 0.0}, "jsonl": {"flush_s": 0.0}},
    }  # fmt: skip
    with autoprof.instrument(model, config, sinks=[live]) as session:
        for _ in range(200):
            with autoprof.span("work"):
                pass
            session.step()
    notes = " ".join(session.summary().notes)
    assert "timing.log has reached its part of output_max_mb" in notes
    assert "the records have reached their part of output_max_mb" in notes
    assert "is off" not in notes
    assert session.folder is not None
    assert "part of output_max_mb" in (session.folder / "summary.txt").read_text("utf-8")
    run = read_run(session.folder)
    assert 0 < len(list(run.frames)) < len(live.frames)
    (session.folder / "summary.json").unlink()
    assert "steps were removed from the records" in " ".join(saved_summary(read_run(session.folder)).notes)
