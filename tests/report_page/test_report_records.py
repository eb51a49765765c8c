"""The records of a run as the page has them: bins, codes, the tree of calls, ranks. In bounded memory, and exact."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_builders import EVIL, MS, ROWS, frame_of, frames_of, layout_of, save_run

from autoprof._reports.page.bins import SAMPLES, QuantileBins
from autoprof._reports.page.call_tree import CallTrees
from autoprof._reports.page.codes import FIRST, MISSING, PER_NAT, ZERO, encode
from autoprof._reports.page.history import SLOW_STEPS, STEP_BINS, read_history
from autoprof._reports.page.rank_steps import read_rank
from autoprof.frame import Phase


def _ns(code: int) -> float:
    return float(np.exp((code - FIRST) / PER_NAT))


@given(st.lists(st.integers(1, 10**14), min_size=1, max_size=50))
def test_a_code_keeps_a_duration_within_a_third_of_a_thousandth(values: list[int]) -> None:
    """From a nanosecond to a day."""
    codes = encode(np.array(values, dtype=np.int64))
    for value, code in zip(values, codes.tolist(), strict=True):
        assert abs(_ns(code) / value - 1) < 0.00034


def test_no_time_and_no_call_have_codes_of_their_own() -> None:
    """Zero is not unmeasured, and a negative difference of clocks is zero."""
    assert encode(np.array([0, -5, 1], dtype=np.int64)).tolist() == [ZERO, ZERO, FIRST]
    assert MISSING not in encode(np.array([0, 1, 10**15], dtype=np.int64))


def test_a_bin_has_the_median_the_95th_percentile_and_the_maximum() -> None:
    """Of the steps in which the row occurred: a missing one is not a zero."""
    bins = QuantileBins(4)
    for step, code in enumerate((10, MISSING, 30, 20, 50), 1):
        bins.add(step, np.array([code], dtype=np.uint16))
    found = bins.result(1)
    assert (found.first, found.last) == ((1, 5), (4, 5))
    assert found.p50[:, 0].tolist() == [20, 50]
    assert found.p95[:, 0].tolist() == [30, 50]
    assert found.most[:, 0].tolist() == [30, 50]


def test_the_maximum_of_a_long_bin_is_of_all_its_steps() -> None:
    """Its quantiles rest on evenly spaced steps, so that memory is bounded; a single long step is not lost."""
    stride = 4 * SAMPLES
    bins = QuantileBins(stride)
    for step in range(stride):
        bins.add(step, np.array([900 if step == 3 else 100], dtype=np.uint16))
    found = bins.result(1)
    assert (found.p50[0, 0], found.p95[0, 0], found.most[0, 0]) == (100, 100, 900)


def test_a_row_that_begins_late_is_missing_before() -> None:
    """Series may be added during the run."""
    bins = QuantileBins(1)
    bins.add(1, np.array([7], dtype=np.uint16))
    bins.add(2, np.array([7] * 40, dtype=np.uint16))
    found = bins.result(40)
    assert found.p50[0].tolist() == [7] + [MISSING] * 39
    assert found.p50[1].tolist() == [7] * 40


def test_roots_model_time_and_unattributed_time_add_up_to_the_step() -> None:
    """To the nanosecond, and children never exceed their parent."""
    trees = CallTrees()
    for frame in frames_of(10):
        trees.add(frame)
    tree = trees.shown()
    keys = list(tree.keys)
    assert tree.step_ns == sum(frame.step_ns for frame in frames_of(10))
    roots = sum(ns for (parent, _), ns in zip(keys, tree.total_ns, strict=True) if parent < 0)
    assert roots + tree.other_ns == tree.step_ns
    assert tree.other_ns == 10 * 5 * MS
    for at, ns in enumerate(tree.total_ns):
        assert sum(tree.total_ns[i] for i, (parent, _) in enumerate(keys) if parent == at) <= ns


def test_recompute_is_below_the_backward_in_which_it_ran() -> None:
    """A node is a name in a phase at one place."""
    trees = CallTrees()
    trees.add(frames_of(1)[0])
    tree = trees.shown()
    keys = list(tree.keys)
    ((parent, _),) = [key for key in keys if key[1].phase is Phase.RECOMPUTE]
    assert keys[parent][1].phase is Phase.BACKWARD


def test_a_call_inside_a_call_of_the_same_row_is_counted_once() -> None:
    """A module that calls itself."""
    rows = (("Net", "forward", -1, 10), ("Net", "forward", 0, 6), ("Net/A", "forward", 1, 2))
    trees = CallTrees()
    trees.add(frame_of(layout_of(rows), 1, [10, 6, 2], 12))
    tree = trees.shown()
    assert [row.name for _, row in tree.keys] == ["Net", "Net/A"]
    assert tree.total_ns == [10 * MS, 2 * MS]


def test_the_tree_is_that_of_the_targets_with_most_steps() -> None:
    """As in the summary: parents and children rest on the same steps."""
    trees = CallTrees()
    coarse = layout_of((("Net", "forward", -1, 10),))
    for step in range(1, 6):
        trees.add(frame_of(coarse, step, [10], 10, cut=0))
    for frame in frames_of(9):
        trees.add(frame_of(frame.layout, frame.step, [ms for *_, ms in ROWS], 100, cut=1))
    assert trees.shown().steps == 9


def test_a_long_run_has_no_more_bins_than_its_limit(tmp_path: Path) -> None:
    """The slowest steps are kept whole beside the bins."""
    steps = 3 * STEP_BINS[1]
    run = save_run(tmp_path, frames_of(steps, slow=(700,)))
    history = read_history(run / "rank0/steps.jsonl", 64)
    assert history.steps == steps - 2
    assert len(history.levels[1].times.first) <= STEP_BINS[1]
    assert len(history.row_bins.first) <= 64
    assert len(history.slow) == SLOW_STEPS
    assert history.slow[0].step == 700
    assert _ns(int(history.slow[0].codes[0])) == pytest.approx(210 * MS, rel=0.001)


def test_the_means_of_a_bins_phases_add_up_to_its_mean_step(tmp_path: Path) -> None:
    """Within the width of a code."""
    history = read_history(save_run(tmp_path, frames_of(50)) / "rank0/steps.jsonl", 64)
    first = sum(_ns(int(codes[0])) for codes in history.levels[0].phases.values())
    assert first == pytest.approx(100 * MS, rel=0.001)


def test_a_cut_line_is_skipped_and_counted(tmp_path: Path) -> None:
    """The last line after ``kill -9``."""
    path = save_run(tmp_path, frames_of(20)) / "rank0/steps.jsonl"
    path.write_bytes(path.read_bytes()[:-40])
    history = read_history(path, 64)
    assert (history.steps, history.bad_lines) == (17, 1)


def test_memory_is_that_of_all_steps_and_a_bin_has_the_largest(tmp_path: Path) -> None:
    """Warm-up included: an allocator's peak is often there."""
    history = read_history(save_run(tmp_path, frames_of(1500)) / "rank0/steps.jsonl", 64)
    values = (history.memory.series or {})["rss_bytes"]
    assert len(values) <= 512
    assert values[0] == 1_000_000_003
    assert values[-1] == 1_000_001_500


