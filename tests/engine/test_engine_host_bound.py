"""Where the device waited for the host: found from the queue's lead along the step, without a synchronisation."""

import json
from pathlib import Path

import numpy as np
import torch
from engine_laws import Watched, check_laws, everything
from fake_engine import Op
from torch import nn

from autoprof import StepFrame, read_run
from autoprof.reports.panel import render_panel
from autoprof.reports.summary_text import render_summary
from autoprof.resolve.launch_lag import DRIFT_PPM, LaunchLag
from autoprof.testing import FakeClock, FakeDevice

FORWARD = everything(targets=[{"match": ".+", "phases": ["forward"]}])
US = 1_000


def run(device: FakeDevice, model: nn.Module) -> Watched:
    """Run a step of the model's forward and close the session."""
    with Watched(model, clock=device.device_clock(), config=FORWARD) as watched:
        model(torch.ones(1))
        watched.step()
    for frame in watched.frames:
        check_laws(frame)
    return watched


def bound(frame: StepFrame) -> dict[str, tuple[int | None, int | None, bool | None]]:
    """Return by name: the device's time, the host-bound part of it, and whether the span is marked."""
    return {span.name: (span.device_ns, span.host_bound_ns, span.host_bound) for span in frame.spans}


def test_a_parent_is_marked_when_more_than_half_of_it_is_host_bound() -> None:
    """What its children spent at the end of an empty queue is the parent's, too; what they did not is not."""
    device = FakeDevice(FakeClock())

    def busy() -> nn.Module:
        return Op(device, 400 * US, host_ns=US)

    def dry() -> nn.Module:
        return Op(device, 2 * US, host_ns=900 * US)

    model = nn.Sequential(nn.Sequential(busy(), dry()), nn.Sequential(busy(), busy(), dry()))
    (frame,) = run(device, model).frames
    assert bound(frame) == {
        "0": (903 * US, 502 * US, True),
        "0/0": (401 * US, 0, False),
        "0/1": (502 * US, 502 * US, True),
        "1": (902 * US, 102 * US, False),
        "1/0": (400 * US, 0, False),
        "1/1": (400 * US, 0, False),
        "1/2": (102 * US, 102 * US, True),
    }


def test_a_hosts_clock_says_nothing_of_it() -> None:
    """Where there is no device nothing is host-bound, and nothing is not."""
    model = nn.Sequential(nn.Linear(1, 1))
    with Watched(model, clock=FakeClock(tick_ns=1)) as watched:
        model(torch.ones(1))
        watched.step()
    assert [span.host_bound for span in watched.frames[0].spans] == [None, None]
    assert {row.host_bound for row in watched.session.summary().rows} == {None}


def test_a_row_has_the_share_of_its_time_that_was_host_bound() -> None:
    """Over all its calls, exactly: 305 of 705 µs in each of a hundred steps."""
    device = FakeDevice(FakeClock())
    layer = Op(device, 5 * US)
    with Watched(nn.ModuleList([layer]), clock=device.device_clock(), config=FORWARD) as watched:
        for _ in range(100):
            layer.forward_ns, layer.host_ns = 5 * US, 300 * US
            layer(torch.ones(1))
            layer.forward_ns, layer.host_ns = 400 * US, 0
            layer(torch.ones(1))
            device.wait_here()
            watched.step()
    (row,) = watched.session.summary().rows
    assert row.total_ns == 100 * 705 * US
    assert row.host_bound == 305 / 705


def test_what_is_host_bound_is_written_read_back_and_shown(tmp_path: Path) -> None:
    """In steps.jsonl, summary.json, summary.txt, the log and the panel."""
    device = FakeDevice(FakeClock())
    model = nn.Sequential(Op(device, 2 * US, host_ns=300 * US), Op(device, 900 * US, host_ns=US))
    config = FORWARD | {"output": str(tmp_path), "sinks": {"jsonl": {}}}
    with Watched(model, clock=device.device_clock(), config=config) as watched:
        for _ in range(2):
            model(torch.ones(1))
            device.wait_here()
            watched.step()
    (folder,) = tmp_path.iterdir()
    written = read_run(folder)
    for frame, again in zip(watched.frames, written.frames, strict=True):
        assert np.array_equal(frame.host_bound_ns, again.host_bound_ns)
    summary = watched.session.summary()
    assert written.summary == summary
    assert {row["name"]: row["host_bound"] for row in json.loads((folder / "summary.json").read_text())["rows"]} == {
        "0": 1.0,
        "1": 0.0,
    }
    text = render_summary(summary)
    assert any(line.split()[:2] == ["0", "*"] for line in text)
    assert not any(line.split()[:2] == ["1", "*"] for line in text)
    assert any(line.startswith("* host-bound") for line in text)
    panel = render_panel(summary, width=100, top=5, color=False)
    assert any("0 *" in line for line in panel)
    assert not any("1 *" in line for line in panel)
    assert any("* host-bound" in line for line in panel)


def lag_of(lag: LaunchLag, begun_ns: int, host: list[int], ns: list[int]) -> list[int]:
    """Return the lag at each mark of a step whose last mark is its end."""
    return lag.of(begun_ns, np.array(host), np.array(ns), np.zeros(len(host), np.int64), len(host) - 1).tolist()


def test_a_step_inherits_the_zero_of_the_one_before() -> None:
    """Its queue never ran dry: the lag is that of the end of the step before, and what was added since."""
    lag = LaunchLag()
    assert lag_of(lag, 0, [0, 1000], [0, 1400]) == [0, 400]
    assert lag_of(lag, 1000, [0, 1000], [0, 1300]) == [400, 700]
    assert lag_of(lag, 2000, [0, 1000], [0, 900]) == [700, 600]
    assert lag_of(lag, 3000, [0, 1000], [0, 300]) == [700, 0]
    assert lag_of(lag, 4000, [0, 1000], [0, 1000]) == [0, 0]


def test_the_inherited_zero_rises_as_fast_as_clocks_may_drift() -> None:
    """With the length of each step that has passed."""
    lag, second = LaunchLag(), 1_000_000_000
    lag_of(lag, 0, [0, second], [0, second + 900_000])
    assert lag_of(lag, second, [0, 0], [0, 0]) == [900_000 - second * DRIFT_PPM // 1_000_000] * 2
