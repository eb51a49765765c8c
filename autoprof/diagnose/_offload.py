"""Advice on optimizers that update on the CPU while the model is on a device."""

from __future__ import annotations

from .._units import format_bytes
from ._evidence import Evidence


def advise_offload(run: Evidence) -> str:
    """Return the cost of an offloaded optimizer, and whether the device has room for it; empty without one."""
    device = run.facts.environment.device
    offloaded = [one for one in run.facts.optimizers or () if one.is_offloaded(device)]
    if not offloaded:
        return ""
    parameters = sum(one.parameter_bytes for one in offloaded)
    needed = parameters + sum(one.state_bytes for one in offloaded)
    return (
        f"the optimizer's {format_bytes(needed)} are on the CPU and the model is on a device: in every optimizer step "
        f"gradients go to the CPU and parameters come back over PCIe ({format_bytes(parameters)} as the optimizer "
        f"holds them). Without offload the device updates them itself; {_describe_room(run, needed)}. Otherwise "
        "offload less (DeepSpeed's ratio), with pin_memory: true; "
    )


def _describe_room(run: Evidence, needed: int) -> str:
    peak, capacity = run.summary.memory.get("peak_bytes"), run.facts.memory_capacity_bytes
    if not peak or not capacity:
        return "the device's free memory is unknown"
    free = capacity - peak
    if free >= needed:
        return f"there is room for it beside the peak ({format_bytes(free)} of {format_bytes(capacity)} free)"
    return f"it does not fit beside the peak ({format_bytes(max(free, 0))} free)"
