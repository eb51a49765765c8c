"""``compare_runs``: saved runs in, verdicts out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compare_builders import MS, kill, noise, on_device, save, train

from autoprof.errors import ConfigError, OutputError
from autoprof.frontends.compare import Comparison, compare_runs
from autoprof.frontends.compare.data import Change


def row(comparison: Comparison, name: str, phase: str = "forward") -> Change:
    return next(one for one in comparison.rows if (one.name, one.phase) == (name, phase))


def whole(comparison: Comparison, name: str = "step") -> Change:
    return next(one for one in comparison.whole if one.name == name)


def phase(comparison: Comparison, name: str) -> Change:
    return next(one for one in comparison.phases if one.phase == name)


def test_more_work_in_one_module_is_found_there_and_nowhere_else(tmp_path: Path) -> None:
    """A real model whose mixer works twice: the mixer is slower, forward and backward; the other parts are the same."""
    comparison = compare_runs(train(tmp_path, seed=1), train(tmp_path, seed=2, work=2), margin=0.05)
    verdicts = {(one.name, str(one.phase)): one.verdict for one in comparison.rows}
    assert verdicts[("Net/mixer", "forward")] == verdicts[("Net/mixer", "backward")] == "slower"
    assert {verdicts[(f"Net/{part}", way)] for part in ("encoder", "head") for way in ("forward", "backward")} == {
        "same"
    }
    mixer = row(comparison, "Net/mixer")
    assert mixer.low is not None
    assert mixer.high is not None
    assert mixer.low < 2.0 < mixer.high * 1.001
    assert whole(comparison).verdict == phase(comparison, "forward").verdict == "slower"
    assert whole(comparison, "throughput").verdict == "slower"
    assert whole(comparison, "throughput").ratio == pytest.approx(1 / (whole(comparison).ratio or 0), rel=0.02)


def test_the_healthy_twin_has_no_finding(tmp_path: Path) -> None:
    """The same model on other noise: everything is the same within the margin."""
    comparison = compare_runs(train(tmp_path, seed=1), train(tmp_path, seed=2), margin=0.05)
    changes = [*comparison.whole, *comparison.phases, *comparison.rows]
    assert {one.verdict for one in changes if one.name != "Optimizer"} == {"same"}
    assert len(changes) > 8


def test_noise_leaves_small_changes_open(tmp_path: Path) -> None:
    """1 % more in 30 % of noise is neither proven nor ruled out, and the reason is said."""
    a = save(tmp_path, {("A", "forward"): 100 * noise(60, 1, spread=0.3)})
    b = save(tmp_path, {("A", "forward"): 101 * noise(60, 2, spread=0.3)})
    one = row(compare_runs(a, b), "A")
    assert (one.verdict, one.why) == ("inconclusive", "the interval is wider than ±2 %")


def test_same_takes_an_interval_within_the_margin(tmp_path: Path) -> None:
    """What is proven to differ by less than counts is the same; with a narrower margin it is slower."""
    a = save(tmp_path, {("A", "forward"): 100 * noise(400, 1, spread=0.001)})
    b = save(tmp_path, {("A", "forward"): 101 * noise(400, 2, spread=0.001)})
    assert row(compare_runs(a, b), "A").verdict == "same"
    assert row(compare_runs(a, b, margin=0.005), "A").verdict == "slower"


def test_a_hundred_rows_of_equal_runs_have_no_finding(tmp_path: Path) -> None:
    """Two runs of one distribution, a hundred rows of correlated steps each."""
    runs = [
        save(tmp_path, {(f"M{at}", "forward"): 2 * noise(150, 1000 * side + at, memory=0.5) for at in range(100)})
        for side in (1, 2)
    ]
    comparison = compare_runs(*runs, min_share=0)
    assert [one for one in comparison.rows if one.verdict in ("slower", "faster")] == []


def test_warm_up_is_left_out(tmp_path: Path) -> None:
    """Twenty slow first steps, marked as warm-up, change nothing but their count."""

    def warm(step: int, fields: dict[str, Any]) -> dict[str, Any]:
        return {**fields, "warmup": step < 20}

    column = 100 * noise(80, 1)
    a = save(tmp_path, {("A", "forward"): column}, change=warm)
    slow = np.where(np.arange(80) < 20, 900, column)
    b = save(tmp_path, {("A", "forward"): slow}, change=warm)
    comparison = compare_runs(a, b)
    assert whole(comparison).ratio == row(comparison, "A").ratio == 1.0
    assert (comparison.b[0].steps, comparison.b[0].warmup) == (60, 20)


def test_unsampled_steps_belong_to_no_step(tmp_path: Path) -> None:
    """Gaps of many seconds before recorded steps touch neither the step nor the throughput; they are counted."""

    def sampled(step: int, fields: dict[str, Any]) -> dict[str, Any]:
        gap = {"gap_steps": 50, "gap_ns": 50_000 * MS} if step % 8 == 0 and step else {}
        return {**fields, "step": step + 1 + 50 * (step // 8), "scalars": {"samples": 4.0}, **gap}

    column = 100 * noise(80, 1)
    a = save(tmp_path, {("A", "forward"): column}, change=lambda _, fields: {**fields, "scalars": {"samples": 4.0}})
    b = save(tmp_path, {("A", "forward"): column}, change=sampled)
    comparison = compare_runs(a, b)
    assert {one.ratio for one in comparison.whole} == {1.0}
    assert (comparison.a[0].unsampled, comparison.b[0].unsampled) == (0, 450)


def test_a_run_that_was_killed_is_compared_as_far_as_it_came(tmp_path: Path) -> None:
    """Half of its records, the last one cut: it is said, and the injected work is found all the same."""
    a, b = train(tmp_path, seed=1), kill(train(tmp_path, seed=2, work=2), steps=43)
    comparison = compare_runs(a, b)
    assert comparison.b[0].steps + comparison.b[0].warmup == 43  # a step after a long pass is warm-up too
    assert row(comparison, "Net/mixer").verdict == "slower"
    notes = "\n".join(comparison.notes)
    assert f"B: {b} was not closed (killed, or still running): its records so far are compared" in notes
    assert "has 1 unreadable record, excluded" in notes


def test_too_few_steps_are_inconclusive(tmp_path: Path) -> None:
    """Twelve steps prove nothing, however long they are, and the reason names the number."""
    a = save(tmp_path, {("A", "forward"): 100 * noise(60, 1)})
    b = save(tmp_path, {("A", "forward"): 900 * noise(12, 2)})
    one = row(compare_runs(a, b), "A")
    assert (one.verdict, one.why) == ("inconclusive", "only 12 steps in B; 20 are needed")


def test_added_and_removed_modules_are_listed(tmp_path: Path) -> None:
    """A row that one side has alone has its time and share there, and no verdict."""
    a = save(tmp_path, {("A", "forward"): 70 * noise(60, 1), ("Old", "forward"): 29 * noise(60, 2)})
    b = save(tmp_path, {("A", "forward"): 70 * noise(60, 3), ("New", "user"): 9 * noise(60, 4)})
    comparison = compare_runs(a, b)
    old, new = row(comparison, "Old"), row(comparison, "New", "user")
    assert (old.verdict, old.why, new.verdict, new.why) == ("inconclusive", "not in B", "inconclusive", "not in A")
    assert (old.a, old.share_a) == (pytest.approx(29 * MS, rel=0.02), pytest.approx(0.29, abs=0.02))
    assert (new.a, new.b) == (None, pytest.approx(9 * MS, rel=0.02))


def test_rows_of_fewer_steps_are_compared_by_their_mean(tmp_path: Path) -> None:
    """A span in each tenth step that takes as long as ever is 90 % faster: the mean of all steps is compared."""
    often = 5 * noise(300, 1, spread=0.005)
    seldom = np.where(np.arange(300) % 10 == 0, often, np.nan)
    step = ("A", "forward")
    a = save(tmp_path, {step: 20 * noise(300, 2), ("metrics", "user"): often})
    b = save(tmp_path, {step: 20 * noise(300, 3), ("metrics", "user"): seldom})
    for one in (row(compare_runs(a, b), "metrics", "user"), phase(compare_runs(a, b), "user")):
        assert one.verdict == "faster"
        assert one.ratio == pytest.approx(0.1, rel=0.05)
        assert one.why == "mean over all steps: it is in 100.0 % of A's, 10.0 % of B's"


def test_a_module_that_was_not_recorded_is_not_zero(tmp_path: Path) -> None:
    """Where the budget drops modules, a module's row is compared over the steps that have it."""
    column = 10 * noise(200, 1, spread=0.01)
    dropped = np.where(np.arange(200) % 4 == 0, column, np.nan)
    rest = ("rest", "user")
    a = save(tmp_path, {("A", "forward"): column, rest: 50 * noise(200, 2)}, fqns={"A": "a"})
    b = save(tmp_path, {("A", "forward"): dropped, rest: 50 * noise(200, 3)}, fqns={"A": "a"})
    one = row(compare_runs(a, b), "A")
    assert one.verdict == "same"
    assert one.a == pytest.approx(one.b, rel=0.02)


