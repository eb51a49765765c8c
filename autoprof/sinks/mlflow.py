"""Metrics for MLflow."""

from __future__ import annotations

import re
import socket
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from pydantic import Field

from .._core.units import NS_PER_MS
from ..errors import OutputError
from ._base import RunInfo
from ._kind import SinkKind
from ._metrics_sink import MetricsOptions, MetricsReport, SlowSink, load_extra


class MlflowOptions(MetricsOptions):
    """Metrics for MLflow: into the program's active run where it has one, else into a new one."""

    tracking_uri: str | None = Field(default=None, min_length=1)
    """The tracking server or store; `null` uses mlflow's own setting and its environment."""
    experiment: str = Field(default="autoprof", min_length=1)
    """The experiment of a new run; it is created if necessary."""


class MlflowSink(SlowSink):
    """Log into the active run, or into a new one that is ended here."""

    def __init__(self, options: MlflowOptions, run: RunInfo) -> None:
        mlflow = load_extra("mlflow", "mlflow")
        tracking = load_extra("mlflow.tracking", "mlflow")
        self._metric = load_extra("mlflow.entities", "mlflow").Metric
        self._top = options.top
        active = mlflow.active_run()
        uri = options.tracking_uri or mlflow.get_tracking_uri()
        _check_server(uri)
        self._client = tracking.MlflowClient(tracking_uri=options.tracking_uri)
        self._is_own_run = active is None or options.tracking_uri not in (None, mlflow.get_tracking_uri())
        self.run_id: str = self._new_run(options, run) if self._is_own_run else active.info.run_id
        self._client.log_batch(self.run_id, metrics=())  # its imports at first use happen now, not in a step
        super().__init__("mlflow", options, run.clock)

    def _new_run(self, options: MlflowOptions, run: RunInfo) -> str:
        known = self._client.get_experiment_by_name(options.experiment)
        experiment = self._client.create_experiment(options.experiment) if known is None else known.experiment_id
        name = None if run.folder is None else run.folder.path.name
        made: str = self._client.create_run(experiment, run_name=name).info.run_id
        return made

    def send(self, report: MetricsReport) -> None:
        """Log the numbers in one batch."""
        at_ms = report.time_unix_ns // NS_PER_MS
        # Characters that MLflow refuses in the name of a metric.
        named = {re.sub(r"[^/\w.\- ]", "_", name): value for name, value in report.named(self._top).items()}
        values = [self._metric(name, value, at_ms, report.step) for name, value in named.items()]
        self._client.log_batch(self.run_id, metrics=values, synchronous=True)

    def finish(self) -> None:
        """End a run that was made here."""
        if self._is_own_run:
            self._client.set_terminated(self.run_id)


def _check_server(uri: str) -> None:
    """Raise ``OutputError`` where no server accepts a connection: MLflow repeats its requests for minutes.

    Behind a proxy nothing is tested.
    """
    parts = urlsplit(uri)
    host = parts.hostname or ""
    if parts.scheme not in ("http", "https") or (parts.scheme in getproxies() and not proxy_bypass(host)):
        return
    try:
        socket.create_connection((host, parts.port or {"http": 80, "https": 443}[parts.scheme]), timeout=5.0).close()
    except OSError as error:
        raise OutputError(
            f"sinks.mlflow: no server answers at {uri} ({error.strerror or error}); "
            "start the server, set tracking_uri to another, or remove the key mlflow"
        ) from error


SINK = SinkKind(
    MlflowOptions,
    MlflowSink,
    extra="mlflow",
    remedy="set tracking_uri to a server that runs (a file of SQLite needs the whole package mlflow)",
)