def test_a_ranks_steps_are_read_without_their_spans(tmp_path: Path) -> None:
    """The head of a line holds the length and the phases, even where the spans are cut off."""
    path = save_run(tmp_path, frames_of(30)) / "rank0/steps.jsonl"
    lines = path.read_text("utf-8").splitlines()
    path.write_text("\n".join(line[: line.index('"spans"')] for line in lines) + "\n", "utf-8")
    rank = read_rank(path, 3)
    assert (rank.rank, rank.steps) == (3, 28)
    assert rank.mean_ns == 100 * MS
    assert sum(rank.phases.values()) == pytest.approx(100 * MS)


def _payload(run: Path) -> dict[str, Any]:
    from autoprof._reports.page.payload import run_payload
    from autoprof._storage.runs import read_run
    from autoprof.diagnose import saved_summary

    opened = read_run(run)
    found: dict[str, Any] = json.loads(json.dumps(run_payload(opened, saved_summary(opened)), allow_nan=False))
    return found


def test_a_run_that_was_killed_has_its_records(tmp_path: Path) -> None:
    """Without a summary, its figures are computed from them."""
    found = _payload(save_run(tmp_path, frames_of(20), closed=False))
    assert found["steps"] == 18
    assert any("not closed" in note for note in found["notes"])
    assert dict(map(tuple, found["about"]))["ended"].startswith("not closed")


