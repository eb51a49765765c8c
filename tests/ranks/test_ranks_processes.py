"""Two real ranks over gloo."""

from __future__ import annotations

import signal
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
import rank_worker
import torch
from gloo_ranks import LIMIT_S, rank_context

from autoprof import read_run
from autoprof.base.frame import Phase
from autoprof.base.summary import OTHER_TARGETS, Summary

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="needs a torch with distributed")


def train(folder: Path, case: str, *, status: int = 0) -> Summary:
    """Train two ranks as a launcher starts them, of which rank 1 ends with ``status``; return rank 0's summary."""
    context = rank_context()
    given = case, str(folder / "runs"), str(folder / "meeting")
    ranks = [context.Process(target=rank_worker.train, args=(rank, *given)) for rank in range(2)]
    try:
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join(LIMIT_S)
        assert [rank.exitcode for rank in ranks] == [0, status]
    finally:
        for rank in filter(BaseProcess.is_alive, ranks):
            rank.kill()
            rank.join()
    (run,) = (folder / "runs").iterdir()
    summary = read_run(run).summary
    assert summary is not None
    return summary


def steps_of(summary: Summary) -> int:
    """Return the number of all steps, those that a busy machine has recorded with fewer targets included."""
    others = summary.skipped.get(OTHER_TARGETS, 0)
    return summary.steps + others + summary.warmup_steps + summary.unsampled_steps


def test_the_slow_rank_of_a_short_run_is_named(tmp_path: Path) -> None:
    """60 steps: rank 1 takes 10 ms longer in the backward of ``middle``."""
    summary = train(tmp_path, "slow")
    (finding,) = [one for one in summary.findings if one.rule == "straggler"]
    assert (finding.rank, finding.name, finding.phase) == (1, "middle", Phase.BACKWARD)
    assert not [note for note in summary.notes if "rank" in note]


def test_a_rank_that_was_killed_is_named_and_delays_nobody(tmp_path: Path) -> None:
    """The summary of the other names it, with default settings."""
    summary = train(tmp_path, "dead", status=-signal.SIGKILL)
    assert steps_of(summary) == 60
    (note,) = [note for note in summary.notes if "rank 1" in note]
    assert "is late or has ended" in note
