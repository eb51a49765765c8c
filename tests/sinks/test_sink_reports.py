"""When a report is due, the thread for slow receivers, and what happens without the package."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest
from sink_builders import Clock, frame_of, summary_of
from waiting import LIMIT_S

from autoprof.base.frame import StepFrame
from autoprof.base.storage.runs import RunFolder
from autoprof.errors import MissingExtra, OutputError
from autoprof.sinks import RunInfo, Sinks, make_sinks
from autoprof.sinks._metrics_sink import QUEUE_SIZE, MetricsOptions, MetricsReport, MetricsSink, SlowSink
from autoprof.sinks.otlp import OtlpOptions
from autoprof.sinks.prometheus import PrometheusOptions
from autoprof.sinks.tensorboard import TensorboardOptions
from autoprof.sinks.wandb import WandbOptions


class Recorded(MetricsSink):
    """A sink that keeps its reports."""

    def __init__(self, options: MetricsOptions, clock: Clock) -> None:
        self.reports: list[MetricsReport] = []
        self.ended = False
        super().__init__(options, clock)

    def report(self, report: MetricsReport) -> None:
        self.reports.append(report)

    def end(self) -> None:
        self.ended = True


def reports_of(frames: list[StepFrame], every: int) -> list[MetricsReport]:
    """Return the reports of steps that are written to a sink."""
    sink = Recorded(MetricsOptions(every=every, interval_s=0), Clock())
    for frame in frames:
        sink.write(frame)
    sink.close(summary_of([]))
    return sink.reports


def test_a_report_needs_steps_and_time(clock: Clock) -> None:
    """Both have to have passed: not every step is reported, however long or short steps are."""
    sink = Recorded(MetricsOptions(every=3, interval_s=10), clock)
    for step in range(1, 13):
        clock.now = 4.0 * step
        sink.write(frame_of(step=step))
    assert [(report.step, report.statistics.steps) for report in sink.reports] == [(3, 3), (6, 3), (9, 3), (12, 3)]
    fast = Recorded(MetricsOptions(every=3, interval_s=10), clock)
    for step in range(1, 31):
        clock.now += 0.5
        fast.write(frame_of(step=step))
    assert [report.statistics.steps for report in fast.reports] == [20]


def test_the_last_steps_are_reported_at_the_end(clock: Clock) -> None:
    """``close`` reports the last steps and releases the receiver."""
    sink = Recorded(MetricsOptions(every=100), clock)
    sink.write(frame_of(step=7))
    sink.close(summary_of([]))
    assert [report.step for report in sink.reports] == [7]
    assert sink.ended


def test_a_report_that_fails_at_the_end_still_lets_the_receiver_go(clock: Clock) -> None:
    """The connection is closed whatever happened to the last report."""

    class Failing(Recorded):
        def report(self, report: MetricsReport) -> None:
            raise OSError("gone")

    sink = Failing(MetricsOptions(), clock)
    sink.write(frame_of())
    with pytest.raises(OSError, match="gone"):
        sink.close(summary_of([]))
    assert sink.ended


class Slow(SlowSink):
    """A sink whose receiver waits, and then fails or takes the report."""

    def __init__(self, error: Exception | None = None) -> None:
        self.going, self.seen, self.ended = threading.Event(), 0, False
        self.error = error
        super().__init__("slow", MetricsOptions(every=1, interval_s=0), Clock())

    def send(self, report: MetricsReport) -> None:
        self.going.wait(LIMIT_S)
        self.seen += 1
        if self.error is not None:
            raise self.error

    def finish(self) -> None:
        self.ended = True


def test_a_slow_receiver_does_not_delay_a_step() -> None:
    """``write`` returns while the receiver is busy; reports beyond the queue are counted, and the end names them."""
    sink = Slow()
    for step in range(QUEUE_SIZE + 10):
        sink.write(frame_of(step=step + 1))
    assert sink.seen == 0
    assert sink.lost >= 9  # one may be with the receiver
    sink.going.set()
    with pytest.raises(OutputError, match=r"sinks\.slow: \d+ reports were dropped"):
        sink.close(summary_of([]))
    assert sink.seen == QUEUE_SIZE + 10 - sink.lost
    assert sink.ended


def test_an_exception_of_the_receiver_reaches_the_training_thread() -> None:
    """The sink is then switched off, and its receiver is released."""
    sink = Slow(ValueError("no such project"))
    sink.write(frame_of())
    sink.going.set()
    with pytest.raises(ValueError, match="no such project"):
        sink.close(summary_of([]))
    assert sink.ended


def test_the_names_state_what_the_numbers_are() -> None:
    """Times are milliseconds a step, throughput is of these steps, scalars are passed through as they are."""
    frames = [
        frame_of(step=1, scalars={"samples": 4.0, "loss": 1.0, "gpu_util": 93.0}, memory={"rss_bytes": 5}),
        frame_of(step=2, step_ms=3000, scalars={"loss": 0.5}),
    ]
    (report,) = reports_of(frames, 2)
    named = report.named(2)
    assert named.pop("autoprof/overhead") == pytest.approx(6 / 4000)
    assert named == {
        "autoprof/step_ms": 2000.0,
        **{f"autoprof/phase_ms/{phase}": pytest.approx(ms) for phase, ms in {
            "forward": 280, "backward": 440, "recompute": 100, "user": 20, "optimizer": 60, "data": 40, "other": 1060,
        }.items()},
        "autoprof/ms/VRT/backward": 540.0,
        "autoprof/ms/VRT/Stage8/backward": 350.0,
        "autoprof/throughput": 4.0,
        "autoprof/memory/rss_bytes": 5.0,
        "autoprof/scalar/samples": 4.0, "autoprof/scalar/loss": 0.5, "autoprof/scalar/gpu_util": 93.0,
    }  # fmt: skip


def test_each_report_is_of_the_steps_since_the_last_one() -> None:
    """Its count is of the run."""
    frames = [frame_of(step=1, step_ms=1000, scalars={"loss": 1.0}), frame_of(step=2, step_ms=2000)]
    second = reports_of(frames, 1)[1]
    assert (second.step_s, second.recorded, second.statistics.scalars) == (2.0, 2, {})


OPTIONAL = {
    "tensorboard": (TensorboardOptions(), "tensorboard.summary.writer.event_file_writer"),
    "wandb": (WandbOptions(mode="offline"), "wandb"),
    "prometheus": (PrometheusOptions(port=0), "prometheus_client"),
    "otlp": (OtlpOptions(), "opentelemetry.sdk.metrics.export"),
}


@pytest.mark.parametrize("key", OPTIONAL)
def test_a_package_that_is_missing_is_named_with_its_cure(
    key: str, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its package a sink is an error at set-up with the command to install it; open sinks are closed."""
    options, module = OPTIONAL[key]
    monkeypatch.setitem(sys.modules, module, None)
    run = RunInfo(RunFolder.create(tmp_path), 0, sys.stdout, clock)
    with pytest.raises(MissingExtra) as raised:
        make_sinks(Sinks(**{key: options}), run)
    message = str(raised.value)
    assert message.startswith(f"sinks.{key}: needs the package {module.partition('.')[0]}, which cannot be imported")
    assert f"pip install 'torch-autoprof[{key}]'" in message


@pytest.mark.parametrize("key", OPTIONAL)
def test_each_optional_package_is_an_extra(key: str) -> None:
    """The name in the message is one that pip knows."""
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8")
    extras = project.partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    assert f"\n{key} = [" in extras
