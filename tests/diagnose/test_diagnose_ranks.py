"""The slow rank, found from the ranks' own records."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from evidence_builders import MS, evidence_of, finding_of, found

import autoprof
from autoprof._ranks import RankComparison, read_ranks, step_collectives
from autoprof._storage.steps_jsonl import FrameEncoder
from autoprof.cli import main
from autoprof.diagnose import RunFacts, diagnose, evidence_of_run
from autoprof.frame import Phase, Span
from autoprof.sinks._rank_timeline import align_ranks
from autoprof.summary import Finding
from autoprof.testing import make_frame
from tests.defects.ranks import train_ranks

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
        encode = FrameEncoder().encode
        text = "".join(encode(one) for one in frames)
        (folder / f"rank{number}" / "steps.jsonl").write_text(text, encoding="utf-8")
    return folder


def judge(facts: RankComparison | None, **more: Any) -> Finding | None:
    """Return the rule's answer for these ranks."""
    world = 1 if facts is None else facts.world_size
    evidence = evidence_of(STEP, repeat=40, facts=RunFacts(world_size=world, ranks=facts, **more))
    return finding_of(diagnose(evidence), "straggler")


def test_the_slow_rank_is_named_with_its_phase_and_module(tmp_path: Path) -> None:
    """All steps have one length, but the ranks' own work has not."""
    quick, slow = [frame(n) for n in range(1, 41)], [frame(n, forward=50) for n in range(1, 41)]
    finding = judge(read_ranks(write(tmp_path, quick, slow, quick), 3))
    assert finding is not None
    assert (finding.rank, finding.name, finding.phase) == (1, "encoder", Phase.FORWARD)
    assert finding.gain_ns == 20 * MS
    assert finding.why == (
        "rank 1 takes 20.0 ms (20.0 % of the step) longer than the others in each step (38 of 38 compared), in encoder "
        "(forward); the other ranks wait for it"
    )


def test_a_slow_loader_of_one_rank_is_reported_as_data(tmp_path: Path) -> None:
    """And the advice is about that loader."""
    quick, slow = [frame(n) for n in range(1, 41)], [frame(n, data=25) for n in range(1, 41)]
    finding = judge(read_ranks(write(tmp_path, slow, quick), 2))
    assert finding is not None
    assert (finding.rank, finding.name, finding.phase) == (0, "Data", Phase.DATA)
    assert "that rank's loader" in finding.next


def test_equal_ranks_get_no_finding(tmp_path: Path) -> None:
    """The differences of some percent that there always are."""
    ranks = [[frame(n, forward=30 + (n * 7 + rank) % 3) for n in range(1, 41)] for rank in range(4)]
    assert judge(read_ranks(write(tmp_path, *ranks), 4)) is None


def test_one_long_step_is_named_as_a_single_event(tmp_path: Path) -> None:
    """The other rank waits for it in the part of backward that belongs to no module."""
    others = [frame(n, length=1000 if n == 20 else 100) for n in range(1, 41)]
    stalled = [frame(n, forward=930 if n == 20 else 30, length=1000 if n == 20 else 100) for n in range(1, 41)]
    facts = read_ranks(write(tmp_path, others, stalled), 2)
    finding = judge(facts)
    assert finding is not None
    assert (finding.rank, finding.name, finding.evidence["kind"]) == (1, "encoder", "one-off")
    assert finding.evidence["late"] == [20]


def test_records_on_another_machine_are_named_as_missing(tmp_path: Path) -> None:
    """An abstention that names the ranks."""
    finding = judge(read_ranks(write(tmp_path, [frame(n) for n in range(1, 41)]), 3))
    assert finding is not None
    assert finding.severity == "info"
    assert "the steps of ranks 1, 2: on another machine" in finding.evidence["missing"]


def test_too_few_common_steps_are_an_abstention(tmp_path: Path) -> None:
    """The other ranks may have written less by now."""
    finding = judge(read_ranks(write(tmp_path, [frame(n) for n in range(1, 41)], [frame(n) for n in range(1, 8)]), 2))
    assert finding is not None
    assert "10 needed, 5 so far" in finding.evidence["missing"]


def test_only_the_ends_of_long_records_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The beginning has the layouts, the end the steps; the part between is not read."""
    monkeypatch.setattr("autoprof._ranks.record_reader.HEAD_BYTES", 4000)
    monkeypatch.setattr("autoprof._ranks.record_reader.TAIL_BYTES", 20_000)
    quick, slow = [frame(n) for n in range(1, 1001)], [frame(n, forward=50) for n in range(1, 1001)]
    run = write(tmp_path, quick, slow)
    assert (run / "rank0" / "steps.jsonl").stat().st_size > 100_000
    facts = read_ranks(run, 2)
    assert (facts.rank, facts.missing) == (1, None)
    assert 10 <= facts.steps < 100


@pytest.fixture(scope="module", params=[True, False], ids=["slow", "healthy"])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[bool, Path]:
    """Train on two real processes over gloo, one of them slower, or both alike."""
    return request.param, train_ranks(tmp_path_factory.mktemp("ranks"), request.param)


def test_rank_0_names_the_slow_one_of_two_real_ranks_at_its_end(trained: tuple[bool, Path]) -> None:
    """The finding is in its summary, from the records that both had written by then."""
    slow, run = trained
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    named = [(one["rank"], one["name"]) for one in summary["findings"] if one["rule"] == "straggler" and one["gain_ns"]]
    assert named == ([(1, "decoder")] if slow else [])


def test_a_saved_run_and_the_command_agree(trained: tuple[bool, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """``autoprof show`` reads the records of all ranks anew."""
    slow, run = trained
    judged = diagnose(evidence_of_run(autoprof.read_run(run)))
    assert ("straggler" in found(judged)) is slow
    assert main(["show", str(run)]) == 0
    printed = capsys.readouterr().out
    assert ("straggler: decoder forward on rank 1" in " ".join(printed.split())) is slow


def test_the_clocks_of_two_real_ranks_agree_within_the_stated_error(trained: tuple[bool, Path]) -> None:
    """They read one clock, so the true difference is none; a millisecond is left for readings that were interrupted."""
    run = autoprof.read_run(trained[1])
    steps = {rank: [step_collectives(one) for one in run.rank_frames(rank)] for rank in run.ranks}
    shift = align_ranks(steps, {}, 1, None).shifts[1]
    assert shift.error_ns is not None
    assert shift.calls >= 30
    moved = [abs(shift.correct(one.start_unix_ns) - one.start_unix_ns) for one in steps[1]]
    assert max(moved) <= shift.error_ns + MS