def test_different_work_is_judged_by_its_throughput(tmp_path: Path) -> None:
    """Twice the batch in 1.5 times the time: the step is longer, but only the throughput says something of a limit."""

    def of(samples: float) -> Any:
        return lambda _, fields: {**fields, "scalars": {"samples": samples}}

    a = save(tmp_path, {("A", "forward"): 100 * noise(80, 1)}, change=of(8.0))
    b = save(tmp_path, {("A", "forward"): 150 * noise(80, 2)}, change=of(16.0))
    comparison = compare_runs(a, b, fail_over=0.05)
    assert whole(comparison).verdict == "slower"
    assert whole(comparison, "throughput").verdict == "faster"
    assert comparison.over_limit() == ()
    assert "8 and 16 samples a step: the steps are not the same work" in "\n".join(comparison.notes)


def test_the_clocks_of_host_and_device_are_never_mixed(tmp_path: Path) -> None:
    """A run on a device and one without: only the host's whole steps are compared, and it is said why."""
    columns = {("A", "forward"): 100 * noise(60, 1)}
    device = save(tmp_path, columns, change=on_device(list(90 * noise(60, 2)), host_ms=120))
    host = save(tmp_path, {("A", "forward"): 119 * noise(60, 3)})
    comparison = compare_runs(host, device)
    assert comparison.clock is None
    assert comparison.rows == comparison.phases == ()
    assert [one.name for one in comparison.whole] == ["step (host time)"]
    assert comparison.whole[0].b == pytest.approx(120 * MS)
    assert "cannot be compared" in "\n".join(comparison.notes)


