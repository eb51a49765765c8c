"""The records of many ranks, read from a run's folder through DuckDB."""

from __future__ import annotations

import csv
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("duckdb", reason="the extra ranks")

from autoprof._ranks.rank_files import RankFiles
from autoprof._ranks.rank_table import rank_rows
from autoprof._ranks.read_folder import FolderRecords, read_folder
from autoprof._ranks.record import RankRecord, read_record
from autoprof._reports import ranks_text
from autoprof._storage.records import Frames, RecordWriter
from autoprof.cli import main
from autoprof.errors import OutputError
from autoprof.frame import Phase
from benchmarks.rank_folders import SlowBlock, frames_of, layout_of, usual_self_ns, write_rank, write_ranks

SLOW = SlowBlock(rank=2, block=4, phase=Phase.BACKWARD, extra_ns=5_000_000)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of four ranks of 300 steps."""
    return write_ranks(tmp_path_factory.mktemp("ranks"), 4, range(1, 301), SLOW)


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    """A copy of that run, to be damaged."""
    return Path(shutil.copytree(whole, tmp_path / "run"))


def _read(run: Path) -> FolderRecords:
    files = RankFiles(str(run))
    try:
        return read_folder(files)
    finally:
        files.close()


def _assert_equal(record: RankRecord, expected: RankRecord) -> None:
    for key in ("steps", "step_ns", "own_ns"):
        assert (getattr(record, key) == getattr(expected, key)).all()
    assert record.rows.keys() == expected.rows.keys()
    assert all((record.rows[key] == ns).all() for key, ns in expected.rows.items())
    assert record.parents == expected.parents
    assert record.scalars.keys() == expected.scalars.keys()
    assert all(np.array_equal(record.scalars[key], values, equal_nan=True) for key, values in expected.scalars.items())


def _left_out(found: FolderRecords) -> dict[str, str]:
    return {entry.where: entry.why for entry in found.left_out}


def test_the_records_are_those_that_are_read_line_by_line(whole: Path) -> None:
    """Each rank's steps, lengths, own work, rows and scalars are equal to those of the reader for one rank."""
    found = _read(whole)
    assert sorted(found.records) == [0, 1, 2, 3]
    assert not found.left_out
    for rank, record in found.records.items():
        expected = read_record(whole / f"rank{rank}" / "steps.jsonl", 1000)
        assert expected is not None
        _assert_equal(record, expected)


def test_records_in_parts_and_with_several_layouts_are_read(tmp_path: Path) -> None:
    """Parts of limited records, device times and steps of two layouts give the same as the reader for one rank."""
    writer_folder = tmp_path / "run" / "rank0"
    writer_folder.mkdir(parents=True)
    writer = RecordWriter(writer_folder, 1e9, lambda: 0.0, max_bytes=800_000)
    layouts = [layout_of(3), layout_of(4)]
    for step in range(1, 1201):
        layout = layouts[step % 2]
        own = usual_self_ns(layout)[None] + step
        (frame,) = frames_of(layout, own, own.sum(axis=1) + 1000, [step])
        if step % 5 == 0:
            frame = replace(frame, model_ns={Phase.FORWARD: 700, Phase.BACKWARD: 300}, scalars={"tokens": 4.0 * step})
        if step % 3 == 0:
            frame = replace(
                frame, device_duration_ns=frame.duration_ns, device_start_ns=frame.start_ns, device_ns=frame.host_ns - 1
            )
        writer.write(frame)
    writer.close()
    assert (writer_folder / "steps.1.jsonl").exists()
    found = _read(tmp_path / "run")
    expected = read_record(writer_folder / "steps.jsonl", 2000)
    assert expected is not None
    record = found.records[0]
    assert len(record.steps) == len(list(Frames(writer_folder / "steps.jsonl")))
    _assert_equal(record, expected)


def test_lines_with_their_times_are_read(run: Path) -> None:
    """Records of older runs have the times of the spans in the lines."""
    from autoprof._storage.steps_jsonl import FrameEncoder

    path = run / "rank1" / "steps.jsonl"
    expected = read_record(path, 1000)
    encoder = FrameEncoder()
    lines = [encoder.encode(frame) for frame in Frames(path)]
    path.write_text("".join(lines), encoding="utf-8")
    (run / "rank1" / "spans.bin").unlink()
    found = _read(run)
    assert expected is not None
    assert not found.left_out
    assert (found.records[1].own_ns == expected.own_ns).all()


def test_a_missing_rank_is_named_and_the_others_are_compared(run: Path) -> None:
    """A rank without a folder, and one without records, are in the list; the slow rank is found among the rest."""
    shutil.rmtree(run / "rank0")
    (run / "rank3" / "steps.jsonl").unlink()
    found = _read(run)
    assert sorted(found.records) == [1, 2]
    assert _left_out(found) == {
        "rank 0": "has no folder: it is on another machine, or missing",
        "rank 3": "has no steps.jsonl",
    }


