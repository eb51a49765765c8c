"""The folder of a run: made once, never overwritten, read back."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from torch import nn

import autoprof
from autoprof.base.frame import Layout, Phase, StepFrame
from autoprof.base.storage.runs import FORMAT, RunFolder, read_run
from autoprof.diagnose import saved_summary
from autoprof.errors import OutputError
from tests.saved_records import write_records


def frame(step: int, layout: Layout) -> StepFrame:
    return StepFrame(
        step=step,
        start_unix_ns=step,
        duration_ns=100,
        layout=layout,
        start_ns=np.array([0, 5]),
        host_ns=np.array([60, 20 + step]),
        scalars={"loss": 0.5},
    )


LAYOUT = Layout(("A", "A/B"), ("a", None), (Phase.FORWARD, Phase.FORWARD), (-1, 0), (1, 1), (0, 0))


def test_a_name_that_is_taken_gets_a_number(tmp_path: Path) -> None:
    """A named run leaves the earlier run of that name alone."""
    assert [RunFolder.create(tmp_path, name="base").path.name for _ in range(3)] == ["base", "base-2", "base-3"]


def test_a_run_that_the_launcher_names_gets_a_number_on_every_rank(tmp_path: Path) -> None:
    """A second training of the same processes, or of their successors: one folder, and another than the first."""
    for name in ("launch", "launch-2"):
        folders = [RunFolder.create(tmp_path, rank=rank, world_size=2, name="launch") for rank in (1, 0)]
        assert {folder.path for folder in folders} == {tmp_path / name}


def test_run_json_says_what_ran_and_how_it_ended(tmp_path: Path) -> None:
    """``run.json`` has the start from the beginning, and the end from the end."""
    folder = RunFolder.create(tmp_path, config={"step": "auto"}, devices=["cpu"])
    info = json.loads((folder.path / "run.json").read_text())
    assert info["config"] == {"step": "auto"}
    assert info["devices"] == ["cpu"]
    assert set(info["versions"]) == {"python", "torch", "autoprof"}
    assert (info["end"], info["ended"]) == (None, None)
    folder.finish("interrupted")
    info = json.loads((folder.path / "run.json").read_text())
    assert info["ended"] == "interrupted"
    assert info["end"] >= info["start"]


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    """An output below a file is refused, and the message names the file."""
    (tmp_path / "runs").write_text("mine")
    with pytest.raises(OutputError, match=r"runs/a: cannot be written .*; output must name a folder"):
        RunFolder.create(tmp_path / "runs" / "a")
    assert (tmp_path / "runs").read_text() == "mine"


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    """A folder without ``run.json`` is no run, and the message says so."""
    with pytest.raises(OutputError, match=r"is not the folder of a run .*; it must have a run\.json"):
        read_run(tmp_path)


@pytest.mark.parametrize("other", [{"format": FORMAT + 1}, {"format": None}, {}])
def test_a_run_of_another_format_is_refused(tmp_path: Path, other: dict[str, int | None]) -> None:
    """In one sentence, before any of its files is read."""
    folder = RunFolder.create(tmp_path).path
    info = json.loads((folder / "run.json").read_text())
    del info["format"]
    (folder / "run.json").write_text(json.dumps(info | other))
    with pytest.raises(OutputError, match=r"was written by another version of autoprof .*; read it with that version$"):
        read_run(folder)


def test_a_summary_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    """With the file and what may be the reason."""
    with autoprof.instrument(
        nn.Sequential(nn.Identity()), {"output": str(tmp_path), "sinks": {"jsonl": {}}}
    ) as session:
        session.step()
    assert session.folder is not None
    (session.folder / "summary.json").write_text('{"steps": 1}')
    run = autoprof.read_run(session.folder)
    with pytest.raises(OutputError, match=r"summary\.json: cannot be read .*; it is incomplete or of another version"):
        run.summary  # noqa: B018


def write_run(tmp_path: Path, steps: int = 3) -> tuple[Path, Path]:
    """Write a run of these steps; return its folder and its records."""
    folder = RunFolder.create(tmp_path)
    return folder.path, write_records(folder.rank_path, (frame(step, LAYOUT) for step in range(1, steps + 1)))


@pytest.mark.parametrize("name", ["rank0-backup", "rank", "rank01", "rank١", "rank0.old", "rankings"])
def test_a_copy_of_a_folder_of_records_is_no_rank(tmp_path: Path, name: str) -> None:
    """Only the folders that a run makes are its ranks."""
    folder, records = write_run(tmp_path)
    shutil.copytree(records.parent, folder / name)
    (folder / "rank7" / "steps.jsonl").mkdir(parents=True)
    assert read_run(folder).ranks == (0,)


SECOND = {
    "5,000 digits": ('"loss":0.5', '"loss":' + "9" * 5000),
    "nested lists": ('"loss":0.5', '"loss":' + "[" * 200_000 + "]" * 200_000),
    "a place that is text": ('"spans_at":[0,1]', '"spans_at":["0","1"]'),
    "a place with a fraction": ('"spans_at":[0,1]', '"spans_at":[0,1.5]'),
    "a place without a block": ('"spans_at":[0,1]', '"spans_at":[1,1]'),
    "no place": ('"spans_at":[0,1]', '"spans":{"start_ns":[0,5],"host_ns":[60,22]}'),
    "a duration that is text": ('"step_time_s":', '"step_time_s":"1","was":'),
    "a step that is text": ('"step":2', '"step":"2"'),
    "no memory": ('"memory":{}', '"memory":null'),
    "a byte that is no UTF-8": ('"loss"', '"lo\udcff"'),
}


@pytest.mark.parametrize("kind", SECOND)
def test_a_line_that_is_no_frame_is_counted(tmp_path: Path, kind: str) -> None:
    """Whatever it holds: the other lines are read, and ``show`` names the number."""
    folder, records = write_run(tmp_path)
    lines = records.read_text().splitlines(keepends=True)
    before, after = SECOND[kind]
    assert before in lines[1]
    lines[1] = lines[1].replace(before, after)
    records.write_bytes("".join(lines).encode("utf-8", "surrogateescape"))
    frames = read_run(folder).frames
    assert [one.step for one in frames] == [1, 3]
    assert frames.bad_lines == 1
    assert "1 incomplete lines of steps.jsonl were skipped" in " ".join(saved_summary(read_run(folder)).notes)