def test_on_a_device_the_step_is_the_devices_and_the_hosts_is_beside_it(tmp_path: Path) -> None:
    """Two runs on devices: device time counts; the host's whole step is a row of its own name."""
    runs = [
        save(
            tmp_path,
            {("A", "forward"): 100 * noise(60, seed)},
            change=on_device(list(90 * noise(60, seed + 5)), host_ms=120),
        )
        for seed in (1, 2)
    ]
    comparison = compare_runs(*runs)
    assert comparison.clock == "device"
    assert whole(comparison).a == pytest.approx(90 * MS, rel=0.02)
    assert whole(comparison, "step (host time)").a == pytest.approx(120 * MS)


def test_several_runs_a_side_know_how_runs_differ(tmp_path: Path) -> None:
    """Runs that differ by 5 % among themselves: what one pair proves is inconclusive for three."""
    levels = [(1.0, 1.05, 0.95), (1.03, 1.08, 0.98)]
    sides = [
        [
            save(
                tmp_path / str(side),
                {("A", "forward"): 100 * one * noise(60, 9 * side + at, spread=0.002)},
                name=f"r{at}",
            )
            for at, one in enumerate(levels[side])
        ]
        for side in (0, 1)
    ]
    assert row(compare_runs(sides[0][0], sides[1][0]), "A").verdict == "slower"
    assert row(compare_runs(*sides), "A").verdict == "inconclusive"
    by_pattern = compare_runs(f"{tmp_path}/0/*", f"{tmp_path}/1/r?")
    assert [Path(one.path).name for one in by_pattern.b] == ["r0", "r1", "r2"]
    assert row(by_pattern, "A").low == row(compare_runs(*sides), "A").low
    assert "one run a side" in "\n".join(compare_runs(sides[0][0], sides[1][0]).notes)
    assert "one run a side" not in "\n".join(by_pattern.notes)


