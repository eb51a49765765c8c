"""Rule ``sync-call``: calls wait for the device, and then the device waits for the host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..._units import format_ms, format_percent
from ...summary import Finding, Summary
from .._evidence import Evidence
from .._experiment import less_often
from .._rule import Defect, Rule
from .._thresholding import ExceededBound, abstain, threshold_time

if TYPE_CHECKING:
    from torch import Tensor

MAX_SHARE: Final = 0.05
"""The wait itself costs nothing, because the device works meanwhile. The cost is the idle gap that follows."""


def judge(run: Evidence) -> Finding | None:
    """Judge the time that the device is idle after calls that wait for it."""
    waits = run.facts.waits
    if run.summary.clock != "device" or waits is None:
        return abstain("sync-call", "a device's clock", "nothing to do when the model trains on the CPU")
    if not waits.sites:
        return None
    found = threshold_time("sync-call", run, waits.interval, waits.mean_cost_ns, MAX_SHARE)
    if not isinstance(found, ExceededBound):
        return found
    return found.finding(
        f"the host waits for the device for {format_ms(waits.mean_ns)} of each step to read values: "
        f"{waits.describe_sites()}. After each wait the device is idle until the next launch, at most "
        f"{format_ms(found.mean_ns)} a step ({format_percent(found.mean_share)})",
        "keep values on the device (loss.detach(), running sums) and read them only every few steps; use torch.where "
        "instead of if; print and log the values that were read then",
        name=waits.dominant_location,
        evidence={"wait_ns": waits.mean_ns, "sites": waits.sites_evidence()},
    )


def train_with_reads(broken: bool) -> Summary:
    """Read a value after each layer to branch on it; the healthy twin reads one value at the end of the step."""
    import torch
    from torch import nn

    from ...demo.defects import MS, four_layers, train
    from ...testing import FakeClock, FakeDevice

    clock = FakeClock()
    device = FakeDevice(clock)

    class ReadAfter(nn.Module):
        """A layer after which the host reads a value from the device."""

        def __init__(self, layer: nn.Module) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Tensor) -> Tensor:
            x = self.layer(x)
            peak = device.value(x.abs().max())
            if peak > 1e6:
                x = x / 1e6
            return x

    def read(_number: int) -> None:
        if not broken:
            device.value(torch.ones(())).item()

    layers = four_layers(clock, device=device, forward_ms=10, launch_ns=8 * MS)
    model = nn.Sequential(*(ReadAfter(layer) if broken else layer for layer in layers))
    return train(model, clock, device=device, each_ms=0.01, wait_ms=0.1, in_step=read)


RULE = Rule(
    "sync-call",
    judge,
    order=120,
    defects=(Defect("a value read after each layer", train_with_reads, "fake device"),),
    needs_device=True,
    experiment=less_often,
)
