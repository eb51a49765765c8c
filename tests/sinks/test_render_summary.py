"""The report at the end of a run."""

from dataclasses import replace

from sink_builders import frame_of, summary_of

from autoprof.base.summary import Summary
from autoprof.reports.summary_text import render_summary

GOLDEN = """\
────────────────────────────────────────────────────────────────────────────────
autoprof: 2 steps (all recorded), host time

name                 calls    share  ms/step  forward  recompute  backward
VRT                      1   82.0 %      820      280        100       440
  Stage8                 1   50.0 %      500      150        100       250
  Spike时间自注意力      1   24.0 %      240     80.0          -       160
  (self)                      8.0 %     80.0     50.0          -      30.0
optimizer                1    6.0 %     60.0
other (in no span)            6.0 %     60.0
data                     1    4.0 %     40.0
Loss/VGG (user)          1    2.0 %     20.0

phase     data  forward  recompute  backward  optimizer   user  other     step
ms/step   40.0      280        100       440       60.0   20.0   60.0     1000
share    4.0 %   28.0 %     10.0 %    44.0 %      6.0 %  2.0 %  6.0 %  100.0 %

step       mean 1000.0 ms, p50 1000.0 ms, p95 1000.0 ms, min 1000.0 ms, max
           1000.0 ms
throughput 2.00 samples/s
overhead   0.3 % of the time of all steps
"""


def test_the_report_at_80_columns(summary: Summary) -> None:
    """Names in their tree, phases that add up to the step, the facts, then the spread of the longest."""
    text = "\n".join(render_summary(summary))
    assert text.startswith(GOLDEN)
    assert "VRT backward                540.0 ms  540.0 ms  540.0 ms  540.0 ms" in text
    assert "The phases add up to the\nstep exactly" in text


def test_dropped_and_skipped_marks_are_shown_with_reasons(summary: Summary) -> None:
    """Losses are part of the report."""
    text = "\n".join(render_summary(replace(summary, dropped={"marks": 3}, skipped={"steps (budget)": 2})))
    assert "dropped    3 marks" in text
    assert "skipped    2 steps (budget)" in text


def test_the_bytes_of_communication_have_a_table() -> None:
    """Calls and bytes of a mean step, and the time that nothing overlaps."""
    summary = summary_of([frame_of((("A", "forward", -1, 500), ("Comm/DDP", "comm", -1, 40)))])
    rows = tuple(replace(row, communicated_bytes=3 * 2**20) if row.name == "Comm/DDP" else row for row in summary.rows)
    text = render_summary(replace(summary, rows=rows))
    at = next(at for at, line in enumerate(text) if line.startswith("communication"))
    assert (text[at].split(), text[at + 1].split()) == (
        ["communication", "calls", "bytes", "exposed"],
        ["Comm/DDP", "1", "3.0", "MiB", "40.0", "ms"],
    )


def test_a_time_below_the_clocks_resolution_is_less_than_it() -> None:
    """Names, phases and the spread: as less than the resolution times the calls; the report names it."""
    rows = (("A", "forward", -1, 900), ("B", "user", -1, 4), ("B", "user", -1, 4))
    summary = replace(summary_of([frame_of(rows)]), clock_limit_ns=6_000_000)
    text = "\n".join(render_summary(summary))
    assert "< the clock cannot resolve spans below 6.0 ms" in text
    (line,) = [line for line in text.splitlines() if line.startswith("B (user)")]
    assert line.split() == ["B", "(user)", "2", "<1.2", "%", "<12"]
    assert "<12.00 ms  <12.00 ms  <12.00 ms  <12.00 ms" in text


def test_the_cost_outside_of_steps_is_shown_beside_that_of_the_steps(summary: Summary) -> None:
    """Seconds of the start and the end, a share of the steps; no end while the session is open."""
    closed = replace(summary, start_ns=310_000_000, end_ns=180_000_000)
    assert "overhead   start 0.3 s, steps 0.3 %, end 0.2 s" in render_summary(closed)
    live = replace(closed, end_ns=None)
    assert "overhead   start 0.3 s, steps 0.3 %" in render_summary(live)
