"""No timed event lies on a communication stream where one hardware queue serves all streams."""

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch import nn

from autoprof.probes.collectives import UNTIMED_STREAM
from autoprof.testing import FakeClock, FakeDevice, ListSink, open_session

COMMUNICATION = 7
"""The stream on which communication is begun, as FSDP does."""
CONFIG = {"targets": [{"match": "0"}], "step": "manual", "sample": {"warmup": 0, "budget": None}, "flops": "off"}


@pytest.fixture
def group() -> Iterator[None]:
    """One process that is a group."""
    store = dist.HashStore()
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class RecordingDevice(FakeDevice):
    """Keep the stream of each event."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.recorded: list[object] = []

    def record(self, event, place) -> None:  # type: ignore[no-untyped-def]
        self.recorded.append(place[1])
        super().record(event, place)


@pytest.mark.parametrize(("connections", "streams"), [("1", {0}), ("8", {0, COMMUNICATION})])
@pytest.mark.usefixtures("group")
def test_a_collective_on_another_stream_is_not_timed(
    monkeypatch: pytest.MonkeyPatch, connections: str, streams: set[int]
) -> None:
    """With one queue an event there would keep computation waiting; the calls are counted, others are timed."""
    monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", connections)
    clock = FakeClock(tick_ns=1000)
    device, sink = RecordingDevice(clock), ListSink()
    model = nn.Sequential(nn.Linear(2, 2))
    with open_session(model, {**CONFIG, "sinks": {}}, clock=device.device_clock(), sinks=[sink]) as session:
        for _ in range(2):
            model(torch.ones(1, 2)).sum().backward()
            dist.all_reduce(torch.ones(2))
            with device.on(stream=COMMUNICATION):
                dist.all_reduce(torch.ones(2))
            session.step()
    assert set(device.recorded) == streams
    assert sink.summary is not None
    spans = [span.name for span in sink.frames[-1].spans if span.name == "Comm/all_reduce"]
    if connections == "1":
        assert sink.summary.skipped[UNTIMED_STREAM] == 2
        assert len(spans) == 1
    else:
        assert UNTIMED_STREAM not in sink.summary.skipped
        assert len(spans) == 2
