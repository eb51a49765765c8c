"""An HTTP endpoint that Prometheus scrapes; the answer is made at each request, on the server's thread."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import Field

from ..errors import OutputError
from ._base import RunInfo
from ._kind import SinkKind
from ._metrics_sink import Labelled, MetricsOptions, MetricsReport, MetricsSink, Series, labelled_values, load_extra


class PrometheusOptions(MetricsOptions):
    """An endpoint that Prometheus scrapes, one for each rank: its port is `port` and the rank."""

    host: str = Field(default="127.0.0.1", min_length=1)
    """The address to listen on. The default is reached from this machine only; there is no password."""
    port: int = Field(default=9464, ge=0, le=65535, strict=True)
    """The port of rank 0; with 0 the system chooses one, and `run.json` names it."""


class PrometheusSink(MetricsSink):
    """Keep the last report for the next request. ``port`` is the port of the endpoint."""

    def __init__(self, options: PrometheusOptions, run: RunInfo) -> None:
        client = load_extra("prometheus_client", "prometheus")
        self._families = load_extra("prometheus_client.core", "prometheus")
        self._rank = str(run.rank)
        self._top = options.top
        self._values: Mapping[Series, Labelled] = {}
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
        super().__init__(options, run.clock)

    def report(self, report: MetricsReport) -> None:
        """Answer with these numbers from now on."""
        self._values = labelled_values(report, self._top)

    def collect(self) -> Iterator[Any]:
        """Yield the metric families; called by the registry."""
        for series, values in self._values.items():
            kind = self._families.CounterMetricFamily if series.is_counter else self._families.GaugeMetricFamily
            names = list(values[0][1]) if values else []
            family = kind(series.prometheus, series.about, labels=["rank", *names])
            for value, labels in values:
                family.add_metric([self._rank, *labels.values()], value)
            yield family

    def end(self) -> None:
        """Close the endpoint."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


SINK = SinkKind(PrometheusOptions, PrometheusSink, extra="prometheus", every_rank=True)
