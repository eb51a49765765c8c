"""Metrics for Weights & Biases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .._reports.scalars import Metrics
from ._base import RunInfo
from ._metrics_sink import Courier, MetricsSink, load_extra

if TYPE_CHECKING:
    from ..config.schema import WandbOptions

STEP: Final = "autoprof/step"
"""What the charts have on their x axis."""


class WandbSink(MetricsSink):
    """Log under ``autoprof/``, from a thread of its own: the first call of ``log`` takes a tenth of a second.

    Into a run of the program's own nothing is committed: the numbers join the row that the program commits next, so
    that its steps stay its own. A run made here is ended here.
    """

    def __init__(self, options: WandbOptions, run: RunInfo) -> None:
        wandb = load_extra("wandb", "wandb")
        self._top = options.top
        self._ours = wandb.run is None
        folder = None if run.folder is None else run.folder.rank_path
        if self._ours:
            self._run = wandb.init(
                project=options.project,
                name=options.name or (None if run.folder is None else run.folder.path.name),
                mode=options.mode,
                dir=None if folder is None else str(folder),
                settings=wandb.Settings(console="off", silent=True),  # what the program prints is the program's
            )
        else:
            self._run = wandb.run
        self._run.define_metric(STEP)
        self._run.define_metric("autoprof/*", step_metric=STEP)
        self._courier = Courier("wandb", self._log)
        super().__init__(options, run.clock)

    def report(self, metrics: Metrics) -> None:
        """Hand the report to the thread."""
        self._courier.put(metrics)

    def _log(self, metrics: Metrics) -> None:
        self._run.log({STEP: metrics.step, **metrics.named(self._top)}, commit=self._ours)

    def end(self) -> None:
        """Wait for the last report, and end the run that was made here."""
        try:
            self._courier.close()
        finally:
            if self._ours:
                self._run.finish()
