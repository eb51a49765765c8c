"""The logs of ``global_timer``, as they are found: read, drawn, and searched for the slow rank."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoprof.compat.timer_logs import load_timer_logs, plot_timeline, stragglers, timeline_figure
from autoprof.errors import OutputError

SEED = "[RANK 0] forward, start=1716182684.282194, end=1716182685.123003, cpu_dur=0.840809s, cuda_dur=830.512ms"
"""The line that the third seed documents."""


def record(rank: int, name: str, start: float, ms: float, device_ms: float | str | None = None) -> str:
    """Return a line as the original tool writes it."""
    device = ms if device_ms is None else device_ms
    shown = device if isinstance(device, str) else f"{device:.3f}"
    end = start + ms / 1000
    return (
        f"[RANK {rank}] {name}, start={1716182684 + start:.6f}, end={1716182684 + end:.6f}, "
        f"cpu_dur={ms / 1000:.6f}s, cuda_dur={shown}ms"
    )


def write(path: str, *lines: str, encoding: str = "utf-8", newline: str = "\n") -> Path:
    """Write a log."""
    Path(path).write_bytes((newline.join(lines) + newline).encode(encoding))
    return Path(path)


def test_the_documented_line_is_read() -> None:
    """Rank, name, both ends in Unix seconds, host and device milliseconds."""
    (row,) = load_timer_logs(write("timer_rank0.log", SEED)).itertuples(index=False)
    assert tuple(row) == (0, "forward", 1716182684.282194, 1716182685.123003, 840.809, 830.512)


def test_a_data_frame_has_a_line_for_each_interval() -> None:
    """Columns have units in their names; a missing device time is NaN; counts of other lines are kept."""
    write("a.log", record(1, "b", 0, 5, "nan"), record(0, "a", 0, 5), "stray")
    frame = load_timer_logs("a.log")
    assert list(frame.columns) == ["rank", "name", "start_s", "end_s", "host_ms", "device_ms"]
    assert frame["rank"].tolist() == [0, 1]
    assert frame["device_ms"].isna().tolist() == [False, True]
    assert frame.attrs == {"skipped": 1, "repeated": 0}


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("2026-11-21 10:00:00,123 INFO root: " + SEED, 1),
        (SEED + SEED.replace("RANK 0", "RANK 1"), 2),
        (SEED + " | loss 0.3", 1),
        ("\t" + SEED + "  ", 1),
        (SEED.replace("830.512ms", "8e+02ms"), 1),
        (SEED.replace("forward", "forward, start=of=all, step [2]"), 1),
    ],
)
def test_a_record_is_found_anywhere_in_a_line(line: str, count: int) -> None:
    """Behind a prefix, glued to another one, before something else; a name may hold commas."""
    frame = load_timer_logs(write("a.log", line))
    assert (len(frame), frame.attrs["skipped"]) == (count, 0)


@pytest.mark.parametrize("cut", [1, 40, 90, len(SEED) - 1])
def test_a_truncated_end_is_no_record(cut: int) -> None:
    """A last line without its end is still being written, wherever it stops."""
    Path("a.log").write_bytes((SEED + "\n" + SEED.replace("forward", "backward")[:cut]).encode())
    frame = load_timer_logs("a.log")
    assert list(frame["name"]) == ["forward"]


def _copied(rank: int, at: int) -> str:
    host = 0.001234 + at / 1000
    return f"[RANK {rank}] a, start={at}.0, end={at}.5, cpu_dur={host:.6f}s, cuda_dur={1000 * host:.3f}ms"


def test_host_time_in_the_place_of_the_device_time_is_no_device_time(caplog: pytest.LogCaptureFixture) -> None:
    """The original timer wrote it without a GPU; a rank whose times differ once has measured its device."""
    measured = record(1, "a", 0, 5, 4)
    frame = load_timer_logs(write("a.log", *(_copied(0, at) for at in range(4)), _copied(1, 9), measured))
    assert list(frame["device_ms"].isna()) == [True] * 4 + [False] * 2
    assert "rank 0: cuda_dur equals cpu_dur in every record" in caplog.messages[0]


def test_skipped_lines_are_counted_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    """Banners and empty lines are the tool's own; everything else is quoted with its place."""
    banner = "================================ DUMP START  ================================"
    write("a.log", "", banner, SEED, "Traceback (most recent call last):", "RuntimeError: \x1b[2J", "[RANK 0] half")
    assert load_timer_logs("a.log").attrs["skipped"] == 3
    (warning,) = caplog.messages
    assert "3 of 4 lines skipped, not timer records: a.log:4 'Traceback (most recent call last):'" in warning
    assert "\x1b" not in warning


