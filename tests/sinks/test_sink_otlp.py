"""OTLP, read by a real receiver: an HTTP server that parses the protocol's own messages."""

from __future__ import annotations

import gzip
import http.server
import io
import logging
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from sink_builders import Clock, frame_of, summary_of
from waiting import wait_until

from autoprof.base.frame import Phase
from autoprof.base.storage.runs import RunFolder
from autoprof.base.summary import Finding
from autoprof.sinks._base import RunInfo
from autoprof.sinks._metrics_sink import LOOK_S
from autoprof.sinks.otlp import LATER_S, OtlpOptions, OtlpSink

EACH: dict[str, Any] = {"every": 2, "interval_s": 0, "top": 3}


class Collector:
    """A receiver of OTLP over HTTP."""

    def __init__(self) -> None:
        self.metrics: list[ExportMetricsServiceRequest] = []
        self.traces: list[ExportTraceServiceRequest] = []
        self.status = 200
        received = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                if self.path == "/v1/metrics":
                    received.metrics.append(ExportMetricsServiceRequest.FromString(body))
                elif self.path == "/v1/traces":
                    received.traces.append(ExportTraceServiceRequest.FromString(body))
                self.send_response(received.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_args: object) -> None:
                """Print nothing."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()

    def points(self) -> list[dict[tuple[str, ...], float]]:
        """Return the values of each request, by the name of the metric and its attributes."""
        return [
            {
                (metric.name, *(one.value.string_value for one in point.attributes)): point.as_double or point.as_int
                for of in request.resource_metrics
                for scope in of.scope_metrics
                for metric in scope.metrics
                for point in metric.gauge.data_points
            }
            for request in self.metrics
        ]

    def spans(self) -> list[Span]:
        """Return all spans."""
        return [
            span
            for request in self.traces
            for of in request.resource_spans
            for scope in of.scope_spans
            for span in scope.spans
        ]


@pytest.fixture
def collector() -> Iterator[Collector]:
    """A receiver that answers."""
    made = Collector()
    yield made
    made.stop()


def run_info(tmp_path: Path, clock: Clock, warn: Any = str) -> RunInfo:
    """Return the facts of a run in a folder."""
    return RunInfo(RunFolder.create(tmp_path, rank=3), 3, io.StringIO(), clock, warn=warn)


def feed(sink: OtlpSink, steps: int = 4) -> None:
    """Write steps of 1, 2, 3, … seconds."""
    for step in range(1, steps + 1):
        scalars = {"loss": 1 / step, "samples": 2.0}
        sink.write(frame_of(step=step, step_ms=1000 * step, scalars=scalars, memory={"rss_bytes": 100 * step}))


def test_metrics_have_the_names_and_units_of_the_conventions(
    tmp_path: Path, clock: Clock, collector: Collector
) -> None:
    """Seconds and bytes; a request for each report, with the attributes of the process."""
    sink = OtlpSink(OtlpOptions(endpoint=f"{collector.endpoint}/", **EACH), run_info(tmp_path, clock))
    feed(sink)
    sink.close(summary_of([]))
    first, second = collector.points()
    assert (first["autoprof.step.duration",], second["autoprof.step.duration",]) == (1.5, 3.5)
    assert second["autoprof.module.duration", "VRT/Stage8", "backward"] == pytest.approx(0.35)
    assert second["autoprof.memory.usage", "rss"] == 400
    assert second["autoprof.scalar", "loss"] == 0.25
    assert second["autoprof.step.number",] == 4
    units = {
        metric.name: metric.unit
        for of in collector.metrics[0].resource_metrics
        for scope in of.scope_metrics
        for metric in scope.metrics
    }
    assert (units["autoprof.step.duration"], units["autoprof.memory.usage"]) == ("s", "By")
    [resource] = [of.resource for of in collector.metrics[0].resource_metrics]
    attributes = {one.key: one.value for one in resource.attributes}
    assert attributes["autoprof.rank"].int_value == 3
    assert attributes["service.instance.id"].string_value.endswith("/3")
    assert {"host.name", "process.pid", "service.name", "autoprof.run.folder"} <= attributes.keys()


def test_recorded_steps_are_spans_below_that_of_the_run(tmp_path: Path, clock: Clock, collector: Collector) -> None:
    """Each has its true begin and length, and its phases; the run's span has the findings as events."""
    sink = OtlpSink(OtlpOptions(endpoint=collector.endpoint, **EACH), run_info(tmp_path, clock))
    feed(sink)
    finding = Finding("data-wait", "critical", "Waits.", "Load.", name="Data", phase=Phase.DATA, gain_ns=83_000_000)
    sink.close(replace(summary_of([]), findings=(finding,)))
    *steps, run = collector.spans()
    assert [span.end_time_unix_nano - span.start_time_unix_nano for span in steps] == [
        number * 10**9 for number in range(1, 5)
    ]
    assert {span.parent_span_id for span in steps} == {run.span_id}
    assert {span.trace_id for span in (*steps, run)} == {run.trace_id}
    assert steps[0].start_time_unix_nano == frame_of(step=1).start_unix_ns
    phases = {one.key: one.value.double_value for one in steps[1].attributes}
    assert phases["autoprof.phase.backward.duration"] > 0
    [event] = run.events
    facts = {one.key: one.value for one in event.attributes}
    assert event.name == "autoprof.finding.data-wait"
    assert (facts["autoprof.module"].string_value, facts["autoprof.gain"].double_value) == ("Data", 0.083)