def test_half_written_lines_are_counted_and_the_rest_is_used(run: Path) -> None:
    """A cut last line, zeros and a line of another program cost only themselves."""
    path = run / "rank1" / "steps.jsonl"
    data = path.read_bytes()
    path.write_bytes(data[:-40] + b"\0" * 30 + b'\n{"loss":1.5}\n{"step":9,"step_time_s":"x"}\n[1]\n')
    found = _read(run)
    assert found.recorded_steps == 299
    assert all(entry.rank == 1 and entry.partly for entry in found.left_out)
    assert [entry.why for entry in found.left_out] == [
        "3 lines not whole, as after a kill in the middle of a write",
        "a line without a step and its times: of another program or version",
    ]


def test_a_cut_block_costs_its_steps(run: Path) -> None:
    """The steps whose block is not whole are left out, and the other ranks are compared without them."""
    path = run / "rank1" / "spans.bin"
    os.truncate(path, path.stat().st_size - 10)
    found = _read(run)
    assert _left_out(found) == {"rank 1": "44 steps without times: their block in spans.bin is damaged or cut"}
    assert found.left_out[0].partly
    assert len(found.records[1].steps) == 256


def test_a_rank_without_its_blocks_is_left_out(run: Path) -> None:
    """Lines whose ``spans.bin`` is missing have no times."""
    (run / "rank1" / "spans.bin").unlink()
    found = _read(run)
    assert sorted(found.records) == [0, 2, 3]
    assert not found.left_out[0].partly
    assert found.left_out[0].why == "300 steps without times: rank1/spans.bin is missing"


def test_a_rank_of_another_run_is_left_out(run: Path, tmp_path: Path) -> None:
    """The world size, the number or the time of another run give it away; so does a number beyond the world size."""
    write_rank(tmp_path / "other", 1, 8, range(1, 301))
    shutil.rmtree(run / "rank1")
    shutil.copytree(tmp_path / "other" / "run" / "rank1", run / "rank1")
    shutil.copytree(run / "rank3", run / "rank9")
    shutil.copytree(run / "rank3", run / "rank3-backup")
    shutil.rmtree(run / "rank2")
    shutil.copytree(run / "rank3", run / "rank2")
    found = _read(run)
    assert sorted(found.records) == [0, 3]
    assert _left_out(found) == {
        "rank 1": "is of a run of 8 processes, not of 4",
        "rank 2": "its run.json is of rank 3",
        "rank 9": "is not a rank of this run, which has 4 processes",
        "rank3-backup": "is not the folder of a rank: these are called rank0, rank1, …",
    }


def test_steps_of_another_day_are_of_another_run(run: Path) -> None:
    """A rank whose steps lie outside the time of the others is left out."""
    path = run / "rank1" / "steps.jsonl"
    path.write_text(path.read_text().replace('"start_unix_ns":179', '"start_unix_ns":170'))
    assert _left_out(_read(run)) == {"rank 1": "recorded at another time than most ranks: of another run"}


def test_a_rank_of_another_version_is_used_and_named(run: Path) -> None:
    """What is readable is used, whichever version wrote it."""
    path = run / "rank1" / "run.json"
    info = json.loads(path.read_text())
    for rank in (1, 2, 3):
        info = json.loads((run / f"rank{rank}" / "run.json").read_text())
        info["versions"]["autoprof"] = "0.0.9" if rank == 1 else "0.1.0"
        (run / f"rank{rank}" / "run.json").write_text(json.dumps(info))
    found = _read(run)
    assert sorted(found.records) == [0, 1, 2, 3]
    (entry,) = [one for one in found.left_out if one.rank == 1]
    assert entry.partly
    assert entry.why == "was recorded by autoprof 0.0.9, the others by 0.1.0: its readable lines are used"


def test_a_rank_with_other_steps_or_few_is_left_out(tmp_path: Path) -> None:
    """The ranks that share their steps are compared; one that died early does not reduce them to its few."""
    for rank, steps in enumerate((range(1, 101), range(1, 101), range(1001, 1101), range(1, 12))):
        write_rank(tmp_path, rank, 4, steps)
    found = _read(tmp_path / "run")
    assert sorted(found.records) == [0, 1]
    assert _left_out(found) == {
        "rank 2": "recorded other steps: 0 in common with most ranks",
        "rank 3": "recorded 11 steps, most ranks 100",
    }
    assert found.recorded_steps == 100


def test_files_that_are_no_records_are_left_out(run: Path) -> None:
    """Bytes of any kind, an empty file and a folder in the place of a file are named, and nothing raises."""
    (run / "rank0" / "steps.jsonl").write_bytes(np.random.default_rng(0).bytes(5000))
    (run / "rank0" / "run.json").write_text("{")
    (run / "rank1" / "steps.jsonl").write_bytes(b"")
    (run / "rank3" / "steps.jsonl").unlink()
    (run / "rank3" / "steps.jsonl").mkdir()
    found = _read(run)
    assert sorted(found.records) == [2]
    assert {entry.where for entry in found.left_out if not entry.partly} == {"rank 0", "rank 1", "rank 3"}


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
            assert set(_read(run).records) >= {0, 2, 3}
            path.write_bytes(data)


