"""Collectives that have not ended, from the flight recorder that torch keeps of each process group."""

from __future__ import annotations

import json
from typing import Any

import torch
import torch.distributed as dist

from .._core.failures import contain, ignore


def pending_collectives() -> list[str]:
    """Return the collectives of all process groups that have not ended, the newest first.

    Of groups on a device torch queries events for it: this is for groups of the CPU only.
    """
    dump: Any = getattr(getattr(torch._C, "_distributed_c10d", None), "_dump_fr_trace_json", None)
    found: list[str] = []
    with contain(ignore):
        if dump is not None and dist.is_available() and dist.is_initialized():
            entries = json.loads(dump(True, False)).get("entries", [])
            active = [entry for entry in entries if not entry["retired"]]
            found = [_phrase(entry) for entry in reversed(active[-8:])]
    return found


def _phrase(entry: dict[str, Any]) -> str:
    pairs = zip(entry["input_dtypes"], entry["input_sizes"], strict=False)
    shapes = ", ".join(f"{kind}{list(size)}" for kind, size in pairs) or "nothing"
    name, number, group = entry["profiling_name"], entry["collective_seq_id"], entry["process_group"][1]
    return f"{name} of {shapes}, call {number} of {group}"
