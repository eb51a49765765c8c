"""The environment of a run that rules consider."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import torch

from ..devices import available_cores

DEBUG_VARIABLES: Final[Mapping[str, tuple[str, ...]]] = {
    "CUDA_LAUNCH_BLOCKING": (),
    "TORCH_DISTRIBUTED_DEBUG": ("DETAIL",),
    "TORCH_NCCL_BLOCKING_WAIT": (),
    "TORCH_COMPILE_DEBUG": (),
    "PYTORCH_NO_CUDA_MEMORY_CACHING": (),
    "PYTHONDEVMODE": (),
    "PYTHONMALLOC": ("DEBUG", "MALLOC_DEBUG", "PYMALLOC_DEBUG"),
    "MALLOC_CHECK_": (),
}
"""Variables that slow a training down, with the values that do; none: every value but those of ``OFF``."""
OFF: Final = ("0", "OFF", "FALSE", "NO", "")


@dataclass(frozen=True, slots=True)
class Environment:
    """The type of the model's device, the ranks on this machine, its processors and debugging switches."""

    device: str = ""
    local_ranks: int | None = None
    threads: int | None = None
    """Threads of torch for one operator."""
    cores: int | None = None
    """CPU cores that this process may use."""
    machine_cores: int | None = None
    debug: tuple[str, ...] = ()
    """Debugging switches of the environment that slow a training down."""
    has_bfloat16: bool | None = None
    """Whether the CPU has instructions for bfloat16; None where torch does not know."""

    @classmethod
    def read(cls, device: str, variables: Mapping[str, str]) -> Environment:
        """Read the environment at set-up; neither the device nor other ranks are queried."""
        local = variables.get("LOCAL_WORLD_SIZE", "").strip()  # of torchrun
        return cls(
            device,
            int(local) if local.isdecimal() else None,
            torch.get_num_threads(),
            available_cores(),
            os.cpu_count(),
            tuple(_debug_switches(variables)),
            _has_bfloat16(),
        )


def _has_bfloat16() -> bool | None:
    capabilities: Mapping[str, object] = getattr(torch.cpu, "get_capabilities", dict)()  # not in every version of torch
    found = [bool(has) for name, has in capabilities.items() if "bf16" in name]  # avx512_bf16, amx_bf16, bf16, sve_bf16
    return any(found) if found else None


def _debug_switches(variables: Mapping[str, str]) -> Iterator[str]:
    for name, values in DEBUG_VARIABLES.items():
        value = variables.get(name, "").strip()
        if value and value.upper() not in OFF and (not values or value.upper() in values):
            yield f"{name}={value}"
    if sys.flags.dev_mode and not variables.get("PYTHONDEVMODE"):
        yield "python -X dev"
