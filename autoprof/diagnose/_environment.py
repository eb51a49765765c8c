"""The environment of a run that rules consider: the model's device, the process group, NCCL's settings."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import torch
import torch.distributed as dist

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
LOCAL_WORLD_SIZE: Final = "LOCAL_WORLD_SIZE"
"""The variable in which torchrun passes the number of ranks on this machine."""


@dataclass(frozen=True, slots=True)
class Environment:
    """The type of the model's device, the process group's backends, NCCL's settings, the ranks on this machine."""

    device: str = ""
    backend: str | None = None
    nccl: Mapping[str, str] = field(default_factory=dict)
    local_ranks: int | None = None
    threads: int | None = None
    """Threads of torch for one operator."""
    cores: int | None = None
    """CPU cores that this process may use."""
    machine_cores: int | None = None
    debug: tuple[str, ...] = ()
    """Debugging switches of the environment that slow a training down."""

    @classmethod
    def read(cls, device: str, variables: Mapping[str, str]) -> Environment:
        """Read the environment at set-up; neither the device nor other ranks are queried."""
        backend = dist.get_backend_config() if dist.is_available() and dist.is_initialized() else None
        nccl = {
            name: variables[name].strip()
            for name in ("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL")
            if variables.get(name, "").strip()
        }
        local = variables.get(LOCAL_WORLD_SIZE, "").strip()
        return cls(
            device,
            backend,
            nccl,
            int(local) if local.isdecimal() else None,
            torch.get_num_threads(),
            available_cores(),
            os.cpu_count(),
            tuple(_debug_switches(variables)),
        )

    @property
    def disabled_p2p(self) -> str | None:
        """The setting that forbids direct transfers between the GPUs of this machine; None where they are allowed.

        Source: NCCL's documentation of its environment variables. Level ``LOC``, formerly 0, means never.
        """
        if "nccl" not in (self.backend or "") or self.local_ranks == 1:
            return None
        off = self.nccl.get("NCCL_P2P_DISABLE", "0")
        if off.lstrip("+").isdecimal() and int(off):
            return f"NCCL_P2P_DISABLE={off}"
        level = self.nccl.get("NCCL_P2P_LEVEL", "")
        return f"NCCL_P2P_LEVEL={level}" if level.upper() in ("LOC", "0") else None


def _debug_switches(variables: Mapping[str, str]) -> Iterator[str]:
    for name, values in DEBUG_VARIABLES.items():
        value = variables.get(name, "").strip()
        if value and value.upper() not in OFF and (not values or value.upper() in values):
            yield f"{name}={value}"
    if sys.flags.dev_mode and not variables.get("PYTHONDEVMODE"):
        yield "python -X dev"
