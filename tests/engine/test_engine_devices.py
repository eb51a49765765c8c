"""A model on a device that is not current, or on several: each module is timed where its kernels go, to the ns."""

import torch
from engine_laws import Watched, check_laws, everything
from fake_engine import Activation, Weighted, backward_by_devices, launch, transfer
from torch import Tensor, nn

from autoprof import Phase, StepFrame
from autoprof.base.frame import STREAM_LANES, TRAINING_LANE
from autoprof.capture.hooks.module import ModuleProbe
from autoprof.capture.hooks.module_hooks import make_hooks
from autoprof.capture.marks.codes import MEMORY
from autoprof.capture.recorder import Recorder
from autoprof.devices import Memory
from autoprof.targets import Target
from autoprof.testing import FakeClock, FakeDevice

EVERY = everything(targets=[{"match": ".+"}])


def device_ns(frame: StepFrame, phase: Phase = Phase.FORWARD) -> dict[str, int | None]:
    """Return the device times of a phase's spans by name; what lies in no module is left out."""
    found: dict[str, int | None] = {}
    for span in frame.spans:
        if span.phase is phase and span.name != "(backward)" and span.calls:
            assert span.name not in found
            found[span.name] = span.device_ns
    return found


def lanes(frame: StepFrame, phase: Phase = Phase.FORWARD) -> dict[str, int]:
    """Return the lanes of a phase's spans by name."""
    return {span.name: span.lane for span in frame.spans if span.phase is phase and span.calls}


def train(watched: Watched, device: FakeDevice, model: nn.Module, at: int) -> None:
    """Run a step whose input lies on a device."""
    value = model(launch(device, torch.ones(1, requires_grad=True), 0, 0, at))
    backward_by_devices(value, device)
    watched.step()


def run(device: FakeDevice, model: nn.Module, at: int, steps: int = 3) -> Watched:
    """Train for some steps, and close the session: every span has a time, and every step closes."""
    with Watched(model, clock=device.device_clock(), config=EVERY) as watched:
        for _ in range(steps):
            train(watched, device, model, at)
    for frame in watched.frames:
        check_laws(frame)
    assert len(watched.frames) == steps
    assert not watched.session.summary().skipped
    return watched


def test_a_model_on_a_device_that_is_not_current_is_the_steps_account() -> None:
    """``model.to("cuda:1")`` without ``set_device``: spans, step and backward are those of device 1."""
    device = FakeDevice(FakeClock(), lag_ns=70)
    model = nn.Sequential(Weighted(device, 40, 400, at=1), Weighted(device, 2, 20, at=1))
    for frame in run(device, model, at=1).frames:
        assert device_ns(frame) == {"0": 40, "1": 2}
        assert device_ns(frame, Phase.BACKWARD) == {"0": 400, "1": 20}
        assert {span.lane for span in frame.spans} == {TRAINING_LANE}
        assert frame.device_duration_ns == 462
        assert frame.phase_ns() == {Phase.FORWARD: 42, Phase.BACKWARD: 420, Phase.OTHER: 0}
    assert device.place == (0, 0)


class Split(nn.Module):
    """A user's model on two devices, who moves the activations himself."""

    def __init__(self, device: FakeDevice) -> None:
        super().__init__()
        self.device = device
        self.near, self.far = Weighted(device, 10, 100), Weighted(device, 30, 300, at=1)
        self.act = Activation(device, 4, 40)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.far(transfer(self.device, self.near(x), 1)))
        return transfer(self.device, x, 0)


def test_an_activation_is_read_where_its_input_lies() -> None:
    """It has no parameter that would say so, and the module around it is on both devices."""
    device = FakeDevice(FakeClock(), lag_ns=70)
    for frame in run(device, nn.Sequential(Split(device)), at=0).frames:
        assert {name: device_ns(frame)[name] for name in ("0/near", "0/far", "0/act")} == {
            "0/near": 10, "0/far": 30, "0/act": 4,
        }  # fmt: skip
        back = device_ns(frame, Phase.BACKWARD)
        assert (back["0/near"], back["0/far"], back["0/act"]) == (100, 300, 40)
        assert lanes(frame)["0/act"] == STREAM_LANES
        assert lanes(frame)["0"] == TRAINING_LANE
        assert device_ns(frame)["0"] == 10 + 34  # until the result is back


class Level(Memory):
    """A source of bytes that says which device it reads."""

    def __init__(self, device: int) -> None:
        self.device = device

    def on(self, device: int) -> Memory:
        return Level(device)

    def level_bytes(self) -> int:
        return 1_000 + self.device

    def readings(self) -> dict[str, int]:
        return {"level_bytes": self.level_bytes()}

    def close(self) -> None:
        pass


def test_a_modules_memory_is_that_of_its_device() -> None:
    """``memory: true`` reads the allocator of the device that the module lies on."""
    recorder = Recorder(FakeClock())
    module, hooks = nn.Identity(), make_hooks(recorder)
    probe = ModuleProbe(recorder, hooks, Target(module, "m", "m", frozenset((Phase.FORWARD,)), True, 0), Level(0))
    probe.place(hooks, 1, 0)
    probe.attach()
    module(torch.ones(1))
    probe.detach()
    taken = recorder.take()
    read = [int(reading) for code, reading in zip(taken.codes, taken.readings, strict=True) if code == MEMORY]
    assert read == [1_001, 1_001]