def test_ranks_are_compared_together(tmp_path: Path) -> None:
    """Two ranks, the second slower in B: their mean is in between."""
    runs = []
    for side, slow in (("a", 1.0), ("b", 1.2)):
        for rank, factor in ((0, 1.0), (1, slow)):
            column = 100 * factor * noise(60, rank + ord(side), spread=0.005)
            path = save(tmp_path, {("A", "forward"): column}, rank=rank, world_size=2, name=side)
        runs.append(path)
    assert row(compare_runs(*runs), "A").ratio == pytest.approx(1.2**0.5, rel=0.01)


def test_different_hardware_versions_and_configurations_are_pointed_out(tmp_path: Path) -> None:
    """From ``run.json``, the most important first; the folder of the run is no difference."""
    column = {("A", "forward"): 10 * noise(30, 1)}
    a = save(tmp_path, column, devices=["cuda:0 NVIDIA A100"], versions={"torch": "2.12.0"}, config={"output": "x"})
    b = save(
        tmp_path,
        column,
        devices=["cuda:0 NVIDIA H100"],
        versions={"torch": "2.13.0"},
        config={"output": "y", "targets": [{"match": "a"}]},
    )
    found = {one.key: (one.a, one.b) for one in compare_runs(a, b).differences}
    assert found == {
        "devices": (("cuda:0 NVIDIA A100",), ("cuda:0 NVIDIA H100",)),
        "versions.torch": (("2.12.0",), ("2.13.0",)),
        "config.targets[0].match": (("none",), ("a",)),
    }
    assert next(iter(found)) == "devices"


def test_rows_below_the_minimum_share_are_excluded_and_counted(tmp_path: Path) -> None:
    """Below 1 % of the step on both sides a row is not judged; one that grows beyond it is."""
    base = {("A", "forward"): 990 * noise(60, 1), ("tiny", "forward"): 0.5 * noise(60, 2)}
    a = save(tmp_path, {**base, ("grew", "forward"): 2 * noise(60, 3)})
    b = save(tmp_path, {**base, ("grew", "forward"): 90 * noise(60, 4)})
    comparison = compare_runs(a, b)
    assert {one.name for one in comparison.rows} == {"A", "grew"}
    assert comparison.small == 1
    assert {one.name for one in compare_runs(a, b, min_share=0).rows} == {"A", "grew", "tiny"}


def test_the_last_steps_of_a_long_run_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded, and a note says so."""
    monkeypatch.setattr("autoprof.frontends.compare.series.MAX_STEPS", 50)
    column = np.concatenate([10 * noise(200, 1), 20 * noise(50, 2)])
    comparison = compare_runs(*(save(tmp_path, {("A", "forward"): column}) for _ in "ab"))
    assert (comparison.a[0].steps, comparison.a[0].older) == (50, 200)
    assert row(comparison, "A").a == pytest.approx(20 * MS, rel=0.1)
    assert "is long: its last 50 recorded steps are compared" in "\n".join(comparison.notes)


def test_an_option_that_cannot_be_is_named(tmp_path: Path) -> None:
    """Before any file is read."""
    with pytest.raises(ConfigError, match=r"margin: -0.1 is out of range; allowed: a fraction from 0 to below 10"):
        compare_runs(tmp_path / "no", tmp_path / "run", margin=-0.1)


def test_runs_that_cannot_be_compared_are_named(tmp_path: Path) -> None:
    """What is no run, holds runs, matches none, is there twice, or has no records: one message with the way out."""
    good = save(tmp_path / "runs", {("A", "forward"): 10 * noise(30, 1)}, name="good")
    empty = save(tmp_path, {("A", "forward"): [1.0]}, name="empty")
    (empty / "rank0/steps.jsonl").unlink()
    torn = save(tmp_path, {("A", "forward"): [1.0]}, name="torn")
    (torn / "run.json").write_text("[]")
    for wrong, message in (
        (tmp_path / "nothing", "is not the folder of a run"),
        (torn, "is not the folder of a run"),
        (tmp_path / "runs", r"contains 1 runs; name one of them, or all: .*/runs/\*"),
        (f"{tmp_path}/x*", "matches no run; allowed: folders with a run.json"),
        ([good, good], "is given twice on one side"),
        ([], "a side has no run"),
        (empty, r"has no records \(steps.jsonl\); allowed: a run with the sink jsonl"),
    ):
        with pytest.raises(OutputError, match=message):
            compare_runs(good, wrong)
