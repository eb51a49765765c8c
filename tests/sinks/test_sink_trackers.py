"""Trackers and monitors, each with its real library: the written metrics are read back by its own reader."""

from __future__ import annotations

import io
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import wandb
from prometheus_client.parser import text_string_to_metric_families
from sink_builders import Clock, frame_of, summary_of
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from waiting import LIMIT_S
from wandb.proto.wandb_internal_pb2 import Record

from autoprof.base.storage.runs import RunFolder
from autoprof.errors import OutputError
from autoprof.sinks._base import RunInfo, Sink
from autoprof.sinks.prometheus import PrometheusOptions, PrometheusSink
from autoprof.sinks.tensorboard import TensorboardOptions, TensorboardSink
from autoprof.sinks.wandb import WandbOptions, WandbSink

EACH: dict[str, Any] = {"every": 2, "interval_s": 0, "top": 3}


def run_info(tmp_path: Path, clock: Clock, rank: int = 0) -> RunInfo:
    return RunInfo(RunFolder.create(tmp_path, rank=rank), rank, io.StringIO(), clock)


def feed(sink: Sink, steps: int = 4) -> None:
    """Write steps of 1, 2, 3, … seconds with a loss, samples and a reading of memory."""
    for step in range(1, steps + 1):
        scalars = {"loss": 1 / step, "samples": 2.0, "gpu_util": 90.0 + step}
        sink.write(frame_of(step=step, step_ms=1000 * step, scalars=scalars, memory={"rss_bytes": 100 * step}))


# TensorBoard


def test_tensorboard_reads_the_scalars(tmp_path: Path, clock: Clock) -> None:
    """Its own reader finds each number at the step that the report ends with."""
    run = run_info(tmp_path, clock)
    sink = TensorboardSink(TensorboardOptions(**EACH), run)
    feed(sink)
    sink.close(summary_of([]))
    assert run.folder is not None
    events = EventAccumulator(str(run.folder.rank_path / "tensorboard")).Reload()
    assert {(event.step, event.value) for event in events.Scalars("step_ms")} == {(2, 1500.0), (4, 3500.0)}
    assert [event.value for event in events.Scalars("ms/VRT/Stage8/backward")] == [350.0, 350.0]
    assert [event.value for event in events.Scalars("scalar/gpu_util")] == [92.0, 94.0]
    assert [event.value for event in events.Scalars("memory/rss_bytes")] == [200.0, 400.0]
    assert events.Scalars("phase_ms/recompute")[0].wall_time == pytest.approx(1_763_640_000)
    assert sum(tag.startswith("ms/") for tag in events.Tags()["scalars"]) == 3


