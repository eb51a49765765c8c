"""An HTTP endpoint that Prometheus scrapes; the answer is made at each request, on the server's thread."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import Field

from ..base.summary import Finding
from ..base.units import NS_PER_S
from ..errors import OutputError
from ._base import RunInfo
from ._kind import SinkKind
from ._metrics_sink import MetricsOptions, MetricsReport, MetricsSink, SummarySink, load_extra


class PrometheusOptions(MetricsOptions):
    """An endpoint that Prometheus scrapes, one for each rank: its port is `port` and the rank."""

    host: str = Field(default="127.0.0.1", min_length=1)
    """The address to listen on. The default is reached from this machine only; there is no password."""
    port: int = Field(default=9464, ge=0, le=65535, strict=True)
    """The port of rank 0; with 0 the system chooses one, and `run.json` names it."""


class Series(NamedTuple):
    """The name, the description and the labels of a gauge, with its values by those of the labels."""

    name: str
    about: str
    labels: tuple[str, ...]
    values: dict[Any, float]


def series_of(
    report: MetricsReport, findings: Iterable[Finding], stages_s: Mapping[str, float], top: int
) -> list[Series]:
    """Return the gauges of a report, and of the findings and the stages so far."""
    run = report.statistics
    phases = {(str(phase),): seconds for phase, seconds in report.phases_s().items()}
    spans = {(name, str(phase)): seconds for name, phase, seconds in report.rows_s(top)}
    memory = {(kind.removesuffix("_bytes"),): float(value) for kind, value in run.memory.items()}
    scalars = {(name,): value for name, value in run.scalars.items()}
    throughput = {} if report.throughput is None else {(): report.throughput}
    gains = {
        (one.rule, one.severity, one.name or "", "" if one.rank is None else str(one.rank)): one.gain_ns or 0
        for one in findings
    }
    return [
        Series("autoprof_step_seconds", "Time of a step", (), {(): report.step_s}),
        Series("autoprof_phase_seconds", "Time of a step by phase", ("phase",), phases),
        Series("autoprof_span_seconds", "Time of a step by name, children included", ("name", "phase"), spans),
        Series("autoprof_throughput_samples_per_second", "Samples a second", (), throughput),
        Series("autoprof_overhead_ratio", "autoprof's own time by step time", (), {(): run.overhead}),
        Series("autoprof_memory_bytes", "Memory at the end of the last step", ("kind",), memory),
        Series("autoprof_scalar", "Last value of each logged scalar", ("name",), scalars),
        Series(
            "autoprof_stage_seconds",
            "Time of each stage so far: training, validation, rollout, …",
            ("stage",),
            {(stage,): seconds for stage, seconds in stages_s.items()},
        ),
        Series(
            "autoprof_finding_gain_seconds",
            "Time of a step that each cause could save, 0 where it is unknown",
            ("rule", "severity", "name", "slow_rank"),
            {labels: ns / NS_PER_S for labels, ns in gains.items()},
        ),
    ]


class PrometheusSink(SummarySink, MetricsSink):
    """Keep the last report for the next request. ``port`` is the port of the endpoint."""

    def __init__(self, options: PrometheusOptions, run: RunInfo) -> None:
        client = load_extra("prometheus_client", "prometheus")
        self._families = load_extra("prometheus_client.core", "prometheus")
        self._rank = str(run.rank)
        self._top = options.top
        self._report: MetricsReport | None = None
        wanted = 0 if options.port == 0 else options.port + run.rank
        registry = client.CollectorRegistry()
        registry.register(self)
        try:
            self._server, self._thread = client.start_http_server(wanted, addr=options.host, registry=registry)
        except (OSError, OverflowError) as error:  # taken, or above 65535 with the rank
            why = getattr(error, "strerror", None) or error
            raise OutputError(
                f"sinks.prometheus: cannot listen on {options.host}:{wanted} ({why}); "
                "name a free port, or 0 to let the system choose one"
            ) from error
        self.port: int = self._server.server_port
        if run.folder is not None:
            with contextlib.suppress(OSError):
                run.folder.note("prometheus", f"http://{options.host}:{self.port}/metrics")
        SummarySink.__init__(self, run.clock)
        MetricsSink.__init__(self, options, run.clock)

    def report(self, report: MetricsReport) -> None:
        """Answer with these numbers from now on."""
        self._report = report

    def collect(self) -> Iterator[Any]:
        """Yield the metric families; called by the registry."""
        report = self._report
        if report is None:
            return
        for series in series_of(report, self.findings, self.stages_s, self._top):
            family = self._families.GaugeMetricFamily(series.name, series.about, labels=["rank", *series.labels])
            for labels, value in series.values.items():
                family.add_metric([self._rank, *labels], value)
            yield family
        about = "Recorded steps past the warm-up"
        steps = self._families.CounterMetricFamily("autoprof_recorded_steps", about, labels=["rank"])
        steps.add_metric([self._rank], report.recorded)
        yield steps

    def end(self) -> None:
        """Close the endpoint."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


SINK = SinkKind(PrometheusOptions, PrometheusSink, extra="prometheus", every_rank=True)
