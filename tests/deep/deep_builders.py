"""A small model and its training step, and traces of a device written by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

TARGETS: dict[str, Any] = {
    "targets": [{"match": r"blocks\.(\d)", "name": r"Block\1"}, {"match": r"blocks\.(\d)\.ff", "name": r"Block\1/FFN"}]
}


class Block(nn.Module):
    """Attention and a feed-forward part."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.ff = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.unsqueeze(1) for part in self.qkv(x).chunk(3, -1))
        x = x + nn.functional.scaled_dot_product_attention(q, k, v).squeeze(1)
        return x + self.ff(x)


class Net(nn.Module):
    """Two blocks; ``checkpointed`` runs them again in the backward."""

    def __init__(self, width: int = 16, checkpointed: bool = False) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(2))
        self.checkpointed = checkpointed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        return x


class Program:
    """A training loop, step by step."""

    def __init__(self, **options: Any) -> None:
        torch.manual_seed(0)
        self.model = Net(**options)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.inputs = torch.randn(2, 8, 16)

    def step(self) -> None:
        self.model(self.inputs).square().mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def events(path: Path) -> list[dict[str, Any]]:
    """Return the events of a trace, which must be whole JSON."""
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    return found


def ranges(path: Path) -> list[str]:
    """Return the names of the ranges of a trace, in the order of their starts."""
    found = [event for event in events(path) if event.get("cat") == "user_annotation"]
    return [event["name"] for event in sorted(found, key=lambda event: (event["ts"], -event["dur"]))]


def slice_of(cat: str, name: str, ts: float, dur: float, tid: int = 1, **args: Any) -> dict[str, Any]:
    """Return one event with a duration, in microseconds."""
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": args}


def memory(ts: float, allocated: int, change: int, device: int = 1) -> dict[str, Any]:
    """Return one event of the allocator."""
    args = {
        "Total Allocated": allocated,
        "Total Reserved": 4096,
        "Bytes": change,
        "Device Type": device,
        "Device Id": 0,
    }
    return {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1, "ts": ts, "args": args}


def write_trace(path: Path, found: list[dict[str, Any]]) -> Path:
    """Write a trace as torch does."""
    path.write_text(
        json.dumps({"schemaVersion": 1, "traceEvents": found, "traceName": "x"}, indent=1), encoding="utf-8"
    )
    return path


def device_trace(path: Path) -> Path:
    """Two layers on a device, one inside the other, their kernels launched from two threads, and copies."""
    return write_trace(path, [
        {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "ts": 0, "args": {"name": "python"}},
        slice_of("user_annotation", "ProfilerStep#7", 1000.0, 900.0),
        slice_of("user_annotation", "Block0", 1010.0, 200.0),
        slice_of("user_annotation", "Block0/FFN", 1100.0, 90.0),
        slice_of("cpu_op", "aten::scaled_dot_product_attention", 1020.0, 60.0, **{"External id": 3}),
        slice_of("cpu_op", "aten::_flash_attention_forward", 1030.0, 40.0, **{"External id": 4}),
        slice_of("cuda_runtime", "cudaLaunchKernel", 1040.0, 5.0, correlation=40),
        slice_of("kernel", "void flash_fwd_kernel<64>", 1300.0, 70.0, 7, correlation=40, **{"External id": 4}),
        slice_of("cpu_op", "aten::addmm", 1110.0, 30.0, **{"External id": 5}),
        slice_of("cuda_driver", "cuLaunchKernel", 1120.0, 5.0, correlation=41),
        slice_of("kernel", "sm90_gemm", 1370.0, 30.0, 7, correlation=41, **{"External id": 5}),
        slice_of("user_annotation", "Block0 [backward]", 1500.0, 100.0, 2),
        slice_of("cpu_op", "aten::mm", 1510.0, 20.0, 2, **{"External id": 6}),
        slice_of("kernel", "sm90_gemm", 1600.0, 50.0, 7, correlation=99, **{"External id": 6}),
        slice_of("gpu_memcpy", "Memcpy HtoD", 1650.0, 10.0, 7, correlation=100),
        memory(1005.0, 1024, 1024), memory(1060.0, 3072, 2048), memory(1150.0, 2560, -512), memory(1550.0, 512, -2048),
        memory(1150.0, 99, 99, device=0),
    ])  # fmt: skip