# Weights & Biases


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No network, and nothing outside the test's folder."""
    for name in ("WANDB_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "wandb-home"))
    monkeypatch.setenv("WANDB_MODE", "offline")
    yield
    if wandb.run is not None:
        wandb.run.finish()
    wandb.teardown()


def records(folder: Path) -> list[dict[str, str]]:
    """Read the rows that an offline run wrote: the log's own framing (LevelDB's), each record a protobuf."""
    wandb.teardown()  # waits for the process that writes the file
    (path,) = folder.rglob("run-*.wandb")
    data, rows, pending = path.read_bytes(), [], b""
    offset = 7
    while offset + 7 <= len(data):
        room = 32768 - offset % 32768
        if room < 7:
            offset += room
            continue
        size, kind = int.from_bytes(data[offset + 4 : offset + 6], "little"), data[offset + 6]
        if kind == 0:
            offset += room
            continue
        pending += data[offset + 7 : offset + 7 + size]
        offset += 7 + size
        if kind in (1, 4):
            record = Record.FromString(pending)
            pending = b""
            if record.HasField("history"):
                rows.append({item.key or "/".join(item.nested_key): item.value_json for item in record.history.item})
    return rows


@pytest.mark.usefixtures("offline")
def test_wandb_gets_a_run_of_its_own(tmp_path: Path, clock: Clock) -> None:
    """Without a run of the program's own one is made in the run's folder, and ended."""
    run = run_info(tmp_path, clock)
    sink = WandbSink(WandbOptions(project="p", mode="offline", **EACH), run)
    assert wandb.run is not None
    assert run.folder is not None
    assert wandb.run.name == run.folder.path.name
    feed(sink)
    sink.close(summary_of([]))
    assert wandb.run is None
    rows = [row for row in records(run.folder.rank_path) if "autoprof/step" in row]
    assert [row["autoprof/step"] for row in rows] == ["2", "4"]
    assert [float(row["autoprof/step_ms"]) for row in rows] == [1500, 3500]
    assert [float(row["autoprof/scalar/loss"]) for row in rows] == [0.5, 0.25]


@pytest.mark.usefixtures("offline")
def test_the_steps_of_a_program_s_own_wandb_run_stay_its_own(tmp_path: Path, clock: Clock) -> None:
    """The numbers join the rows that the program commits; no step of its is used up, and its run goes on."""
    own = wandb.init(project="p", dir=str(tmp_path), settings=wandb.Settings(console="off", silent=True))
    sink = WandbSink(WandbOptions(**EACH), run_info(tmp_path / "run", clock))
    feed(sink)
    sink.close(summary_of([]))
    own.log({"mine": 1}, step=0)
    own.log({"mine": 2}, step=1)
    assert wandb.run is own
    own.finish()
    rows = [row for row in records(tmp_path) if "mine" in row]
    assert [row["mine"] for row in rows] == ["1", "2"]
    assert rows[0]["autoprof/step"] == "4"


# Prometheus


def scrape(port: int) -> dict[tuple[str, ...], float]:
    """Ask the endpoint over HTTP and read the answer with Prometheus's own parser."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=LIMIT_S) as answer:
        text = answer.read().decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {
        (sample.name, *(v for k, v in sorted(sample.labels.items()) if k != "rank")): sample.value for sample in samples
    }


def test_prometheus_scrapes_the_last_report(tmp_path: Path, clock: Clock) -> None:
    """Seconds and bytes, by phase and by name; before the first report there is nothing."""
    sink = PrometheusSink(PrometheusOptions(port=0, **EACH), run_info(tmp_path, clock))
    assert scrape(sink.port) == {}
    feed(sink)
    found = scrape(sink.port)
    assert found["autoprof_step_seconds",] == 3.5
    assert found["autoprof_recorded_steps_total",] == 4
    assert found["autoprof_phase_seconds", "recompute"] == pytest.approx(0.1)
    assert found["autoprof_span_seconds", "VRT/Stage8", "backward"] == pytest.approx(0.35)
    assert found["autoprof_memory_bytes", "rss"] == 400
    assert found["autoprof_scalar", "gpu_util"] == 94
    assert found["autoprof_throughput_samples_per_second",] == pytest.approx(4 / 7)
    sink.close(summary_of([]))


def test_the_endpoint_is_on_the_loopback_and_gone_at_the_end(tmp_path: Path, clock: Clock) -> None:
    """``run.json`` names it, and ``close`` frees the port."""
    run = run_info(tmp_path, clock)
    sink = PrometheusSink(PrometheusOptions(port=0), run)
    assert run.folder is not None
    assert run.folder.info["prometheus"] == f"http://127.0.0.1:{sink.port}/metrics"
    sink.close(summary_of([]))
    assert sink._server.fileno() == -1  # another process may have the port by now


def test_a_port_that_is_taken_is_an_error_at_set_up(tmp_path: Path, clock: Clock) -> None:
    """The message names the address and the way out."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(OutputError, match=rf"sinks\.prometheus: cannot listen on 127\.0\.0\.1:{port} \(.*in use\)"):
            PrometheusSink(PrometheusOptions(port=port), run_info(tmp_path, clock))
