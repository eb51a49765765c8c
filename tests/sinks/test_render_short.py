"""The short report: what a tired person reads at the end of a run."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from sink_builders import acts, frame_of, summary_of

from autoprof.base.frame import Phase
from autoprof.base.summary import OTHER_TARGETS, Finding, Progress, Stage, Summary
from autoprof.reports.short_text import LINES, render_html, render_short
from autoprof.reports.summary_text import render_summary

GOLDEN = """\
────────────────────────────────────────────────────────────────────────────────
autoprof: 2 steps (all recorded), host time
Verdict    [warning] recompute: VRT/Stage8 (up to 100.0 ms a step could be
           saved)
Why        recomputing takes 100.0 ms (10.0 % of the step)
Next       switch checkpointing off where memory allows
also       [warning] optimizer (up to 30.0 ms a step could be saved)
step       mean 1000.0 ms, p50 1000.0 ms, p95 1000.0 ms
throughput 2.00 samples/s
overhead   0.3 % of the time of all steps

name                   share  ms/step  forward  recompute  backward
VRT                   82.0 %      820      280        100       440
  Stage8              50.0 %      500      150        100       250
  Spike时间自注意力   24.0 %      240     80.0          -       160
  (self)               8.0 %     80.0     50.0          -      30.0
optimizer              6.0 %     60.0
other (in no span)     6.0 %     60.0
data                   4.0 %     40.0
Loss/VGG (user)        2.0 %     20.0

stage        share      time  times      each            rate
training    80.0 %     2.0 s      2     1.0 s  2.00 samples/s
validation  20.0 %  500.0 ms      1  500.0 ms

phase     data  forward  recompute  backward  optimizer   user  other     step
ms/step   40.0      280        100       440       60.0   20.0   60.0     1000
share    4.0 %   28.0 %     10.0 %    44.0 %      6.0 %  2.0 %  6.0 %  100.0 %

all figures: autoprof show --full; a page: autoprof report; the run's folder:
/runs/one
"""


@pytest.fixture
def judged(summary: Summary) -> Summary:
    """A run with two findings and a validation."""
    recompute = Finding(
        "recompute",
        "warning",
        "recomputing takes 100.0 ms (10.0 % of the step)",
        "switch checkpointing off where memory allows",
        name="VRT/Stage8",
        gain_ns=100_000_000,
    )
    optimizer = Finding("optimizer", "warning", "slow", "fuse it", gain_ns=30_000_000)
    excluded = Stage("validation", 1, 500_000_000, 1)
    return replace(summary, findings=(recompute, optimizer), stages=(excluded,))


def test_the_report_at_80_columns(judged: Summary) -> None:
    """Cause, reason and next step; then the tree, then the phases; the run's folder is the last line."""
    assert "\n".join(render_short(judged, folder=Path("/runs/one"))) + "\n" == GOLDEN


def test_a_long_report_keeps_its_length_and_ends_with_the_folder(judged: Summary) -> None:
    """However many findings, notes and names there are: the others are counted."""
    rows = tuple((f"block{at}", "forward", -1, 10) for at in range(60))
    many = replace(
        summary_of([frame_of(rows)]),
        findings=tuple(replace(judged.findings[0], why="why " * 100, next="next " * 100) for _ in range(9)),
        notes=tuple(f"note {at} " + "word " * 50 for at in range(9)),
        stages=tuple(Stage(f"kind {at}", 2, 1_000_000, 2) for at in range(9)),
        skipped={f"steps for reason {at}": 2 for at in range(9)},
    )
    lines = render_short(many, folder=Path("/runs/one"))
    assert len(lines) <= LINES
    assert lines[-1] == "/runs/one"
    text = "\n".join(lines)
    assert "and 5 more findings: autoprof show --full" in text
    assert "and 5 more notes: autoprof show --full" in text
    assert "more names, each at most 1.0 % of the step" in text


def test_a_name_as_long_as_the_one_around_it_stands_below_it() -> None:
    """The parts of a container may take all of its time; so does a part in one of several equal parts."""
    rows = (("Net", "backward", -1, 40), ("Blocks", "backward", 0, 40), ("A", "backward", 1, 40))
    text = "\n".join(render_short(summary_of([frame_of(rows, step_ms=100)])))
    assert re.search(r"^Net .*\n  Blocks .*\n    A ", text, re.MULTILINE)


