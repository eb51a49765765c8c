"""The dashboard for Grafana asks for series that exist: those of the sink, and of a real Prometheus that scrapes it."""

import io
import json
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from sink_builders import Clock, frame_of, summary_of
from waiting import LIMIT_S, wait_until

from autoprof.base.storage.runs import RunFolder
from autoprof.base.summary import Finding
from autoprof.sinks._base import RunInfo
from autoprof.sinks.prometheus import PrometheusOptions, PrometheusSink

DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana.json"
STRAGGLER = Finding("straggler", "critical", "Rank 1 is slow.", "Look there.", name="Block", rank=1, gain_ns=40_000_000)


def expressions() -> list[str]:
    """Return the queries of all panels."""
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    return [target["expr"] for panel in panels for target in panel["targets"]]


@pytest.fixture
def ranks(tmp_path: Path, clock: Clock) -> Iterator[list[PrometheusSink]]:
    """The endpoints of two ranks that train."""
    sinks = []
    for rank in range(2):
        folder = RunFolder.create(tmp_path / str(rank), rank=rank)
        sink = PrometheusSink(
            PrometheusOptions(port=0, every=1, interval_s=0), RunInfo(folder, rank, io.StringIO(), clock)
        )
        sink.show(replace(summary_of([]), findings=(STRAGGLER,)), 1)
        for step in range(1, 4):
            sink.write(frame_of(step=step, scalars={"loss": 1.0, "samples": 2.0}, memory={"rss_bytes": 100}))
        sinks.append(sink)
    yield sinks
    for sink in sinks:
        sink.close(summary_of([]))


def test_the_dashboard_asks_for_series_that_are_exported(ranks: list[PrometheusSink]) -> None:
    """With labels that they have."""
    with urllib.request.urlopen(f"http://127.0.0.1:{ranks[0].port}/metrics", timeout=LIMIT_S) as answer:
        families = [*text_string_to_metric_families(answer.read().decode())]
    labels = {sample.name: {"job", *sample.labels} for family in families for sample in family.samples}
    for expression in expressions():
        [name] = set(re.findall(r"autoprof_\w+", expression))
        assert name in labels, expression
        grouped = re.findall(r"by \(([\w, ]+)\)", expression)
        asked = {label.strip() for group in grouped for label in group.split(",")}
        asked |= set(re.findall(r"(\w+)=~?\"", expression))
        assert asked <= labels[name], expression


def query(port: int, expression: str) -> list[dict[str, Any]]:
    """Ask a Prometheus; return the result."""
    text = urllib.parse.urlencode({"query": expression.replace("$job", ".+").replace("$rank", ".+")})
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query?{text}", timeout=LIMIT_S) as answer:
        found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
    return found


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs the program prometheus")
def test_a_real_prometheus_answers_each_query_of_the_dashboard(ranks: list[PrometheusSink], tmp_path: Path) -> None:
    """Ranks, phases, the verdict and the slow rank."""
    targets = [f"127.0.0.1:{sink.port}" for sink in ranks]
    scrape = {"job_name": "training", "scrape_interval": "1s", "static_configs": [{"targets": targets}]}
    (tmp_path / "prometheus.yml").write_text(json.dumps({"scrape_configs": [scrape]}), encoding="utf-8")
    command = [
        "prometheus", f"--config.file={tmp_path / 'prometheus.yml'}", f"--storage.tsdb.path={tmp_path / 'data'}",
        "--web.listen-address=127.0.0.1:0",
    ]  # fmt: skip
    log, listening = tmp_path / "log", re.compile(r'"Listening on" address=127\.0\.0\.1:(\d+)')
    with log.open("w") as output, subprocess.Popen(command, stdout=output, stderr=output) as server:
        try:
            wait_until(lambda: listening.search(log.read_text()), "the server")
            port = int(listening.findall(log.read_text())[0])
            wait_until(lambda: len(query(port, "rate(autoprof_recorded_steps_total[5m])")) == 2, "two scrapes")
            for expression in expressions():
                assert query(port, expression), expression
            [slow] = query(port, 'max by (slow_rank) (autoprof_finding_gain_seconds{rule="straggler"})')
            assert (slow["metric"], float(slow["value"][1])) == ({"slow_rank": "1"}, 0.04)
        finally:
            server.terminate()
