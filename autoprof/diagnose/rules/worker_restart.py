"""Rule ``worker-restart``: the loader's worker processes are started again for each epoch, and epochs are short."""

from __future__ import annotations

from typing import Final

from ..._stats.intervals import Interval
from ..._units import format_ms
from ...frame import Phase
from ...summary import Finding, Summary
from .._evidence import Evidence
from .._experiment import Experiment
from .._rule import Defect, Rule
from .._thresholding import ExceededBound, abstain, threshold_time

MAX_SHARE: Final = 0.05
"""With ``persistent_workers`` nothing of it is left but the first batch, so all of this time can be gained."""
MIN_STARTS: Final = 3
"""Starts after the first one of the run; two may be two phases of a program."""


def judge(run: Evidence) -> Finding | None:
    """Judge the time from a start to its first batch, spread over the batches of its epoch."""
    loader = run.summary.loader
    starts, batches = loader.get("starts", 0), loader.get("starts", 0) + loader.get("fetches", 0)
    if starts < MIN_STARTS:
        return None if run.rows.get(Phase.DATA) else abstain("worker-restart", "data spans", "use torch's DataLoader")
    each = Interval(loader["start_min_ns"], loader["start_ns"] / starts, loader["start_max_ns"])
    fetches = (run.summary.micro_steps or 1) * starts / batches
    time = Interval(*(part * fetches for part in each))
    step = Interval.exact(run.summary.step_mean_ns)
    found = threshold_time("worker-restart", run, time, time.middle, MAX_SHARE, Phase.DATA, step=step)
    if not isinstance(found, ExceededBound):
        return found
    number = loader["workers"]
    workers = "1 worker process is" if number == 1 else f"{number} worker processes are"
    return found.finding(
        f"{workers} started again about every {round(batches / starts)} batches; "
        f"{format_ms(each.middle)} pass until the first batch of each start, {found}",
        "DataLoader(..., persistent_workers=True) keeps them between epochs; or make epochs longer",
        evidence={"starts": starts, "batches": batches, "workers": loader["workers"]},
    )


def train_with_restarts(broken: bool) -> Summary:
    """Take a second and a half to start a worker for each epoch of six batches; the healthy twin keeps the worker."""
    from typing import Any

    import torch
    from torch.utils.data import DataLoader, TensorDataset

    from ...demo.defects import CONFIG, MS, WIDTH, SlowSGD, four_layers
    from ...testing import FakeClock, open_session

    clock = FakeClock()

    class SlowStart(DataLoader[Any]):
        """A loader whose worker takes this long to start."""

        def _get_iterator(self) -> Any:
            clock.advance(1_500 * MS)
            return super()._get_iterator()

    data = TensorDataset(torch.randn(24, WIDTH))
    loader = SlowStart(data, batch_size=4, num_workers=1, persistent_workers=not broken)
    model = four_layers(clock)
    optimizer = SlowSGD(model, clock, MS // 2)
    session = open_session(model, CONFIG, clock=clock, optimizer=optimizer)
    for _ in range(24):
        for (batch,) in loader:
            model(batch).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            session.step()
    session.close()
    return session.summary()


RULE = Rule(
    "worker-restart",
    judge,
    order=12,
    defects=(Defect("workers restarted in each epoch", train_with_restarts),),
    experiment=Experiment("loader.persistent_workers", value=True),
)