def test_the_names_and_other_add_up_to_the_step(judged: Summary) -> None:
    """The shares at the left edge make 100 %, and so do the phases."""
    lines = render_short(judged)
    tree = lines[lines.index("") + 2 :]
    edge = [line for line in tree[: tree.index("")] if not line.startswith(" ")]
    assert sum(float(line.split(" %")[0].split()[-1]) for line in edge) == pytest.approx(100)


def test_the_models_own_operations_have_a_row() -> None:
    """Where the model is no target, its phases are longer than its names: the rest is its own."""
    frame = frame_of((("head", "forward", -1, 200),), model_ns={Phase.FORWARD: 150_000_000, Phase.BACKWARD: 50_000_000})
    lines = render_short(summary_of([frame]))
    (row,) = [line.split("  ") for line in lines if line.startswith("model (in no name)")]
    assert [cell.strip() for cell in row if cell.strip()] == ["model (in no name)", "20.0 %", "200", "150", "50.0"]
    assert next(line for line in lines if line.startswith("other")).split()[-3:] == ["60.0", "%", "600"]


def test_calls_and_steps_are_shown_where_they_matter() -> None:
    """Blocks that share a name are counted; a name that is not in every step says in how many it was."""
    blocks = frame_of((("h.*", "forward", -1, 300), *((("h.*/mlp", "forward", 0, 50),) * 4)), step=1)
    plain = frame_of((("h.*", "forward", -1, 300),), step=2)
    lines = render_short(summary_of([blocks, plain]))
    assert "name ×calls" in "\n".join(lines)
    (row,) = [line for line in lines if "mlp" in line]
    assert row.split() == ["mlp", "×2", "10.0", "%", "100", "100", "1"]
    assert next(line for line in lines if "share" in line).split()[-1] == "steps"


def test_a_module_is_called_as_often_as_its_forward_runs() -> None:
    """A cell that is called twice, and gone through three times by each backward pass of a step."""
    cell = (*((("cell", "forward", -1, 100),) * 2), *((("cell", "backward", -1, 100),) * 6))
    assert _tree_of(*cell)[0][:2] == ["cell", "×2"]


def _tree_of(*rows: tuple[str, str, int, float]) -> list[list[str]]:
    """Return the cells of the tree's lines."""
    lines = render_short(summary_of([frame_of(rows)]))
    first = next(at for at, line in enumerate(lines) if line.startswith("name")) + 1
    return [line.split() for line in lines[first : lines.index("", first)]]


def test_a_chain_of_names_with_nearly_the_same_time_is_one_line() -> None:
    """With the whole name of the inner one, its time and its calls; a small part outside it has no line."""
    net = (("net", "forward", -1, 900), ("net/1", "forward", 0, 880))
    blocks = (("net/1/blocks", "forward", 1, 870), *(("net/1/blocks/*", "forward", 2, 430),) * 2)
    tree = _tree_of(*net, *blocks, ("net/1/blocks/*/a", "forward", 3, 400), ("net/1/blocks/*/b", "forward", 4, 300))
    assert [row[0] for row in tree[:4]] == ["net", "1/blocks/*", "a", "b"]
    assert tree[1] == ["1/blocks/*", "×2", "86.0", "%", "860", "860"]


def test_forwards_that_may_be_a_rollout_have_one_name_in_every_report(judged: Summary) -> None:
    """The short and the full report and the page say what the verdict says."""
    forwards = Stage("validation", 120, 30_000_000_000, steps=10, before_ns=3_000_000_000)
    run = replace(judged, stages=(forwards,))
    assert forwards.kind == "rollout or validation"
    for lines in (render_short(run), render_summary(run), [render_html(run)]):
        assert "rollout or validation" in "\n".join(lines)
    assert replace(forwards, before_ns=0).kind == "validation"


