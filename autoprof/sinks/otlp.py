"""Metrics and spans by the OpenTelemetry protocol, for the collector that a fleet has already."""

from __future__ import annotations

import logging
import os
import platform
import secrets
from collections import deque
from collections.abc import Iterator, Mapping
from threading import get_ident
from time import time_ns
from typing import Any, Final, NamedTuple

from pydantic import Field

from ..base.frame import Phase, StepFrame
from ..base.summary import Finding, Summary
from ..base.units import NS_PER_S
from ..base.version import VERSION
from ._base import RunInfo
from ._kind import SinkKind
from ._metrics_sink import MetricsOptions, MetricsReport, SlowSink, SummarySink, load_extra

MOST_STEPS: Final = 256
"""Recorded steps between two reports that become spans; of more, the last ones do."""
TIMEOUT_S: Final = 2.0
"""The longest wait for the collector: by the sink's own thread, and at the end of the run by the program."""
LATER_S: Final = 60.0
"""The time for which a collector that did not answer is not asked again."""
_EXPORTER: Final = "opentelemetry.exporter.otlp.proto.http"


class OtlpOptions(MetricsOptions):
    """Metrics, and spans of recorded steps, by OTLP over HTTP: for an OpenTelemetry collector."""

    endpoint: str | None = Field(default=None, min_length=1)
    """The collector, such as `http://collector:4318`; `null` uses `OTEL_EXPORTER_OTLP_ENDPOINT`, else this machine."""


class TimedStep(NamedTuple):
    """A recorded step."""

    number: int
    start_unix_ns: int
    ns: int
    phases_ns: Mapping[Phase, int]


class Gauge(NamedTuple):
    """The name, the unit and the description of a metric, with its values by their attributes."""

    name: str
    unit: str
    about: str
    points: list[tuple[dict[str, str], float]]


def gauges_of(report: MetricsReport, stages_s: Mapping[str, float], top: int) -> list[Gauge]:
    """Return the metrics of a report, named as the semantic conventions ask: units of UCUM, times in seconds."""
    run = report.statistics
    phases = [({"autoprof.phase": str(phase)}, seconds) for phase, seconds in report.phases_s().items()]
    rows = [({"autoprof.module": name, "autoprof.phase": str(phase)}, s) for name, phase, s in report.rows_s(top)]
    memory = [
        ({"autoprof.memory.kind": kind.removesuffix("_bytes")}, float(value)) for kind, value in run.memory.items()
    ]
    stages = [({"autoprof.stage": name}, seconds) for name, seconds in stages_s.items()]
    scalars = [({"autoprof.scalar": name}, value) for name, value in run.scalars.items()]
    throughput: list[tuple[dict[str, str], float]] = [] if report.throughput is None else [({}, report.throughput)]
    return [
        Gauge("autoprof.step.duration", "s", "Mean time of a step", [({}, report.step_s)]),
        Gauge("autoprof.phase.duration", "s", "Time of a step by phase", phases),
        Gauge("autoprof.module.duration", "s", "Time of a step by module, those inside included", rows),
        Gauge("autoprof.throughput", "{sample}/s", "Samples a second", throughput),
        Gauge("autoprof.overhead", "1", "autoprof's own processor time by step time", [({}, run.overhead)]),
        Gauge("autoprof.memory.usage", "By", "Memory at the end of the last step", memory),
        Gauge("autoprof.scalar", "1", "Last value of each logged scalar", scalars),
        Gauge("autoprof.stage.duration", "s", "Time of each stage so far", stages),
        Gauge("autoprof.step.number", "{step}", "The last recorded step", [({}, report.step)]),
    ]


