"""What a process was started with, read once at set-up: how NCCL may talk, where the model lies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import torch.distributed as dist

NCCL: Final = ("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL")
LOCAL: Final = "LOCAL_WORLD_SIZE"
"""torchrun's number of ranks on this machine."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The type of the model's device, the backends of the process group by device, NCCL's settings, the ranks here."""

    device: str = ""
    backend: str | None = None
    nccl: Mapping[str, str] = field(default_factory=dict)
    local_ranks: int | None = None

    @classmethod
    def read(cls, device: str, environment: Mapping[str, str]) -> Surroundings:
        """Read them; nothing of the device or of other ranks is asked."""
        backend = dist.get_backend_config() if dist.is_available() and dist.is_initialized() else None
        nccl = {name: environment[name].strip() for name in NCCL if environment.get(name, "").strip()}
        local = environment.get(LOCAL, "").strip()
        return cls(device, backend, nccl, int(local) if local.isdecimal() else None)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Surroundings:
        """Read back what ``dataclasses.asdict`` made."""
        return cls(**data)

    @property
    def without_p2p(self) -> str | None:
        """The setting that keeps the GPUs of this machine from talking to each other directly; None where none does.

        Source: NCCL's documentation of its environment variables. Level ``LOC``, formerly 0, is never.
        """
        if "nccl" not in (self.backend or "") or self.local_ranks == 1:
            return None
        off = self.nccl.get("NCCL_P2P_DISABLE", "0")
        if off.lstrip("+").isdecimal() and int(off):
            return f"NCCL_P2P_DISABLE={off}"
        level = self.nccl.get("NCCL_P2P_LEVEL", "")
        return f"NCCL_P2P_LEVEL={level}" if level.upper() in ("LOC", "0") else None
