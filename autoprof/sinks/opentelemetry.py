"""Metrics through OpenTelemetry: observable instruments, read on the exporter's thread."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from pydantic import Field, field_validator

from .._core.names import quoted
from ._base import RunInfo
from ._kind import SinkKind
from ._metrics_sink import (
    SERIES,
    Labelled,
    MetricsOptions,
    MetricsReport,
    MetricsSink,
    Series,
    labelled_values,
    load_extra,
)


class OpentelemetryOptions(MetricsOptions):
    """Metrics through OpenTelemetry's SDK, for each rank."""

    endpoint: str | None = Field(default=None, min_length=1)
    """An OTLP/HTTP address such as `http://localhost:4318/v1/metrics`; `null` uses the program's own meter provider."""

    @field_validator("endpoint")
    @classmethod
    def _is_address(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"https?://[\w.\-:\[\]%]+(/\S*)?", value):
            raise ValueError(f"{quoted(value)} is no address; allowed: one such as http://localhost:4318/v1/metrics")
        return value


class OpentelemetrySink(MetricsSink):
    """Keep the last report for the program's meter provider, or for an own provider that exports to ``endpoint``.

    An instrument cannot be removed from a provider; after ``close`` those of this sink yield no values.
    """

    def __init__(self, options: OpentelemetryOptions, run: RunInfo) -> None:
        api = load_extra("opentelemetry.metrics", "opentelemetry")
        self._observation = api.Observation
        self._rank = {"autoprof.rank": str(run.rank)}
        self._top = options.top
        self._values: Mapping[Series, Labelled] = {}
        self._provider: Any = None
        if options.endpoint is not None:
            self._provider = _exporting(options.endpoint, options.interval_s)
        meter = (self._provider or api).get_meter("autoprof")
        for series in SERIES:
            make = meter.create_observable_counter if series.is_counter else meter.create_observable_gauge
            callbacks = [partial(self._observe, series)]
            make(series.opentelemetry, callbacks=callbacks, unit=series.unit, description=series.about)
        super().__init__(options, run.clock)

    def _observe(self, series: Series, _options: Any) -> list[Any]:
        values = self._values.get(series, [])
        return [self._observation(value, {**self._rank, **labels}) for value, labels in values]

    def report(self, report: MetricsReport) -> None:
        """Yield these numbers from now on."""
        self._values = labelled_values(report, self._top)

    def end(self) -> None:
        """Export the last report, and yield no values from now on."""
        provider, self._provider = self._provider, None
        if provider is not None:
            provider.shutdown()
        self._values = {}


def _exporting(endpoint: str, interval_s: float) -> Any:
    sdk = load_extra("opentelemetry.sdk.metrics", "opentelemetry")
    readers = load_extra("opentelemetry.sdk.metrics.export", "opentelemetry")
    otlp = load_extra("opentelemetry.exporter.otlp.proto.http.metric_exporter", "opentelemetry")
    reader = readers.PeriodicExportingMetricReader(
        otlp.OTLPMetricExporter(endpoint=endpoint), export_interval_millis=max(interval_s, 1.0) * 1000
    )
    return sdk.MeterProvider(metric_readers=[reader])


SINK = SinkKind(OpentelemetryOptions, OpentelemetrySink, extra="opentelemetry", every_rank=True)
