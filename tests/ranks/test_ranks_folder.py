"""The records of many ranks, read from a run's folder."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rank_folders import SlowBlock, frames_of, layout_of, usual_self_ns, write_ranks

from autoprof.base.frame import Phase
from autoprof.base.storage.records import Frames, RecordWriter
from autoprof.errors import OutputError
from autoprof.frontends.cli import main
from autoprof.ranks import FolderRecords, read_folder
from autoprof.ranks.record_reader import MAX_STEPS

SLOW = SlowBlock(rank=2, block=4, phase=Phase.BACKWARD, extra_ns=5_000_000)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of four ranks of 300 steps."""
    return write_ranks(tmp_path_factory.mktemp("ranks"), 4, range(1, 301), SLOW)


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    """A copy of that run, to be damaged."""
    return Path(shutil.copytree(whole, tmp_path / "run"))


def _left_out(found: FolderRecords) -> dict[int, str]:
    return {entry.rank: entry.why for entry in found.left_out}


def test_records_in_parts_are_read_as_one(tmp_path: Path) -> None:
    """The last steps of limited records, also where they are in several parts, with layouts in turn."""
    folder = tmp_path / "run" / "rank0"
    folder.mkdir(parents=True)
    writer = RecordWriter(folder, 1e9, lambda: 0.0, max_bytes=800_000)
    layouts = [layout_of(3), layout_of(4)]
    for step in range(1, 1201):
        layout = layouts[step % 2]
        own = usual_self_ns(layout)[None] + step
        (frame,) = frames_of(layout, own, own.sum(axis=1) + 1000, [step])
        writer.write(replace(frame, scalars={"tokens": 4.0 * step}))
    writer.close()
    assert (folder / "steps.1.jsonl").exists()
    record = read_folder(tmp_path / "run").records[0]
    written = [frame.step for frame in Frames(folder / "steps.jsonl")][-MAX_STEPS:]
    assert record.steps.tolist() == written
    assert record.scalars["tokens"].tolist() == [4.0 * step for step in written]
    assert {f"model/blocks.{block}" for block in range(4)} < {name for name, _ in record.rows}


def test_a_missing_rank_is_named_and_the_others_are_compared(run: Path) -> None:
    """A rank without a folder, and one without records, are in the list; the slow rank is found among the rest."""
    shutil.rmtree(run / "rank0")
    (run / "rank3" / "steps.jsonl").unlink()
    found = read_folder(run)
    assert sorted(found.records) == [1, 2]
    assert _left_out(found) == {
        0: "has no folder: it is on another machine, or missing",
        3: "has no readable steps.jsonl",
    }


def test_half_written_lines_and_blocks_cost_only_their_steps(run: Path) -> None:
    """A cut last line, zeros and a line of another program; steps whose block is not whole."""
    path = run / "rank1" / "steps.jsonl"
    data = path.read_bytes()
    path.write_bytes(data[:-40] + b"\0" * 30 + b'\n{"loss":1.5}\n{"step":9,"step_time_s":"x"}\n[1]\n')
    blocks = run / "rank2" / "spans.bin"
    os.truncate(blocks, blocks.stat().st_size - 10)
    found = read_folder(run)
    assert found.left_out == ()
    assert found.records[1].steps[-1] == 299
    assert 0 < len(found.records[2].steps) < MAX_STEPS


def test_damaged_bytes_never_raise(run: Path) -> None:
    """A byte changed anywhere in the files of a rank costs at most this rank."""
    draw = np.random.default_rng(1)
    for _ in range(5):
        for name in ("steps.jsonl", "spans.bin", "run.json"):
            path = run / "rank1" / name
            data = path.read_bytes()
            changed = bytearray(data)
            changed[int(draw.integers(len(data)))] = int(draw.integers(256))
            path.write_bytes(changed)
            assert set(read_folder(run).records) >= {0, 2, 3}
            path.write_bytes(data)


def test_a_folder_without_ranks_is_an_error(tmp_path: Path) -> None:
    """The message says what is missing and what is allowed."""
    with pytest.raises(OutputError, match="has no folders of ranks; allowed: the folder of a run"):
        read_folder(tmp_path)


def test_the_command_prints_the_verdict_the_table_and_the_list(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run with a missing rank and a cut line is reported in 80 columns."""
    shutil.rmtree(run / "rank0")
    with (run / "rank1" / "steps.jsonl").open("ab") as file:
        file.write(b'{"step":')
    assert main(["ranks", str(run)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 80 for line in lines)
    text = "\n".join(lines)
    assert "rank 2" in text
    assert "in model/blocks.4 (backward)" in " ".join(text.split())
    assert "rank 0: has no folder: it is on another machine, or missing" in text


def test_the_command_prints_json(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Programs get all ranks, the comparison and the list of what is left out."""
    shutil.rmtree(run / "rank3")
    assert main(["ranks", str(run), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["world_size"] == 4
    assert report["compared_ranks"] == [0, 1, 2]
    assert report["left_out"] == [{"rank": 3, "why": "has no folder: it is on another machine, or missing"}]
    slow = report["ranks"][2]
    assert slow["rank"] == SLOW.rank
    assert report["comparison"]["slow"][0]["name"] == SLOW.name
    assert slow["excess_ns"] == pytest.approx(SLOW.extra_ns, rel=0.1)
    assert all(row["excess_ns"] < SLOW.extra_ns / 5 for row in report["ranks"] if row is not slow)
