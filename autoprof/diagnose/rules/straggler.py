"""Rule ``straggler``: one rank's own work takes longer, and the other ranks wait for it in each step."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..._stats.intervals import Interval
from ..._units import format_ms, format_percent
from ...frame import Phase
from ...summary import Finding, Summary
from .._evidence import Evidence
from .._experiment import Experiment
from .._rule import Defect, Rule
from .._thresholding import abstain, classify, inconclusive

if TYPE_CHECKING:
    from torch import Tensor

MAX_SHARE: Final = 0.05
"""All ranks lose the excess of one rank: a twentieth of the step on 8 GPUs is nearly half a GPU."""


def judge(run: Evidence) -> Finding | None:
    """Judge by how much the slowest rank's own work exceeds the median of the other ranks'."""
    if run.facts.world_size <= 1:
        return abstain("straggler", "other ranks", "nothing to do when one process trains alone")
    ranks = run.facts.ranks
    if ranks is None:
        missing = "the other ranks' records" if run.facts.rank else "the ranks' records: none compared yet"
        return abstain("straggler", missing, "rank 0 compares them, and so does autoprof show RUN")
    if ranks.missing is not None:
        return abstain("straggler", ranks.missing, "autoprof show RUN compares them when all are in one folder")
    share = ranks.excess.over(Interval.exact(ranks.step_ns))
    evidence = {
        "own_ns": list(ranks.own_ns),
        "excess_ns": round(ranks.excess.middle),
        "share": round(share.middle, 4),
        "share_low": round(share.low, 4),
        "share_high": round(share.high, 4),
        "bound": MAX_SHARE,
        "steps": ranks.steps,
    }
    position = classify(share, MAX_SHARE)
    if position != "above":
        return inconclusive("straggler", share, MAX_SHARE, evidence) if position == "near" else None
    place = f", most of it in {ranks.name} ({ranks.phase}, {format_ms(ranks.name_ns)})" if ranks.name else ""
    return Finding(
        "straggler",
        "warning",
        f"rank {ranks.rank}'s own work takes {format_ms(ranks.own_ns[ranks.rank])} of each step, "
        f"{format_ms(ranks.excess.middle)} ({format_percent(share.middle)} of the step) more than the others' (median "
        f"of {ranks.steps} steps){place}; the other ranks wait that long for it",
        _advise(ranks.phase),
        ranks.name,
        ranks.phase,
        ranks.rank,
        gain_ns=ranks.gain_ns,
        evidence=evidence,
    )


def _advise(phase: Phase | None) -> str:
    if phase is Phase.DATA:
        return "check that rank's loader: its disk, its share of the files, the length of its samples, its workers"
    if phase is Phase.USER:
        return "move the work of that rank alone (logging, saving) out of the step, or share it among the ranks"
    return (
        "give every rank the same amount of work (lengths of its samples, its part of the model); if it has the same, "
        "check that machine: other processes, clocks and temperature, its link"
    )


def _experiment(finding: Finding) -> Experiment:
    return Experiment("rank.work", "edit", target=str(finding.rank))


RANKS: Final = 2


def train_rank(rank: int, port: int, folder: str, broken: bool) -> None:
    """Train as one of two ranks; where ``broken``, the last rank takes three times as long for its decoder."""
    import os
    import time

    import torch
    import torch.distributed as dist
    from torch import nn

    import autoprof

    class Part(nn.Module):
        """A layer that sleeps, so that the other rank has the processor."""

        def __init__(self, seconds: float) -> None:
            super().__init__()
            self.layer = nn.Linear(32, 32)
            self.seconds = seconds

        def forward(self, x: Tensor) -> Tensor:
            time.sleep(self.seconds)
            return self.layer(x)  # type: ignore[no-any-return]

    class Model(nn.Module):
        """Two parts in sequence."""

        def __init__(self, encoder_s: float, decoder_s: float) -> None:
            super().__init__()
            self.encoder, self.decoder = Part(encoder_s), Part(decoder_s)

        def forward(self, x: Tensor) -> Tensor:
            return self.decoder(self.encoder(x))  # type: ignore[no-any-return]

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    try:
        torch.manual_seed(0)
        slow = broken and rank == RANKS - 1
        model = nn.parallel.DistributedDataParallel(Model(0.01, 0.03 if slow else 0.01))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        config = {
            "targets": [{"match": "encoder|decoder"}],
            "step": "manual",
            "sample": {"warmup": 5, "budget": None},
            "sinks": {"jsonl": {"flush_s": 0}},
            "output": folder,
        }
        session = autoprof.instrument(model, config, optimizer=optimizer)
        for _ in range(40):
            model(torch.randn(4, 32)).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            session.step()
        dist.barrier()  # in this training only, so that all records are complete
        session.close()
    finally:
        dist.destroy_process_group()


def train_ranks(folder: Path, broken: bool) -> Path:
    """Train on all ranks, a process each; return the run's folder."""
    import socket

    import torch.multiprocessing as multiprocessing

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    multiprocessing.spawn(train_rank, args=(port, str(folder), broken), nprocs=RANKS)  # type: ignore[attr-defined,no-untyped-call]
    (run,) = folder.iterdir()
    return run


def train_with_slow_rank(broken: bool) -> Summary:
    """Slow down one of two ranks that train together over gloo; in the healthy twin both are alike.

    The summary is diagnosed from the records of both ranks.
    """
    import tempfile

    from ..._storage.runs import read_run
    from .. import diagnose, evidence_of_run

    with tempfile.TemporaryDirectory() as folder:
        return diagnose(evidence_of_run(read_run(train_ranks(Path(folder), broken))))


RULE = Rule(
    "straggler",
    judge,
    order=190,
    defects=(Defect("one slow rank", train_with_slow_rank, "real clock"),),
    experiment=_experiment,
)
