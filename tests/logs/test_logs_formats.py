"""Every log format is detected from the content and read into the same columns."""

import shutil
from pathlib import Path

import pytest

from autoprof.errors import AutoprofError
from autoprof.logs import load_logs

FIXTURES = Path(__file__).parent / "fixtures"


@pytest.mark.parametrize(
    ("file", "name", "rows"),
    [
        ("trainer_state.json", "hf trainer_state", 12),
        ("hf_console.log", "jsonl", 12),
        ("accelerate_two_ranks.log", "jsonl", 40),
        ("deepspeed.log", "deepspeed", 13),
        ("megatron.log", "megatron", 20),
        ("mmengine.log", "mmengine", 15),
        ("mmengine_scalars.json", "mmengine scalars", 15),
        ("detectron2.log", "detectron2", 20),
        ("detectron2_metrics.json", "detectron2 metrics", 10),
        ("fairseq.log", "fairseq", 8),
        ("nanogpt.log", "nanogpt train", 11),
        ("speedrun.log", "nanogpt", 62),
        ("torchtitan.log", "torchtitan", 5),
        ("lightning_metrics.csv", "csv", 15),
        ("llamafactory.jsonl", "llamafactory", 20),
        ("seed.jsonl", "jsonl", 120),
        ("autoprof_run", "autoprof", 12),
        ("autoprof_run/rank0/timing.log", "timing.log", 12),
    ],
)
def test_a_format_is_detected_by_content(tmp_path: Path, file: str, name: str, rows: int) -> None:
    """Under any name, each log is read by its format, with all its rows; the corpus checks the values."""
    path = FIXTURES / file
    if path.is_file():
        path = Path(shutil.copy(path, tmp_path / "unnamed"))
    df = load_logs(path)
    assert [entry["reader"] for entry in df.attrs["files"]] == [name]
    assert len(df) == rows


def test_a_folder_of_checkpoints_is_one_run(tmp_path: Path) -> None:
    """Of a Trainer's checkpoints only the newest state is read: it holds the others."""
    for step in (20, 60):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        shutil.copy(FIXTURES / "trainer_state.json", folder / "trainer_state.json")
    df = load_logs(tmp_path)
    assert len(df.attrs["files"]) == 1
    assert "checkpoint-60" in df.attrs["files"][0]["path"]


def test_several_logs_are_several_runs(tmp_path: Path) -> None:
    """Each file of a pattern is a run, named by the part of its path that differs; other files are listed."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        shutil.copy(FIXTURES / "seed.jsonl", tmp_path / name / "log.jsonl")
    (tmp_path / "a" / "notes.txt").write_text("lunch at 12\n")
    df = load_logs(str(tmp_path / "**" / "*"))
    assert list(df["run"].cat.categories) == ["a", "b"]
    assert [Path(path).name for path in df.attrs["unread"]] == ["notes.txt"]


def test_a_pattern_of_the_users_names_the_columns(tmp_path: Path) -> None:
    """Named groups become columns, known names with their units."""
    path = tmp_path / "odd.log"
    path.write_text("start\n" + "".join(f"#{at}# took {at * 10}ms -> {at / 2}!\n" for at in range(1, 6)))
    df = load_logs(path, pattern=r"#(?P<step>\d+)# took (?P<step_time>\d+ms) -> (?P<loss>[\d.]+)")
    assert list(df["loss"]) == [0.5, 1.0, 1.5, 2.0, 2.5]
    assert df["step_time_s"].iloc[0] == pytest.approx(0.01)
    assert df.attrs["files"][0]["skipped"] == 1


@pytest.mark.parametrize(("pattern", "message"), [("(", "not a regular expression"), (r"step (\d+)", "no named group")])
def test_an_unusable_pattern_is_an_error(pattern: str, message: str) -> None:
    """A pattern that cannot be used is an error of the user's, with what is allowed."""
    with pytest.raises(AutoprofError, match=message):
        load_logs(FIXTURES / "seed.jsonl", pattern=pattern)


def test_the_log_of_the_global_timer_is_a_row_per_dump_and_rank(tmp_path: Path) -> None:
    """Host and device time of a name are two columns; a repeated interval counts once."""
    path = tmp_path / "timer_rank0.log"
    forward = "[RANK 0] forward, start=1.0, end=1.5, cpu_dur=0.500000s, cuda_dur=480.000ms"
    second = "[RANK 0] forward, start=2.0, end=2.5, cpu_dur=0.250000s, cuda_dur=nanms"
    other = "[RANK 1] forward, start=1.0, end=1.5, cpu_dur=0.500000s, cuda_dur=470.000ms"
    backward = "[RANK 0] backward, start=2.5, end=2.6, cpu_dur=1e-01s, cuda_dur=9.9E+01ms"
    path.write_text(
        "\n".join(["=== DUMP START ===", forward, other, "=== DUMP START ===", forward, second + backward, ""])
    )
    df = load_logs(path)
    assert [entry["reader"] for entry in df.attrs["files"]] == ["global timer"]
    assert df[["rank", "step", "forward (ms)"]].values.tolist() == [[0, 1, 500.0], [0, 2, 250.0], [1, 1, 500.0]]
    assert df["forward device (ms)"].dropna().tolist() == [480.0, 470.0]
    assert df["backward device (ms)"].dropna().tolist() == [99.0]
    assert df.attrs["files"][0]["notes"] == ["intervals repeated by a later dump, counted once: 1"]


def test_host_time_in_the_place_of_device_time_is_named(tmp_path: Path) -> None:
    """The original timer wrote it without a GPU; an event without a rank of its own is not used."""
    line = "[RANK 0] a, start={0}.0, end={0}.5, cpu_dur=0.50000{0}s, cuda_dur=500.00{0}ms"
    path = tmp_path / "timer_rank0.log"
    path.write_text("\n".join([*map(line.format, range(4)), line.format(5) + line.format(6)[len("[RANK 0]") :], ""]))
    df = load_logs(path)
    assert "a device (ms)" not in df
    assert df.attrs["files"][0]["notes"] == [
        "cuda_dur equals cpu_dur in every record, so it is host time: no device time was measured"
    ]