def test_any_store_that_duckdb_reads_may_have_the_run(whole: Path) -> None:
    """The same queries read the run from a file system that is registered with DuckDB."""
    fsspec = pytest.importorskip("fsspec")
    store = fsspec.filesystem("memory")
    store.put(str(whole), "/bucket/run", recursive=True)
    files = RankFiles("memory://bucket/run")
    files.connection.register_filesystem(store)
    try:
        found = read_folder(files)
    finally:
        files.close()
    expected = _read(whole)
    assert not found.left_out
    assert {rank: record.own_ns.tolist() for rank, record in found.records.items()} == {
        rank: record.own_ns.tolist() for rank, record in expected.records.items()
    }


def test_a_folder_with_letters_of_patterns_is_read(whole: Path, tmp_path: Path) -> None:
    """``[``, ``?`` and blanks in the path of a run are letters."""
    run = shutil.copytree(whole, tmp_path / "a [1]? b")
    assert sorted(_read(run).records) == [0, 1, 2, 3]


def test_a_folder_without_ranks_is_an_error(tmp_path: Path) -> None:
    """The message says what is missing and what is allowed."""
    with pytest.raises(OutputError, match="has no folders of ranks; allowed: the folder of a run"):
        _read(tmp_path)


def test_memory_is_bounded_by_comparing_fewer_steps(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the bound the last steps are read, and the report says so."""
    monkeypatch.setattr("autoprof._ranks.read_folder.MAX_NUMBERS", 10_000)
    found = _read(whole)
    assert found.recorded_steps == 300
    assert found.records[0].steps.tolist() == list(range(301 - len(found.records[0].steps), 301))
    assert len(found.records[0].steps) < 300


def test_the_table_names_the_row_that_is_slow(whole: Path) -> None:
    """The slow rank has the injected excess, in the module and phase where it was injected."""
    rows = rank_rows(_read(whole).records)
    slow = max(rows, key=lambda row: row.excess_ns)
    assert (slow.rank, slow.name, slow.phase) == (SLOW.rank, SLOW.name, SLOW.phase)
    assert slow.excess_ns == pytest.approx(SLOW.extra_ns, rel=0.1)
    assert slow.name_ns == pytest.approx(SLOW.extra_ns, rel=0.1)
    assert all(row.excess_ns < SLOW.extra_ns / 5 for row in rows if row is not slow)


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
    assert "bwd model/blocks.4" in text
    assert "rank 0: has no folder: it is on another machine, or missing" in text
    assert "rank 1: a line not whole" in text


def test_the_command_writes_json_and_csv(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Programs get all ranks with the hosts, the comparison and the list of what is left out."""
    shutil.rmtree(run / "rank3")
    assert main(["ranks", str(run), "--json", "--csv", str(tmp_path / "ranks.csv")]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["world_size"] == 4
    assert report["compared_ranks"] == [0, 1, 2]
    assert report["left_out"] == [
        {"where": "rank 3", "why": "has no folder: it is on another machine, or missing", "partly": False, "rank": 3}
    ]
    with (tmp_path / "ranks.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["rank"] for row in rows] == ["0", "1", "2", "3"]
    assert float(rows[2]["excess_ms"]) == pytest.approx(5, rel=0.1)
    assert rows[3]["left_out"]
    assert not rows[3]["own_ms"]


def test_no_spreadsheet_takes_a_name_for_a_formula(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A module may be called ``=cmd``; its name is a text in the file."""
    monkeypatch.setattr(ranks_text, "csv_rows", lambda found, rows: [(0, 1, "-0.5", "=cmd|' /C calc'!A0")])
    assert main(["ranks", str(run), "--csv", str(tmp_path / "ranks.csv")]) == 0
    with (tmp_path / "ranks.csv").open() as file:
        assert list(csv.reader(file))[1] == ["0", "1", "-0.5", "'=cmd|' /C calc'!A0"]


def test_the_rest_is_compared_where_most_ranks_are_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Three ranks of eight are compared under their own numbers."""
    slow = SlowBlock(rank=6, block=1, phase=Phase.FORWARD, extra_ns=20_000_000)
    for rank in (1, 3, 6):
        write_rank(tmp_path, rank, 8, range(1, 101), slow)
    assert main(["ranks", str(tmp_path / "run"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["compared_ranks"] == [1, 3, 6]
    assert report["comparison"]["absent"] == [0, 2, 4, 5, 7]
    (one,) = report["comparison"]["slow"]
    assert (one["rank"], one["name"], one["phase"]) == (6, slow.name, "forward")