def test_a_name_that_the_budget_keeps_closed_is_marked(summary: Summary) -> None:
    """With the meaning of the mark below the tree."""
    rows = tuple(replace(row, stopped="budget") if row.name == "VRT/Stage8" else row for row in summary.rows)
    lines = render_short(replace(summary, rows=rows))
    assert any(line.startswith("  Stage8 +") for line in lines)
    assert "+ its parts are not recorded: that would cost more than the budget" in lines


def test_steps_of_other_targets_are_steps_of_the_run(summary: Summary) -> None:
    """They were recorded while the hot path was opened; they are not losses. The full report counts each kind."""
    others = replace(summary, skipped={OTHER_TARGETS: 6}, warmup_steps=1)
    short, full = (" ".join("\n".join(render(others)).split()) for render in (render_short, render_summary))
    assert "autoprof: 9 steps (2 recorded), host time" in short
    assert "autoprof: 9 steps (2 recorded, 6 while other modules were timed, 1 warm-up), host time" in full
    assert "skipped" not in short + full


def test_a_run_without_recorded_steps_says_what_to_call() -> None:
    """With its notes, and without zeros."""
    text = "\n".join(render_short(summary_of([frame_of(warmup=True)], notes=("model.forward was called",))))
    assert "autoprof: 1 step (0 recorded)" in text
    assert "nothing was recorded: no step ended after the warm-up; train for more steps" in text
    assert "note       model.forward was called" in text
    assert "0.0" not in text


def test_the_report_has_one_mean_and_one_kind_of_step(summary: Summary) -> None:
    """All its figures are of recorded steps; the full report has the mean of all steps too."""
    sampled = replace(summary, unsampled_steps=8, unsampled_ns=8_000_000_000, run_steps=10, run_ns=10_100_000_000)
    short, full = (" ".join("\n".join(render(sampled)).split()) for render in (render_short, render_summary))
    assert "10 steps (2 recorded), host time" in short
    assert short.count("mean") == 1
    assert "step mean 1000.0 ms, p50 1000.0 ms" in short
    assert "10 steps (2 recorded, 8 not sampled), host time" in full
    assert "step mean 1010.0 ms over 10 steps; the recorded ones: mean 1000.0 ms, p50 1000.0 ms" in full


def test_recorded_steps_are_always_compared_with_all(summary: Summary) -> None:
    """A slow beginning that was recorded is no typical step."""
    slow = replace(summary, unsampled_steps=10, unsampled_ns=4_000_000_000, run_steps=12, run_ns=6_000_000_000)
    text = " ".join("\n".join(render_short(slow)).split())
    assert "mean of all steps is 500.0 ms; the recorded ones, which all figures describe, are 100.0 % longer" in text
    alike = replace(summary, unsampled_steps=10, unsampled_ns=9_500_000_000, run_steps=12, run_ns=11_500_000_000)
    assert "mean of all" not in " ".join("\n".join(render_short(alike)).split())


def test_an_unknown_throughput_has_its_reason(summary: Summary) -> None:
    """With the call that would give it."""
    progress = Progress("", no_throughput="pass samples= to session.log")
    lines = render_short(replace(summary, throughput=None, progress=progress))
    assert "throughput unknown: pass samples= to session.log" in lines


@pytest.mark.parametrize(("step_ms", "unit", "shown"), [(0.25, "µs", "250"), (80, "ms", "80.0"), (150_000, "s", "150")])
def test_the_unit_fits_the_length_of_the_step(step_ms: float, unit: str, shown: str) -> None:
    """A step of 250 µs is not shown as 0.25 ms, nor one of minutes in milliseconds."""
    lines = render_short(summary_of([frame_of((("A", "forward", -1, step_ms),), step_ms=step_ms)]))
    (row,) = [line for line in lines if line.startswith("A ")]
    assert row.split() == ["A", "100.0", "%", shown, shown]
    assert any(f"{unit}/step" in line for line in lines)


@given(name=st.text(min_size=1, max_size=100), width=st.integers(1, 220))
def test_the_report_keeps_to_its_width(name: str, width: int) -> None:
    """No name widens the report or acts on the terminal."""
    lines = render_short(summary_of([frame_of(((name, "forward", -1, 10),))]), width=width)
    assert max(map(cell_len, lines)) <= max(width, 80)
    assert not acts("".join(lines))
