"""The live panel and the plain line."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from sink_builders import acts, frame_of, summary_of

from autoprof.base.summary import Summary
from autoprof.reports.panel import render_panel, render_plain
from autoprof.reports.text import in_encoding

_COLOR = re.compile(r"\x1b\[\d*m")
NASTY = st.text(alphabet=st.sampled_from("a/中é\x1b\x9b\n\t\u202e\u200b\ud800$…[2J"), min_size=1, max_size=60)


def test_the_panel_at_80_columns(summary: Summary) -> None:
    """The tree of the other reports, aligned across scripts, with a bar for each row."""
    lines = render_panel(summary, width=80, top=5, color=False, step=2)
    assert lines == [
        "┌─ autoprof · step 2 · 1000.0 ms/step · 2.00 samples/s ─────────────────────────",
        "│ name                           share  ms/step  forward  recompute  backward",
        "│ VRT                  █████░   82.0 %      820      280        100       440",
        "│   Stage8             ███░░░   50.0 %      500      150        100       250",
        "│   Spike时间自注意力  ██░░░░   24.0 %      240     80.0          -       160",
        "│   (self)             █░░░░░    8.0 %     80.0     50.0          -      30.0",
        "│ optimizer            █░░░░░    6.0 %     60.0",
        "│ … and 3 more names, each at most 6.0 % of the step",
        "│ data 4% fwd 28% rec 10% bwd 44% opt 6% user 2% other 6%",
        "└─ Total 1000.0 ms · p50 1000.0 ms · p95 1000.0 ms · autoprof itself 0.3 % ─────",
    ]


@pytest.mark.parametrize("width", [40, 80, 200])
def test_colours_take_no_room(summary: Summary, width: int) -> None:
    """With its colour codes taken out, a coloured panel is the plain one."""
    plain = render_panel(summary, width=width, top=5, color=False)
    assert [_COLOR.sub("", line) for line in render_panel(summary, width=width, top=5, color=True)] == plain


@given(
    names=st.lists(NASTY, min_size=1, max_size=8, unique=True),
    width=st.integers(1, 220),
    top=st.integers(1, 10),
    encoding=st.sampled_from(["utf-8", "ascii", "gbk", "nonsense"]),
    note=NASTY,
)
def test_no_name_acts_on_the_terminal_nor_widens_the_panel(
    names: list[str], width: int, top: int, encoding: str, note: str
) -> None:
    """Whatever the names hold, lines keep to the width and contain no control character."""
    rows = tuple((name, "forward", i - 1 if i % 3 else -1, 1000 / (i + 1)) for i, name in enumerate(names))
    summary = summary_of([frame_of(rows, step_ms=3000)], notes=(note,))
    lines = [in_encoding(line, encoding) for line in render_panel(summary, width=width, top=top, color=False)]
    assert max(map(cell_len, lines)) <= width
    plain = in_encoding(render_plain(summary, step=1), encoding)
    assert cell_len(plain) <= 100
    assert not acts("".join([*lines, plain]))


@pytest.mark.parametrize(
    ("encoding", "shown"),
    [
        ("utf-8", "┌─ 编码器 ×2 · 5 µs …"),
        ("gbk", "+- 编码器 x2 - 5 us ~"),
        ("ascii", "+- ?????? x2 - 5 us ~"),
        ("nonsense", "+- ?????? x2 - 5 us ~"),
    ],
)
def test_a_line_has_as_many_cells_in_any_encoding(encoding: str, shown: str) -> None:
    """Box characters are two cells wide in East Asian encodings, so these get those of ASCII."""
    assert in_encoding("┌─ 编码器 ×2 · 5 µs …", encoding) == shown


def test_the_plain_line(summary: Summary) -> None:
    """One line of at most 100 cells says where the step goes: the longest phases and the longest name come first."""
    assert render_plain(summary, step=120) == (
        "autoprof | step 120 | 1000.0 ms | 2.00 samples/s | fwd 28% rec 10% bwd 44% | top VRT/Stage8 50%"
    )


def test_the_plain_line_before_the_first_recorded_step() -> None:
    """Warming up is a state, not a measurement."""
    assert render_plain(summary_of([]), step=1) == "autoprof | step 1 | warming up"


def test_a_time_below_the_clocks_resolution_is_less_than_it(make_summary: Callable[..., Summary]) -> None:
    """In the panel and in the plain line, in milliseconds as in percent; two calls have twice the limit."""
    rows = (("A", "forward", -1, 900), ("B", "forward", -1, 4), ("B", "forward", -1, 4), ("B", "backward", -1, 3))
    summary = replace(make_summary(rows), clock_limit_ns=6_000_000)
    line = render_panel(summary, width=80, top=5, color=False)[4]
    assert re.search(r"B ×2 .* <1\.2 % +<12 +<12 +<12$", line)
    assert "top A 90%, B <2%" in render_plain(summary, step=1)
