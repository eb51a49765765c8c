"""The readable log."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sink_builders import acts, frame_of, layout_of

from autoprof.base.summary import Summary
from autoprof.reports.log import render_log_summary, render_step
from autoprof.reports.name_tree import NameAverages
from autoprof.reports.summary_text import render_summary

_LINE = re.compile(r"^(?P<name>.+?) *: +(?P<ms>[\d.]+)ms \( *(?P<percent>[\d.]+)%\)")


def top_level(section: str) -> dict[str, float]:
    """Return the milliseconds of the lines at the left edge."""
    found = (_LINE.match(line) for line in section.splitlines())
    return {match["name"]: float(match["ms"]) for match in found if match and not match["name"].startswith(" ")}


def test_a_step_of_the_log() -> None:
    """Names form a tree, the longest first, with percentages of the step and running averages."""
    text = render_step(frame_of(scalars={"loss": 0.25}, memory={"rss_bytes": 1 << 30}), NameAverages())
    assert text.splitlines() == [
        "=" * 80,
        "Step 1",
        "=" * 80,
        "VRT                                     :    820.000ms ( 82.0%) [avg:    820.000ms]",
        "  - Stage8                              :    500.000ms ( 50.0%) [avg:    500.000ms]",
        "  - Spike时间自注意力                   :    240.000ms ( 24.0%) [avg:    240.000ms]",
        "  - self                                :     80.000ms (  8.0%)",
        "optimizer                               :     60.000ms (  6.0%) [avg:     60.000ms]",
        "data                                    :     40.000ms (  4.0%) [avg:     40.000ms]",
        "Loss                                    :     20.000ms (  2.0%) [avg:     20.000ms] (sum of parts)",
        "  - VGG                                 :     20.000ms (  2.0%) [avg:     20.000ms]",
        "other                                   :     60.000ms (  6.0%)",
        "",
        "Total-----------------------------------:   1000.000ms",
        "",
        "forward 28.0 % backward 44.0 % recompute 10.0 % user 2.0 % optimizer 6.0 % data 4.0 % other 6.0 %"
        " | loss=0.25 | rss 1.00 GiB | autoprof 0.3 %",
        "",
    ]  # fmt: skip


def test_averages_run_over_recorded_steps() -> None:
    """The average is of the steps so far; a warm-up step is shown but not counted."""
    averages, layout = NameAverages(), layout_of((("A", "forward", -1, 10),))
    texts = [
        render_step(frame_of((("A", "forward", -1, ms),), layout=layout, step=step, warmup=step == 1), averages)
        for step, ms in enumerate((90, 10, 30), start=1)
    ]
    assert "Step 1 (warm-up, excluded from averages)" in texts[0]
    assert "avg" not in texts[0]
    assert "[avg:     20.000ms]" in texts[2]


def test_the_work_of_other_threads_is_not_part_of_the_step() -> None:
    """Spans of other threads and logged durations are listed below Total and are no part of it."""
    rows = (("A", "forward", -1, 10), ("worker", "user", -1, 500), ("log/x", "user", -1, 7))
    text = render_step(frame_of(rows, step_ms=40, lanes=(0, 1, -1)), NameAverages())
    account, beside = text.split("Not part of the step's time")
    assert top_level(account) == {"A": 10.0, "other": 30.0}
    assert set(top_level(beside)) == {"worker", "log"}


@given(st.lists(st.tuples(st.sampled_from("ABC"), st.integers(-1, 6), st.integers(0, 3)), max_size=12))
def test_the_top_level_adds_up_to_the_step(tree: list[tuple[str, int, int]]) -> None:
    """Whatever nests in whatever, the lines at the left edge and other are the step."""
    phases = ("forward", "backward", "recompute", "user")
    budgets: list[float] = []
    rows: list[tuple[str, str, int, float]] = []
    left = 1000.0
    for name, parent, phase in tree:
        parent = min(parent, len(rows) - 1)
        ms = round((budgets[parent] if parent >= 0 else left) * 0.4, 3)
        if parent >= 0:
            budgets[parent] -= ms
        else:
            left -= ms
        budgets.append(ms)
        rows.append((name, phases[phase], parent, ms))
    assert sum(top_level(render_step(frame_of(rows), NameAverages())).values()) == pytest.approx(1000, abs=0.01)


@given(st.text(min_size=1, max_size=300))
def test_a_name_never_breaks_a_line(name: str) -> None:
    """A name is one line of printable characters, whatever it holds."""
    text = render_step(frame_of(((name, "forward", -1, 10),)), NameAverages())
    assert not acts(text.replace("\n", ""))


def test_the_log_ends_with_the_full_report(summary: Summary) -> None:
    """Below a heading at which readers of the log end."""
    text = render_log_summary(summary)
    assert text.splitlines()[1] == "Timing Summary (Total 2 steps)"
    assert "\n".join(render_summary(summary)) in text