def test_a_collector_that_does_not_answer_loses_reports_and_says_so_once(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """The exporter's own messages are not printed into the program's output; no step waits, and nothing raises."""
    notes: list[str] = []
    gone = Collector()
    gone.stop()
    sink = OtlpSink(OtlpOptions(endpoint=gone.endpoint, **EACH), run_info(tmp_path, clock, notes.append))
    with caplog.at_level(logging.DEBUG, "opentelemetry"):
        feed(sink)
        sink.close(summary_of([]))
    assert set(notes) == {"sinks.otlp: the collector did not take all reports; those that it refused are lost"}
    assert not [record for record in caplog.records if record.name.startswith("opentelemetry")]


def test_a_collector_that_comes_back_gets_the_later_reports(tmp_path: Path, clock: Clock, collector: Collector) -> None:
    """It is asked again after a while; the spans of the steps that it refused are lost."""
    notes: list[str] = []
    collector.status = 400  # an error that the exporter does not repeat
    sink = OtlpSink(OtlpOptions(endpoint=collector.endpoint, **EACH), run_info(tmp_path, clock, notes.append))
    feed(sink, 2)
    wait_until(lambda: notes, "the answer")
    collector.status = 200
    clock.now += LATER_S
    feed(sink, 2)
    sink.close(summary_of([]))
    assert (len(collector.metrics), len(collector.spans())) == (2, 3)


def test_the_endpoint_of_the_environment_is_used(
    tmp_path: Path, clock: Clock, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by every exporter; so are the attributes and the name of the service."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
    monkeypatch.setenv("OTEL_SERVICE_NAME", "pretraining")
    sink = OtlpSink(OtlpOptions(**EACH), run_info(tmp_path, clock))
    feed(sink)
    sink.close(summary_of([]))
    [resource] = [of.resource for of in collector.metrics[0].resource_metrics]
    assert "pretraining" in [one.value.string_value for one in resource.attributes if one.key == "service.name"]


def test_the_findings_are_looked_at_once_a_minute(tmp_path: Path, clock: Clock, collector: Collector) -> None:
    """A summary costs more than a report."""
    sink = OtlpSink(OtlpOptions(endpoint=collector.endpoint, **EACH), run_info(tmp_path, clock))
    assert (sink.due(), sink.due()) == (True, False)
    clock.now += LOOK_S
    assert (sink.due(), sink.due()) == (True, False)
    sink.close(summary_of([]))
