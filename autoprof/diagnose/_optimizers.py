"""Facts about optimizers: kind, implementation, size of the state, and faster or smaller versions of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..base.units import format_bytes
from ..capture.memory import bytes_of, extents
from ._bounds import MANY

TORCH: Final = "torch"


@dataclass(frozen=True, slots=True)
class OptimizerInfo:
    """Facts about one optimizer; ``fused`` and ``foreach`` are None where torch chooses the implementation.

    ``origin`` is the package of the class.
    """

    kind: str
    fused: bool | None
    foreach: bool | None
    state_bytes: int
    origin: str = "torch"
    can_fuse: bool = False
    device: str = ""
    can_foreach: bool = True
    groups: int = 1
    """Groups of parameters, over which each step loops in Python."""
    tensors: int = 0
    """Parameters in all groups; 0 where they were not counted."""
    has_sparse: bool = False
    """Whether it takes sparse gradients, of the rows that a step reads alone."""

    @property
    def is_own(self) -> bool:
        """Whether the program has its class."""
        return self.origin == "__main__"

    @property
    def has_many_groups(self) -> bool:
        """Whether the parameters are in about as many groups as there are: each group is updated on its own."""
        return self.groups >= MANY and 2 * self.groups > self.tensors

    @property
    def is_slowed(self) -> bool:
        """Whether its settings make it slower than torch's choice, which on the CPU is parameter by parameter."""
        return self.has_many_groups or (self.foreach is False and self.fused is not True and self.device != "cpu")

    @property
    def freed_bytes(self) -> int:
        """The state that an 8-bit version would free: of float32 state three quarters (arXiv:2110.02861)."""
        # torch's optimizers of which `bitsandbytes.optim` has an 8-bit version, with the suffix `8bit`.
        has_version = self.origin == TORCH and self.kind in ("Adam", "AdamW", "SGD", "Adagrad", "RMSprop")
        return 3 * self.state_bytes // 4 if has_version else 0


def describe_optimizer(optimizer: Any) -> OptimizerInfo:
    """Return the facts about a live optimizer. Only sizes are used: no value is read, nothing waits for a device."""
    groups = list(optimizer.param_groups)
    states = list(optimizer.state.values())
    parameters = [parameter for group in groups for parameter in group["params"]]
    devices = Counter[str]()
    for parameter in parameters:
        devices[parameter.device.type] += parameter.nelement()
    return OptimizerInfo(
        kind=type(optimizer).__name__,
        fused=_setting(groups, "fused"),
        foreach=_setting(groups, "foreach"),
        state_bytes=bytes_of(extents(states)),
        origin=type(optimizer).__module__.partition(".")[0],
        can_fuse="fused" in optimizer.defaults,
        device=devices.most_common(1)[0][0] if devices else "cpu",
        can_foreach="foreach" in optimizer.defaults,
        groups=len(groups),
        tensors=len(parameters),
        has_sparse=type(optimizer).__name__ == "SparseAdam"
        or any(one.grad is not None and one.grad.is_sparse for one in parameters),
    )


def _setting(groups: list[dict[str, Any]], name: str) -> bool | None:
    values = {group.get(name) for group in groups}
    return bool(values.pop()) if len(values) == 1 and None not in values else None


def advise_faster(optimizers: Sequence[OptimizerInfo]) -> str:
    """Return advice on faster implementations that exist for these optimizers."""
    fewer_steps = "a larger batch or gradient accumulation means fewer optimizer steps per sample"
    advice = dict.fromkeys(map(_advise_faster, optimizers))
    return "; ".join([*(advice or {"fused=True (AdamW, Adam, SGD) updates all parameters at once": None}), fewer_steps])


def _advise_faster(one: OptimizerInfo) -> str:
    if one.has_many_groups:
        return (
            f"{one.kind} has {one.groups} groups for {one.tensors} parameters, and updates each group on its own: put "
            "the parameters with the same settings into one group"
        )
    if one.fused:
        return "it is fused already"
    if one.is_own:
        return (
            f"{one.kind} is the program's own: torch._foreach_… operators update many parameters in one call; a "
            "decomposition, an inverse or statistics are often good for many steps: compute them in every Nth"
        )
    if one.origin != TORCH:
        return f"{one.kind} is not part of torch: check whether {one.origin} has a fused or foreach version"
    by_default = one.device == "cpu" and one.foreach is None
    if one.can_fuse:
        off = "; on the CPU torch uses neither fused nor foreach by default" if by_default else ""
        return f"fused=True updates all parameters of {one.kind} at once{off}"
    if one.foreach is False:
        return f"foreach=False updates parameter by parameter: remove it ({one.kind} has no fused version)"
    is_off = by_default and one.can_foreach
    together = "; foreach=True (off by default on the CPU) updates parameters together" if is_off else ""
    return f"{one.kind} has no fused version{together}"


def advise_smaller(optimizers: Sequence[OptimizerInfo]) -> str:
    """Return the 8-bit versions of these optimizers with the bytes that they free; empty where there are none."""
    return "; ".join(
        f"bitsandbytes.optim.{one.kind}8bit frees about {format_bytes(one.freed_bytes)} of state"
        for one in optimizers
        if one.freed_bytes
    )
