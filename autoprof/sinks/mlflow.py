"""Metrics for MLflow."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from .._reports.scalars import Metrics
from .._units import NS_PER_MS
from ._base import RunInfo
from ._metrics_sink import Courier, MetricsSink, load_extra

if TYPE_CHECKING:
    from ..config.schema import MlflowOptions

_FORBIDDEN: Final = re.compile(r"[^/\w.\- ]")
"""What MLflow refuses in the name of a metric."""


class MlflowSink(MetricsSink):
    """Log into the active run, or one that is made and ended here; from a thread of its own, as a store may be slow."""

    def __init__(self, options: MlflowOptions, run: RunInfo) -> None:
        mlflow = load_extra("mlflow", "mlflow")
        tracking = load_extra("mlflow.tracking", "mlflow")
        self._metric = load_extra("mlflow.entities", "mlflow").Metric
        self._top = options.top
        active = mlflow.active_run()
        self._client = tracking.MlflowClient(tracking_uri=options.tracking_uri)
        self._ours = active is None or options.tracking_uri not in (None, mlflow.get_tracking_uri())
        self.run_id: str = self._new_run(options, run) if self._ours else active.info.run_id
        self._client.log_batch(self.run_id, metrics=())  # what it imports and builds at first use, it does now
        self._courier = Courier("mlflow", self._log)
        super().__init__(options, run.clock)

    def _new_run(self, options: MlflowOptions, run: RunInfo) -> str:
        known = self._client.get_experiment_by_name(options.experiment)
        experiment = self._client.create_experiment(options.experiment) if known is None else known.experiment_id
        name = None if run.folder is None else run.folder.path.name
        made: str = self._client.create_run(experiment, run_name=name).info.run_id
        return made

    def report(self, metrics: Metrics) -> None:
        """Hand the report to the thread."""
        self._courier.put(metrics)

    def _log(self, metrics: Metrics) -> None:
        at_ms = metrics.time_unix_ns // NS_PER_MS
        named = {_FORBIDDEN.sub("_", name): value for name, value in metrics.named(self._top).items()}
        values = [self._metric(name, value, at_ms, metrics.step) for name, value in named.items()]
        self._client.log_batch(self.run_id, metrics=values, synchronous=True)

    def end(self) -> None:
        """Wait for the last report, and end the run that was made here."""
        try:
            self._courier.close()
        finally:
            if self._ours:
                self._client.set_terminated(self.run_id)