def test_a_run_that_its_program_left_open_is_a_closed_one(tmp_path: Path) -> None:
    """``run.json`` says ``exit``; the page says it in words, and warns of nothing."""
    run = save_run(tmp_path, frames_of(20))
    info = json.loads((run / "run.json").read_text("utf-8"))
    (run / "run.json").write_text(json.dumps({**info, "ended": "exit"}))
    assert dict(map(tuple, _payload(run)["about"]))["ended"] == "closed when the program ended"


def test_a_run_without_records_has_its_summary(tmp_path: Path) -> None:
    """The tree is made of the summary's rows, and adds up too."""
    run = save_run(tmp_path, frames_of(20))
    (run / "rank0/steps.jsonl").unlink()
    found = _payload(run)
    tree = found["tree"]
    roots = sum(ns for ns, parent in zip(tree["ns"], tree["parent"], strict=True) if parent < 0)
    assert roots + tree["other"] + sum(tree["model"].values()) == tree["total"] == 18 * 100 * MS
    assert "levels" not in found


def test_an_empty_run_says_so(tmp_path: Path) -> None:
    """Nothing recorded is a sentence, not zeros."""
    found = _payload(save_run(tmp_path, frames_of(2)))
    assert "nothing was recorded" in found["empty"]


def test_a_missing_rank_is_named(tmp_path: Path) -> None:
    """The others are shown."""
    run = save_run(tmp_path, frames_of(20), world_size=3)
    save_run(tmp_path, frames_of(20), rank=2, world_size=3)
    found = _payload(run)["ranks"]
    assert found["missing"] == [1]
    assert [one["rank"] for one in found["ranks"]] == [0, 2]


def test_the_ranks_are_compared_on_the_page(tmp_path: Path) -> None:
    """From their records where the run has not saved a comparison: which rank, in which steps and rows."""
    run = save_run(tmp_path, frames_of(40), world_size=2)
    save_run(tmp_path, frames_of(40, slow=range(1, 41), extra_ms=30), rank=1, world_size=2)
    found = _payload(run)["ranks"]["excess"]
    assert found["text"].startswith("Rank 1 takes 30.0 ms")
    assert (found["slow"], found["ranks"], found["compared"]) == ([1], [0, 1], 38)
    assert found["byStep"][1] == [30_000] * 38
    assert found["rows"][0] == ["data", "data"]
    assert [times[0] for times in found["byRow"]] == [-30_000, 30_000]


def test_ranks_that_cannot_be_compared_are_a_sentence(tmp_path: Path) -> None:
    """The other rank's records are on another machine."""
    found = _payload(save_run(tmp_path, frames_of(40), world_size=2))["ranks"]["excess"]
    assert list(found) == ["text"]
    assert "could not be compared: the records of rank 1" in found["text"]


def test_names_are_in_the_data_as_they_are(tmp_path: Path) -> None:
    """Only the page escapes them."""
    assert EVIL in _payload(save_run(tmp_path, frames_of(20)))["rows"]["texts"]
