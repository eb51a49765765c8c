"""Rule ``h2d-copy``: the step waits for copies of its batch to the device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ...frame import Phase
from ...summary import Finding, Summary
from .._evidence import Evidence
from .._experiment import Experiment
from .._offload import advise_offload
from .._rule import Defect, Rule
from .._thresholding import ExceededBound, abstain, describe_longest, dominant_name, threshold_rows

if TYPE_CHECKING:
    from torch import Tensor

MAX_SHARE: Final = 0.05
"""A copy from pinned memory runs beside the computation (PyTorch's tuning guide), so hardly any of it is exposed."""


def judge(run: Evidence) -> Finding | None:
    """Judge the copies that the step waits for."""
    rows = run.rows.get(Phase.H2D)
    if rows is None:
        return abstain("h2d-copy", "h2d spans", "nothing to do when the model trains on the CPU")
    found = threshold_rows("h2d-copy", run, rows, MAX_SHARE)
    if not isinstance(found, ExceededBound):
        return found
    return found.finding(
        f"copies to the device take {found}{describe_longest(run, rows)}",
        f"{advise_offload(run)}use pin_memory=True in the loader and .to(device, non_blocking=True), and copy the next "
        "batch while this one trains; send fewer bytes (uint8 images, normalised on the device)",
        name=dominant_name(rows),
    )


def train_with_pageable_copies(broken: bool) -> Summary:
    """Copy large batches from pageable memory; the healthy twin copies small ones from pinned memory."""
    import torch

    from ...demo.defects import MS, four_layers, train
    from ...testing import FakeClock, FakeDevice

    clock = FakeClock()
    device = FakeDevice(clock)
    copy_ns = 120 * MS if broken else 2 * MS

    class HostBatch(torch.Tensor):
        """A batch in host memory; the host waits for its copy to the fake device if the memory is pageable."""

        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if getattr(func, "__name__", "") != "to":
                return super().__torch_function__(func, types, args, kwargs)  # type: ignore[no-untyped-call]
            device.work(copy_ns)
            if broken:
                device.wait_here()
            with torch._C.DisableTorchFunctionSubclass():
                return args[0].as_subclass(torch.Tensor)  # the fake device's values are in host memory

    def copy(values: Tensor) -> Tensor:
        return values.as_subclass(HostBatch).to("meta", non_blocking=not broken)

    return train(four_layers(clock, device=device), clock, device=device, each_ms=0.01, wait_ms=0.1, take=copy)


RULE = Rule(
    "h2d-copy",
    judge,
    order=20,
    defects=(Defect("batches copied synchronously", train_with_pageable_copies, "fake device"),),
    needs_device=True,
    experiment=Experiment("loader.pin_memory", value=True),
)
