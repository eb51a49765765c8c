"""An HTTP endpoint that Prometheus scrapes; the answer is made at each request, on the server's thread."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final

from pydantic import Field

from .._core.units import NS_PER_S
from ..errors import OutputError
from ._base import RunInfo
from ._kind import SinkKind
from ._metrics_sink import MetricsOptions, MetricsSink, StepSums, load_extra

_LAST_PORT: Final = 65535


class PrometheusOptions(MetricsOptions):
    """An endpoint that Prometheus scrapes, one for each rank: its port is `port` and the rank."""

    host: str = Field(default="127.0.0.1", min_length=1)
    """The address to listen on. The default is reached from this machine only; there is no password."""
    port: int = Field(default=9464, ge=0, le=_LAST_PORT, strict=True)
    """The port of rank 0; with 0 the system chooses one, and `run.json` names it."""


class PrometheusSink(MetricsSink):
    """Keep the last report for the next request. ``port`` is the port of the endpoint."""

    def __init__(self, options: PrometheusOptions, run: RunInfo) -> None:
        client = load_extra("prometheus_client", "prometheus")
        self._families = load_extra("prometheus_client.core", "prometheus")
        self._rank = str(run.rank)
        self._top = options.top
        self._metrics: StepSums | None = None
        wanted = 0 if options.port == 0 else options.port + run.rank
        registry = client.CollectorRegistry()
        registry.register(self)
        if wanted > _LAST_PORT:
            raise OutputError(
                f"sinks.prometheus.port: {wanted} for rank {run.rank} is not a port; allowed: up to {_LAST_PORT}"
            )
        try:
            self._server, self._thread = client.start_http_server(wanted, addr=options.host, registry=registry)
        except OSError as error:
            raise OutputError(
                f"sinks.prometheus: cannot listen on {options.host}:{wanted} ({error.strerror or error}); "
                "name a free port, or 0 to let the system choose one"
            ) from error
        self.port: int = self._server.server_port
        if run.folder is not None:
            with contextlib.suppress(OSError):
                run.folder.note("prometheus", f"http://{options.host}:{self.port}/metrics")
        super().__init__(options, run.clock)

    def report(self, metrics: StepSums) -> None:
        """Answer with these numbers from now on."""
        self._metrics = metrics

    def collect(self) -> Iterator[Any]:
        """Yield the metric families; called by the registry."""
        metrics = self._metrics
        if metrics is None:
            return
        yield self._gauge(
            "step_seconds", "Time of a step, mean since the last report", metrics.step_ns / metrics.steps / NS_PER_S
        )
        yield self._gauge("step", "The last step", metrics.step)
        if metrics.throughput is not None:
            yield self._gauge("throughput_samples_per_second", "Samples a second", metrics.throughput)
        yield self._gauge("overhead_ratio", "autoprof's own time by step time", metrics.overhead)
        yield self._counter("recorded_steps", "Recorded steps past the warm-up", metrics.recorded)
        yield self._counter("dropped_marks", "Marks and spans lost", metrics.dropped)
        phases = {(str(phase),): ns / metrics.steps / NS_PER_S for phase, ns in metrics.phases.items()}
        yield self._labelled("phase_seconds", "Time of a step by phase", ("phase",), phases)
        rows = {(name, str(phase)): seconds for name, phase, seconds in metrics.top(self._top)}
        yield self._labelled("span_seconds", "Time of a step by name, children included", ("name", "phase"), rows)
        memory = {(kind.removesuffix("_bytes"),): float(value) for kind, value in metrics.memory.items()}
        yield self._labelled("memory_bytes", "Memory at the end of the last step", ("kind",), memory)
        scalars = {(name,): value for name, value in metrics.scalars.items()}
        yield self._labelled("scalar", "Last value of each logged scalar", ("name",), scalars)

    def _gauge(self, name: str, about: str, value: float) -> Any:
        return self._labelled(name, about, (), {(): value})

    def _labelled(self, name: str, about: str, labels: tuple[str, ...], values: dict[Any, float]) -> Any:
        family = self._families.GaugeMetricFamily(f"autoprof_{name}", about, labels=("rank", *labels))
        for key, value in values.items():
            family.add_metric((self._rank, *key), value)
        return family

    def _counter(self, name: str, about: str, value: float) -> Any:
        family = self._families.CounterMetricFamily(f"autoprof_{name}", about, labels=("rank",))
        family.add_metric((self._rank,), value)
        return family

    def end(self) -> None:
        """Close the endpoint."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


SINK = SinkKind(PrometheusOptions, PrometheusSink, extra="prometheus", every_rank=True)
