"""Throughput, progress, operations and device metrics in the reports."""

from dataclasses import replace

import pytest

from autoprof.base.summary import MetricStats, Progress, Summary, Work, WorkRow
from autoprof.reports.panel import render_panel
from autoprof.reports.run_facts import run_facts
from autoprof.reports.summary_text import render_summary

TERA = 10**12
METRICS = {
    "gpu_utilization": MetricStats(0.87, 0.10, 1.0, 0.91, 120),
    "gpu_memory_bytes": MetricStats(20 * 2**30, 19 * 2**30, 21 * 2**30, 20 * 2**30, 120),
    "gpu_power_w": MetricStats(650.2, 500.0, 700.0, 655.0, 120),
    "gpu_sm_clock_mhz": MetricStats(1755.0, 1200.0, 1980.0, 1740.0, 120),
    "gpu_temperature_c": MetricStats(64.0, 64.0, 64.0, 64.0, 120),
    "gpu_throttled": MetricStats(0.03, 0.0, 1.0, 0.0, 120),
    "gpu_throttled_by_power_cap": MetricStats(0.025, 0.0, 1.0, 1.0, 120),
    "host_cpu_cores": MetricStats(3.4, 1.0, 5.2, 3.1, 100),
    "host_cpu_busy": MetricStats(0.54, 0.2, 0.9, 0.5, 100),
}
ROWS = (
    WorkRow("VRT", {"forward": 2 * TERA, "recompute": TERA, "backward": 4 * TERA}, 300 * TERA, 0.303, 0.35),
    WorkRow("VRT/Stage8", {"forward": TERA, "recompute": 0, "backward": 2 * TERA}),
)
WORK = Work(
    {"forward": 2 * TERA, "recompute": TERA, "backward": 4 * TERA}, 6 * TERA, 0.342, 0.401,
    peak="NVIDIA H100 80GB HBM3 (SXM5)", rows=ROWS,
)  # fmt: skip
PROGRESS = Progress("session.log", 1000, 900, 900 * 10**9)


@pytest.fixture
def full(summary: Summary) -> Summary:
    """Return a summary with all that can be measured."""
    return replace(summary, progress=PROGRESS, metrics=METRICS, work=WORK)


def test_the_report_has_progress_operations_and_metrics(full: Summary) -> None:
    """One paragraph each at the head, none wider than the page."""
    text = "\n".join(render_summary(full))
    assert (
        """\
throughput 2.00 samples/s
work       forward 2.00 TFLOP, recompute 1.00 TFLOP, backward 4.00 TFLOP a step;
           6.00 TFLOP/s without recompute; MFU 34.2 %, HFU 40.1 % of the peak of
           NVIDIA H100 80GB HBM3 (SXM5)
progress   900 of 1000 steps to go: 15 min 00 s
GPU        busy 87 % (10 % to 100 %), memory 20.00 GiB (19.00 GiB to 21.00 GiB),
           power 650 W (500 W to 700 W), SM clock 1755 MHz (1200 MHz to 1980
           MHz), 64 °C, throttled 3.0 % of the time, throttled by power cap 2.5
           % of the time
host       this process kept busy 3.4 cores (1.0 cores to 5.2 cores), the
           machine busy 54 % (20 % to 90 %)
"""
        in text
    )
    assert (
        """\
FLOP a step  forward  recompute  backward  per s     MFU     HFU
VRT           2.00 T     1.00 T    4.00 T  300 T  30.3 %  35.0 %
VRT/Stage8    1.00 T          -    2.00 T      -       -       -
"""
        in text
    )


def test_the_short_report_keeps_the_device_and_the_host_apart(full: Summary) -> None:
    """A device without readings has no line: processors of the host are none of its own."""
    facts = dict(run_facts(replace(full, clock="device")))
    assert facts["device"] == "GPU 91 %, 20.00 GiB, 655 W, 1740 MHz, 64 °C, throttled 3.0 % of the time"
    assert facts["host"] == "CPU 3.1 cores"
    host_alone = {"host_cpu_cores": METRICS["host_cpu_cores"]}
    facts = dict(run_facts(replace(full, clock="device", metrics=host_alone)))
    assert "device" not in facts
    assert facts["host"] == "CPU 3.1 cores"


def test_a_missing_figure_is_replaced_by_its_reason(full: Summary) -> None:
    """The reason is shown; without a peak the operations remain."""
    assert "work       not counted: no formula for x" in render_summary(
        replace(full, work=Work(reason="no formula for x"))
    )
    no_peak = replace(WORK, mfu=None, hfu=None, peak=None, no_peak="no peak is known for 'X'")
    text = " ".join(" ".join(render_summary(replace(full, work=no_peak))).split())
    assert "6.00 TFLOP/s without recompute; no MFU: no peak is known for 'X'" in text


def test_the_panel_shows_the_last_readings_and_the_time_left(full: Summary) -> None:
    """The last values, not the means; within 80 columns."""
    text = "\n".join(render_panel(full, width=80, top=5, color=False))
    assert "2.00 samples/s · 15 min 00 s left" in text
    assert "│ work: 6.00 TFLOP/s · MFU 34.2 % · HFU 40.1 %\n" in text
    assert "│ use: GPU 91 % · 20.00 GiB · 655 W · 1740 MHz · 64 °C · throttled 3.0 %" in text
