"""Rule ``comm-exposed``: the step waits for communication that no computation overlaps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ...frame import Phase
from ...summary import Finding, Row, Summary
from .._evidence import Evidence
from .._experiment import Experiment
from .._rule import Defect, Rule
from .._thresholding import ExceededBound, abstain, dominant_name, threshold_rows
from . import straggler

if TYPE_CHECKING:
    from torch import Tensor

MAX_SHARE: Final = 0.10
"""Gradients are reduced while backward runs (Li et al. 2020, arXiv:2006.15704); only the rest is exposed."""


def judge(run: Evidence) -> Finding | None:
    """Judge the exposed communication, unless most of it is the wait for a straggler."""
    rows = run.rows.get(Phase.COMM)
    if rows is None:
        return abstain("comm-exposed", "comm spans", "nothing to do when one process trains alone")
    found = threshold_rows("comm-exposed", run, rows, MAX_SHARE)
    if found is None or _waits_for_straggler(run, rows):
        return None
    if not isinstance(found, ExceededBound):
        return found
    disabled = run.facts.environment.disabled_p2p
    p2p = f"unset {disabled}, which makes GPUs of one machine communicate through its memory; " if disabled else ""
    return found.finding(
        f"exposed communication takes {found}; nothing is computed meanwhile",
        f"{p2p}overlap communication with backward (DDP buckets, FSDP prefetch), accumulate gradients under "
        "no_sync(), or send less (bfloat16 gradients)",
        name=dominant_name(rows),
        evidence={"p2p": disabled} if disabled else {},
    )


def _waits_for_straggler(run: Evidence, rows: list[Row]) -> bool:
    """Return whether most of the communication is the wait for the rank that rule ``straggler`` reports."""
    ranks, finding = run.facts.ranks, straggler.judge(run)
    if ranks is None or finding is None or finding.severity == "info":
        return False
    longer_ns = ranks.own_ns[ranks.rank] - ranks.own_ns[run.facts.rank]
    return 2 * longer_ns * run.summary.steps >= sum(row.self_ns for row in rows)


def train_with_unbucketed_gradients(broken: bool) -> Summary:
    """Average each gradient on its own over a link with 30 ms latency; the healthy twin sends one bucket.

    The link is a process group of two ranks on the fake clock. The other rank has the same gradients and answers at
    once. The group is not registered in torch's list of groups.
    """
    import torch
    import torch.distributed as dist

    from ...demo.defects import MS, four_layers, train
    from ...testing import FakeClock

    latency_ms = 30

    class CompletedWork:
        """The handle of a collective that is complete."""

        def wait(self) -> bool:
            return True

    class Link(dist.ProcessGroup):
        """A process group of two ranks that takes ``latency_ms`` for each collective."""

        def allreduce(self, tensors: list[Tensor], options: Any = None) -> CompletedWork:  # type: ignore[override]
            clock.advance(latency_ms * MS)
            for tensor in tensors:
                tensor.mul_(self.size())
            return CompletedWork()

    clock = FakeClock()
    link = Link(0, 2)  # type: ignore[call-arg]  # torch's stub knows only the form with a store
    model = four_layers(clock)

    def average() -> None:
        gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        bucket = torch.cat([gradient.flatten() for gradient in gradients])
        for part in gradients if broken else [bucket]:
            dist.all_reduce(part, group=link)
            part.div_(link.size())
        if not broken:
            sizes = [gradient.numel() for gradient in gradients]
            for gradient, values in zip(gradients, torch.split(bucket, sizes), strict=True):
                gradient.copy_(values.view_as(gradient))

    return train(model, clock, before_update=average)


RULE = Rule(
    "comm-exposed",
    judge,
    order=110,
    defects=(Defect("gradients averaged one by one", train_with_unbucketed_gradients),),
    experiment=Experiment("communication.bucketed", value=True),
)
