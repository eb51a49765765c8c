"""When a report is due, the thread for slow receivers, and what happens without the package."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest
from sink_builders import Clock, frame_of, summary_of

from autoprof._storage.runs import RunFolder
from autoprof.errors import MissingExtra, OutputError
from autoprof.sinks import RunInfo, Sinks, make_sinks
from autoprof.sinks._metrics_sink import QUEUE_SIZE, BackgroundSender, MetricsOptions, MetricsSink, StepSums
from autoprof.sinks.mlflow import MlflowOptions
from autoprof.sinks.opentelemetry import OpentelemetryOptions
from autoprof.sinks.prometheus import PrometheusOptions
from autoprof.sinks.tensorboard import TensorboardOptions
from autoprof.sinks.wandb import WandbOptions


class Recorded(MetricsSink):
    """A sink that keeps its reports."""

    def __init__(self, options: MetricsOptions, clock: Clock) -> None:
        self.reports: list[StepSums] = []
        self.ended = False
        super().__init__(options, clock)

    def report(self, metrics: StepSums) -> None:
        self.reports.append(metrics)

    def end(self) -> None:
        self.ended = True


def some_metrics() -> StepSums:
    sink = Recorded(MetricsOptions(every=1, interval_s=0), Clock())
    sink.write(frame_of())
    return sink.reports[0]


def test_a_report_needs_steps_and_time(clock: Clock) -> None:
    """Both have to have passed: not every step is reported, however long or short steps are."""
    sink = Recorded(MetricsOptions(every=3, interval_s=10), clock)
    for step in range(1, 13):
        clock.now = 4.0 * step
        sink.write(frame_of(step=step))
    assert [(report.step, report.steps) for report in sink.reports] == [(3, 3), (6, 3), (9, 3), (12, 3)]
    fast = Recorded(MetricsOptions(every=3, interval_s=10), clock)
    for step in range(1, 31):
        clock.now += 0.5
        fast.write(frame_of(step=step))
    assert [report.steps for report in fast.reports] == [20]


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
        def report(self, metrics: StepSums) -> None:
            raise OSError("gone")

    sink = Failing(MetricsOptions(), clock)
    sink.write(frame_of())
    with pytest.raises(OSError, match="gone"):
        sink.close(summary_of([]))
    assert sink.ended


def test_a_slow_receiver_does_not_delay_a_step() -> None:
    """``send`` returns while the receiver is busy; reports beyond the queue are counted, and the end names them."""
    going, seen = threading.Event(), []

    def deliver(metrics: StepSums) -> None:
        going.wait(60)
        seen.append(metrics)

    sender, metrics = BackgroundSender("slow", deliver), some_metrics()
    for _ in range(QUEUE_SIZE + 10):
        sender.send(metrics)
    assert seen == []
    assert sender.lost >= 9  # one may be with the receiver
    going.set()
    with pytest.raises(OutputError, match=r"sinks\.slow: \d+ reports were dropped"):
        sender.close()
    assert len(seen) == QUEUE_SIZE + 10 - sender.lost


def test_an_exception_of_the_receiver_reaches_the_next_caller() -> None:
    """A failure on the thread reaches the caller, once, so that the sink is switched off."""
    failed = threading.Event()

    def deliver(metrics: StepSums) -> None:
        failed.set()
        raise ValueError("no such project")

    sender, metrics = BackgroundSender("bad", deliver), some_metrics()
    sender.send(metrics)
    assert failed.wait(60)
    with pytest.raises(ValueError, match="no such project"):
        sender.close()


OPTIONAL = {
    "tensorboard": (TensorboardOptions(), "tensorboard.summary.writer.event_file_writer"),
    "wandb": (WandbOptions(mode="offline"), "wandb"),
    "mlflow": (MlflowOptions(), "mlflow"),
    "prometheus": (PrometheusOptions(port=0), "prometheus_client"),
    "opentelemetry": (OpentelemetryOptions(), "opentelemetry.metrics"),
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