class OtlpSink(SummarySink, SlowSink):
    """Send metrics and spans on the sink's own thread. A collector that does not answer loses reports, and no step.

    The trace of a run has one span of the whole run, whose events are the findings, and below it a span of each
    recorded step. No global provider of OpenTelemetry is used: the program may have its own.
    """

    def __init__(self, options: OtlpOptions, run: RunInfo) -> None:
        self._metrics = load_extra("opentelemetry.sdk.metrics.export", "otlp")
        self._trace = load_extra("opentelemetry.sdk.trace", "otlp")
        self._api = load_extra("opentelemetry.trace", "otlp")
        resources = load_extra("opentelemetry.sdk.resources", "otlp")
        scopes = load_extra("opentelemetry.sdk.util.instrumentation", "otlp")
        exporters = [load_extra(f"{_EXPORTER}.{kind}_exporter", "otlp") for kind in ("metric", "trace")]
        base = None if options.endpoint is None else options.endpoint.rstrip("/")
        urls = [None if base is None else f"{base}/v1/{kind}" for kind in ("metrics", "traces")]
        self._send_metrics = exporters[0].OTLPMetricExporter(endpoint=urls[0], timeout=TIMEOUT_S)
        self._send_spans = exporters[1].OTLPSpanExporter(endpoint=urls[1], timeout=TIMEOUT_S)
        self._loggers = [logging.getLogger(exporter.__name__) for exporter in exporters]
        folder = None if run.folder is None else str(run.folder.path)
        self._resource = resources.Resource.create(
            {
                "host.name": platform.node(),
                "process.pid": os.getpid(),
                "service.instance.id": f"{'run' if folder is None else os.path.basename(folder)}/{run.rank}",
                "autoprof.rank": run.rank,
                **({} if folder is None else {"autoprof.run.folder": folder}),
            }
        )
        self._scope = scopes.InstrumentationScope("autoprof", VERSION)
        self._top, self._warn = options.top, run.warn
        self._trace_id, self._run_id = secrets.randbits(128) or 1, secrets.randbits(64) or 1
        self._began_ns = time_ns()
        self._steps: deque[TimedStep] = deque(maxlen=MOST_STEPS)
        self._silent_until = run.clock()
        SummarySink.__init__(self, run.clock)
        SlowSink.__init__(self, "otlp", options, run.clock)

    # On the training thread.

    def write(self, frame: StepFrame) -> None:
        """Add one step's frame, and keep its times for a span."""
        if not frame.warmup:
            self._steps.append(TimedStep(frame.step, frame.start_unix_ns, frame.step_ns, frame.phase_ns()))
        super().write(frame)

    def close(self, summary: Summary) -> None:
        """Keep the last findings and stages, and report the last steps."""
        self.show(summary, summary.all_steps)
        super().close(summary)

    # On the sink's thread.

    def send(self, report: MetricsReport) -> None:
        """Send the metrics of some steps, and the spans of the recorded ones among them."""
        self._export(self._send_metrics, self._metrics_data(report))
        steps = [self._steps.popleft() for _ in range(len(self._steps))]
        self._export(self._send_spans, [self._step_span(step) for step in steps])

    def finish(self) -> None:
        """Send the span of the run with its findings, and close the connections."""
        self._export(self._send_spans, [self._run_span()])
        for exporter in (self._send_metrics, self._send_spans):
            exporter.shutdown()

    def _export(self, exporter: Any, data: Any) -> None:
        """Send data; where the collector does not take them, they are lost, and it is not asked for a while."""
        if not data or self._clock() < self._silent_until:
            return
        own = get_ident()

        def is_others(record: logging.LogRecord) -> bool:
            return record.thread != own

        for logger in self._loggers:  # they would print each failure into the program's output
            logger.addFilter(is_others)
        try:
            result = exporter.export(data)
        finally:
            for logger in self._loggers:
                logger.removeFilter(is_others)
        if result.name != "SUCCESS":
            self._silent_until = self._clock() + LATER_S
            self._warn("sinks.otlp: the collector did not take all reports; those that it refused are lost")

    def _metrics_data(self, report: MetricsReport) -> Any:
        made = self._metrics
        metrics = [
            made.Metric(
                gauge.name,
                gauge.about,
                gauge.unit,
                made.Gauge(
                    [
                        made.NumberDataPoint(attributes, self._began_ns, report.time_unix_ns, value)
                        for attributes, value in gauge.points
                    ]
                ),
            )
            for gauge in gauges_of(report, self.stages_s, self._top)
            if gauge.points
        ]
        scope = made.ScopeMetrics(self._scope, metrics, "")
        return made.MetricsData([made.ResourceMetrics(self._resource, [scope], "")])

    def _step_span(self, step: TimedStep) -> Any:
        attributes: dict[str, float] = {"autoprof.step": step.number}
        attributes |= {f"autoprof.phase.{phase}.duration": ns / NS_PER_S for phase, ns in step.phases_ns.items()}
        span = secrets.randbits(64) or 1
        return self._span("training step", span, self._run_id, step.start_unix_ns, step.ns, attributes)

    def _run_span(self) -> Any:
        events = [
            self._trace.Event(f"autoprof.finding.{one.rule}", dict(_facts(one)), timestamp=time_ns())
            for one in self.findings
        ]
        ns = time_ns() - self._began_ns
        return self._span("training", self._run_id, None, self._began_ns, ns, {}, events)

    def _span(
        self,
        name: str,
        span: int,
        parent: int | None,
        start_ns: int,
        ns: int,
        attributes: Mapping[str, Any],
        events: list[Any] | None = None,
    ) -> Any:
        def context(span_id: int) -> Any:
            sampled = self._api.TraceFlags(self._api.TraceFlags.SAMPLED)
            return self._api.SpanContext(self._trace_id, span_id, is_remote=False, trace_flags=sampled)

        return self._trace.ReadableSpan(
            name,
            context=context(span),
            parent=None if parent is None else context(parent),
            resource=self._resource,
            attributes=attributes,
            events=events or (),
            kind=self._api.SpanKind.INTERNAL,
            instrumentation_scope=self._scope,
            status=self._api.Status(),
            start_time=start_ns,
            end_time=start_ns + ns,
        )


def _facts(finding: Finding) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of a finding; those of times are in seconds."""
    yield "autoprof.severity", finding.severity
    yield "autoprof.why", finding.why
    yield "autoprof.next", finding.next
    if finding.name is not None:
        yield "autoprof.module", finding.name
    if finding.phase is not None:
        yield "autoprof.phase", str(finding.phase)
    if finding.rank is not None:
        yield "autoprof.slow_rank", finding.rank
    if finding.gain_ns is not None:
        yield "autoprof.gain", finding.gain_ns / NS_PER_S


SINK = SinkKind(OtlpOptions, OtlpSink, extra="otlp", every_rank=True)