def test_records_that_a_second_dump_repeats_count_once() -> None:
    """The original tool writes everything again at each dump."""
    write("a.log", record(0, "a", 0, 5), record(0, "a", 0, 5), record(0, "b", 1, 5))
    frame = load_timer_logs("a.log")
    assert (len(frame), frame.attrs["repeated"]) == (2, 1)


@pytest.mark.parametrize(
    "line",
    [
        SEED.replace("end=1716182685.123003", "end=1716182600.0"),
        SEED.replace("cpu_dur=0", "cpu_dur=-1"),
        SEED.replace("cpu_dur=0.840809", "cpu_dur=1e999"),
        SEED.replace("RANK 0", "RANK x"),
    ],
)
def test_a_record_that_cannot_be_is_skipped(line: str) -> None:
    """An end before its start, a negative or infinite time."""
    frame = load_timer_logs(write("a.log", line))
    assert (len(frame), frame.attrs["skipped"]) == (0, 1)


def test_a_folder_means_all_its_logs() -> None:
    """``time_log/`` with a file for each rank; a folder without logs, and no file, are errors."""
    Path("time_log").mkdir()
    with pytest.raises(OutputError, match=r"contains no \*\.log"):
        load_timer_logs("time_log")
    for rank in range(3):
        write(f"time_log/timer_rank{rank}.log", record(rank, "a", 0, 5))
    assert list(load_timer_logs("time_log")["rank"]) == [0, 1, 2]
    with pytest.raises(OutputError, match="no such file"):
        load_timer_logs("nowhere")


# Who is slow.


def test_the_slow_rank_is_named() -> None:
    """By the mean of each rank against the median of the others; equal times have no straggler."""
    lines = [
        record(rank, name, step, ms + (20 if (rank, name) == (2, "forward") else 0))
        for rank in range(4)
        for step in range(3)
        for name, ms in (("forward", 50), ("backward", 90))
    ]
    forward, backward = stragglers(load_timer_logs(write("a.log", *lines))).itertuples(index=False)
    assert forward == ("forward", 2, pytest.approx(70), pytest.approx(50), True)
    assert not backward.straggles


def test_device_and_host_times_are_not_mixed() -> None:
    """One record without a device time makes the whole name be judged by the host."""
    write("a.log", record(0, "a", 0, 5, 50.0), record(1, "a", 0, 6, "nan"), record(0, "b", 1, 5, 50.0))
    found = stragglers(load_timer_logs("a.log")).set_index("name")
    assert found["mean_ms"].to_dict() == pytest.approx({"a": 6, "b": 50})


# The picture.


def test_the_timeline_draws_every_interval_of_every_rank() -> None:
    """A lane for each name of each rank, an axis of time from the first start on, a colour for each name."""
    lines = [record(rank, name, at, 100) for rank in range(3) for at, name in ((0, "a"), (0.2, "b"), (0.4, "a"))]
    figure = timeline_figure(load_timer_logs(write("a.log", *lines)))
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["rank 0", "rank 1", "rank 2"]
    bars = sorted((round(bar.get_x(), 3), round(bar.get_width(), 3)) for bar in axes.patches)
    assert bars == sorted([(0, 0.1), (0.2, 0.1), (0.4, 0.1)] * 3)
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b"]


def test_the_timeline_is_written_with_names_as_text() -> None:
    """Dollar signs and CJK characters are no formulas."""
    write("a.log", record(0, "$前向$", 0, 100), record(1, "$x_1", 0, 50))
    picture = plot_timeline(load_timer_logs("a.log"), "out.png")
    assert picture.read_bytes().startswith(b"\x89PNG")
