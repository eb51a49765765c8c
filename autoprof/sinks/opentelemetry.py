"""Metrics through OpenTelemetry: observable instruments, read on the exporter's thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pydantic import Field, field_validator

from .._core.names import quoted
from .._core.units import NS_PER_S
from ._address import web_address
from ._base import RunInfo
from ._kind import SinkKind
from ._metrics_sink import MetricsOptions, MetricsSink, StepSums, load_extra

Observations = Iterable[tuple[float, dict[str, str]]]


class OpentelemetryOptions(MetricsOptions):
    """Metrics through OpenTelemetry's SDK, for each rank."""

    endpoint: str | None = Field(default=None, min_length=1)
    """An OTLP/HTTP address such as `http://localhost:4318/v1/metrics`; `null` uses the program's own meter provider."""

    @field_validator("endpoint")
    @classmethod
    def _is_address(cls, value: str | None) -> str | None:
        if value is not None and web_address(value) is None:
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
        self._metrics: StepSums | None = None
        self._provider: Any = None
        if options.endpoint is not None:
            self._provider = _exporting(options.endpoint, options.interval_s)
        meter = (self._provider or api).get_meter("autoprof")
        for name, unit, about, values in self._instruments():
            make = meter.create_observable_counter if unit == "{step}" else meter.create_observable_gauge
            make(name, callbacks=[self._callback(values)], unit=unit, description=about)
        super().__init__(options, run.clock)

    def _instruments(self) -> list[tuple[str, str, str, Callable[[StepSums], Observations]]]:
        return [
            ("autoprof.step.time", "s", "Time of a step", lambda m: [(m.step_ns / m.steps / NS_PER_S, {})]),
            ("autoprof.phase.time", "s", "Time of a step by phase", _phases),
            ("autoprof.span.time", "s", "Time of a step by name, children included", self._rows),
            ("autoprof.throughput", "{sample}/s", "Samples a second", _throughput),
            ("autoprof.overhead", "1", "autoprof's own time by step time", lambda m: [(m.overhead, {})]),
            ("autoprof.memory", "By", "Memory at the end of the last step", _memory),
            ("autoprof.scalar", "1", "Last value of each logged scalar", _scalars),
            ("autoprof.steps", "{step}", "Recorded steps past the warm-up", lambda m: [(m.recorded, {})]),
        ]

    def _rows(self, metrics: StepSums) -> Observations:
        return [(seconds, {"name": name, "phase": str(phase)}) for name, phase, seconds in metrics.top(self._top)]

    def _callback(self, values: Callable[[StepSums], Observations]) -> Callable[[Any], list[Any]]:
        def observe(_options: Any) -> list[Any]:
            metrics = self._metrics
            if metrics is None:
                return []
            return [self._observation(value, {**self._rank, **labels}) for value, labels in values(metrics)]

        return observe

    def report(self, metrics: StepSums) -> None:
        """Yield these numbers from now on."""
        self._metrics = metrics

    def end(self) -> None:
        """Export the last report, and yield no values from now on."""
        provider, self._provider = self._provider, None
        if provider is not None:
            provider.shutdown()
        self._metrics = None


def _exporting(endpoint: str, interval_s: float) -> Any:
    sdk = load_extra("opentelemetry.sdk.metrics", "opentelemetry")
    readers = load_extra("opentelemetry.sdk.metrics.export", "opentelemetry")
    otlp = load_extra("opentelemetry.exporter.otlp.proto.http.metric_exporter", "opentelemetry")
    reader = readers.PeriodicExportingMetricReader(
        otlp.OTLPMetricExporter(endpoint=endpoint), export_interval_millis=max(interval_s, 1.0) * 1000
    )
    return sdk.MeterProvider(metric_readers=[reader])


def _phases(metrics: StepSums) -> Observations:
    return [(ns / metrics.steps / NS_PER_S, {"phase": str(phase)}) for phase, ns in metrics.phases.items()]


def _throughput(metrics: StepSums) -> Observations:
    return [] if metrics.throughput is None else [(metrics.throughput, {})]


def _memory(metrics: StepSums) -> Observations:
    return [(value, {"kind": kind.removesuffix("_bytes")}) for kind, value in metrics.memory.items()]


def _scalars(metrics: StepSums) -> Observations:
    return [(value, {"name": name}) for name, value in metrics.scalars.items()]


SINK = SinkKind(OpentelemetryOptions, OpentelemetrySink, extra="opentelemetry", every_rank=True)
