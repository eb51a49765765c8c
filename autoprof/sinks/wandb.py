"""Metrics for Weights & Biases."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ._base import RunInfo
from ._kind import SinkKind
from ._metrics_sink import MetricsOptions, MetricsReport, SlowSink, load_extra


class WandbOptions(MetricsOptions):
    """Metrics for Weights & Biases: into the program's own run where it has one, else into a new one."""

    project: str | None = Field(default=None, min_length=1)
    """The project of a new run; `null` uses wandb's own setting and its environment."""
    name: str | None = Field(default=None, min_length=1)
    """The name of a new run; `null` is the name of the run's folder."""
    mode: Literal["online", "offline"] | None = None
    """Mode in which a new run reaches the server; `null` uses wandb's own setting and its environment."""


class WandbSink(SlowSink):
    """Log under ``autoprof/``; the first call of ``log`` takes a tenth of a second.

    Nothing is committed to a run of the program's own: the numbers join the row that the program commits next, so
    that the program's step numbers do not change. A run made here is ended here.
    """

    def __init__(self, options: WandbOptions, run: RunInfo) -> None:
        wandb = load_extra("wandb", "wandb")
        self._top = options.top
        self._is_own_run = wandb.run is None
        if self._is_own_run:
            self._run = wandb.init(
                project=options.project,
                name=options.name or (None if run.folder is None else run.folder.path.name),
                mode=options.mode,
                dir=None if run.folder is None else str(run.folder.rank_path),
                settings=wandb.Settings(console="off", silent=True),  # wandb must not capture the program's output
            )
        else:
            self._run = wandb.run
        self._run.define_metric("autoprof/step")
        self._run.define_metric("autoprof/*", step_metric="autoprof/step")
        super().__init__("wandb", options, run.clock)

    def send(self, report: MetricsReport) -> None:
        """Log the numbers."""
        self._run.log({"autoprof/step": report.step, **report.named(self._top)}, commit=self._is_own_run)

    def finish(self) -> None:
        """End a run that was made here."""
        if self._is_own_run:
            self._run.finish()


SINK = SinkKind(
    WandbOptions,
    WandbSink,
    extra="wandb",
    remedy="log in with 'wandb login' or WANDB_API_KEY, or record locally with mode: offline",
)
