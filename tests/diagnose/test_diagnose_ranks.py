"""The slow rank, found from the ranks' own records."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from evidence_builders import MS, evidence_of, finding_of

from autoprof.base.frame import Phase, Span
from autoprof.base.stats.intervals import Interval
from autoprof.diagnose import RunFacts, diagnose
from autoprof.frontends.cli import main
from autoprof.ranks import RankComparison, compare_saved
from autoprof.ranks.comparison import SlowRank
from autoprof.ranks.record_reader import MAX_STEPS
from autoprof.testing import make_frame
from tests.defects.ranks import train_ranks
from tests.saved_records import write_records

STEP = {"data": 1, "forward": 30, "backward": 60, "optimizer": 4}


def frame(step: int, *, data: float = 1, forward: float = 30, backward: float = 40, length: float = 100) -> Any:
    """Make a step in which DDP waits, after the last module's backward, for as long as the step has left."""
    spans, at = [], 0
    for name, fqn, phase, ms in (
        ("Data", None, Phase.DATA, data),
        ("encoder", "encoder", Phase.FORWARD, forward),
        ("(backward)", None, Phase.BACKWARD, length - data - forward),
    ):
        spans.append(Span(name, fqn, phase, None, at, round(ms * MS)))
        at += round(ms * MS)
    spans.append(Span("encoder", "encoder", Phase.BACKWARD, 2, spans[2].start_ns, round(backward * MS)))
    return make_frame(spans, step=step, duration_ns=round(length * MS), warmup=step <= 2)


def write(folder: Path, *ranks: Sequence[Any]) -> Path:
    """Write the records of a run."""
    for number, frames in enumerate(ranks):
        (folder / f"rank{number}").mkdir()
        write_records(folder / f"rank{number}", frames)
    return folder


def judge(facts: RankComparison | None, **more: Any) -> Any:
    """Return the rule's answer for these ranks."""
    world = 1 if facts is None else facts.world_size
    evidence = evidence_of(STEP, repeat=40, facts=RunFacts(world_size=world, ranks=facts, **more))
    return finding_of(diagnose(evidence), "straggler")


def test_the_slow_rank_is_named_with_its_phase_and_module(tmp_path: Path) -> None:
    """All steps have one length, but the ranks' own work has not."""
    quick, slow = [frame(n) for n in range(1, 41)], [frame(n, forward=50) for n in range(1, 41)]
    finding = judge(compare_saved(write(tmp_path, quick, slow, quick), 3, None))
    assert (finding.rank, finding.name, finding.phase) == (1, "encoder", Phase.FORWARD)
    assert finding.gain_ns == 20 * MS
    assert finding.why == (
        "rank 1 takes 20.0 ms (20.0 % of the step) longer than the others in each step (38 of 38 compared), in encoder "
        "(forward); the other ranks wait for it"
    )


def test_a_slow_rank_costs_the_others_their_wait_and_not_their_own_time_in_that_row(tmp_path: Path) -> None:
    """Another rank waits 30 ms longer for its batches than this one, whose own wait is 1 ms."""
    quick, slow = [frame(n) for n in range(1, 41)], [frame(n, data=31) for n in range(1, 41)]
    finding = judge(compare_saved(write(tmp_path, quick, slow, quick), 3, None))
    assert (finding.severity, finding.rank, finding.name, finding.gain_ns) == ("warning", 1, "Data", 30 * MS)


@pytest.mark.parametrize(("cause", "gain_ms"), [("batches", 10), ("machine", 20)])
def test_work_that_is_shared_out_evenly_takes_longer_on_the_others(cause: Any, gain_ms: int) -> None:
    """Of two ranks, one takes 20 ms longer for its larger batches: with equal ones both take 10 ms more."""
    excess = Interval.exact(20 * MS)
    slow = SlowRank(0, "persistent", cause, "encoder", Phase.FORWARD, 20 * MS, excess, 20 * MS, 40, ratio=2.0)
    ranks = RankComparison(2, steps=40, step_ns=100 * MS, slow=(slow,), excess_ns=excess)
    finding = judge(ranks)
    assert finding.gain_ns == gain_ms * MS


def test_the_slow_rank_comes_before_the_time_in_no_span_that_it_leaves() -> None:
    """Of 60 ms in no span rank 0 has 40 more than the others: these are the larger cause."""
    slow = SlowRank(0, "persistent", "host", "(other)", Phase.OTHER, 40 * MS, Interval.exact(40 * MS), 40 * MS, 40)
    ranks = RankComparison(3, steps=40, step_ns=100 * MS, slow=(slow,), excess_ns=slow.excess_ns)
    evidence = evidence_of({"forward": 20, "backward": 20}, repeat=40, facts=RunFacts(world_size=3, ranks=ranks))
    named = [(one.rule, one.gain_ns) for one in diagnose(evidence).findings if one.severity != "info"]
    assert named == [("straggler", 40 * MS), ("unattributed", 20 * MS)]


def test_records_on_another_machine_are_named_as_missing(tmp_path: Path) -> None:
    """An abstention that names the ranks."""
    finding = judge(compare_saved(write(tmp_path, [frame(n) for n in range(1, 41)]), 3, None))
    assert finding.severity == "info"
    assert "the steps of ranks 1, 2: on another machine" in finding.evidence["missing"]


def test_the_last_steps_of_long_records_are_compared(tmp_path: Path) -> None:
    """The names of their spans are at the beginning."""
    quick, slow = [frame(n) for n in range(1, 1001)], [frame(n, forward=50) for n in range(1, 1001)]
    facts = compare_saved(write(tmp_path, quick, slow), 2, None)
    assert (facts.rank, facts.missing, facts.steps) == (1, None, MAX_STEPS)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train on two real processes over gloo, one of them slower."""
    return train_ranks(tmp_path_factory.mktemp("ranks"), True)


def test_rank_0_names_the_slow_one_of_two_real_ranks_at_its_end(trained: Path) -> None:
    """The finding is in its summary, from the records that both had written by then."""
    summary = json.loads((trained / "summary.json").read_text(encoding="utf-8"))
    named = [(one["rank"], one["name"]) for one in summary["findings"] if one["rule"] == "straggler" and one["gain_ns"]]
    assert named == [(1, "decoder")]


def test_the_command_names_the_slow_rank_of_a_saved_run(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``autoprof show`` reads the records of all ranks anew."""
    assert main(["show", str(trained)]) == 0
    printed = capsys.readouterr().out
    assert "straggler: decoder forward on rank 1" in " ".join(printed.split())
