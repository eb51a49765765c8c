"""Conditions of the process and the machine that distort times, or that a profiler disturbs."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn
from torch.nn.modules import module as torch_modules

from .result import Result, ok, warning

_ON: Final = ("1", "true", "yes", "on")
_CPUS: Final = Path("/sys/devices/system/cpu")
_TOOLS: Final = ("NSYS_", "NSIGHT_", "QUADD_")
"""Prefixes of the variables that Nsight sets in the programs it starts."""
_INJECTED: Final = ("CUDA_INJECTION64_PATH", "CUDA_INJECTION32_PATH", "NVTX_INJECTION64_PATH", "NVTX_INJECTION32_PATH")
_FULL_HOOKS: Final = ("_backward_hooks", "_backward_pre_hooks")
_FORWARD_HOOKS: Final = ("_forward_hooks", "_forward_pre_hooks")
LOAD: Final = 1.0
"""Waiting processes per processor above which a step is likely to be interrupted."""


def check_hazards(environment: Mapping[str, str], model: nn.Module | None = None) -> list[Result]:
    """Run every check of this file; all checks without a finding share one result."""
    found = [
        check_connections(environment),
        check_cuda_tools(environment),
        check_blocking(environment),
        check_allocator(environment),
        check_torch_profiler(environment),
        check_anomaly_mode(),
        check_tracing(),
        check_processors(),
        check_load(),
        *([] if model is None else [check_other_hooks(model)]),
    ]
    hazards = [result for result in found if result is not None]
    return hazards or [ok("hazards", f"none of {len(found)} known hazards found")]


def check_connections(environment: Mapping[str, str]) -> Result | None:
    """Warn of a single hardware queue: timed events on the communication stream wait for the compute stream."""
    if environment.get("CUDA_DEVICE_MAX_CONNECTIONS", "").strip() != "1":
        return None
    return warning(
        "connections",
        "CUDA_DEVICE_MAX_CONNECTIONS=1: timed events on the communication stream serialise NCCL with the computation "
        "(pytorch#143890)",
        "unset it for profiled runs, or time no module that communicates",
    )


def check_cuda_tools(environment: Mapping[str, str]) -> Result | None:
    """Warn of another CUPTI tool: it adds its cost to every kernel, and only one tool may collect at a time."""
    names = sorted(name for name in environment if name in _INJECTED or name.startswith(_TOOLS))
    if not names:
        return None
    return warning(
        "cuda-tools",
        f"a CUDA tool is attached ({', '.join(names)}): its own cost is in every time",
        "profile with one tool at a time",
        variables=names,
    )


def check_blocking(environment: Mapping[str, str]) -> Result | None:
    """Warn of blocking launches: they remove the overlap of host and device."""
    names = ("CUDA_LAUNCH_BLOCKING", "HIP_LAUNCH_BLOCKING", "AMD_SERIALIZE_KERNEL")
    found = [f"{name}={environment[name]}" for name in names if environment.get(name, "0").strip() not in ("", "0")]
    if not found:
        return None
    return warning("blocking", f"{', '.join(found)}: every launch waits for its kernel", "unset it for profiled runs")


def check_allocator(environment: Mapping[str, str]) -> Result | None:
    """Warn of a disabled caching allocator: each allocation then waits for the device."""
    names = [
        name for name in ("PYTORCH_NO_CUDA_MEMORY_CACHING", "PYTORCH_NO_HIP_MEMORY_CACHING") if name in environment
    ]
    if not names:
        return None
    return warning(
        "allocator",
        f"{', '.join(names)} is set: each allocation waits for the device, and memory readings stay at zero",
        "unset it for profiled runs",
    )


def check_torch_profiler(environment: Mapping[str, str]) -> Result | None:
    """Warn of ``torch.profiler``: its recording of every operator is inside the modules' times."""
    daemon = environment.get("KINETO_USE_DAEMON", "").strip().lower() in _ON
    if torch._C._autograd._profiler_enabled():
        return warning("torch-profiler", "torch.profiler is recording: its cost is in every time", "stop it first")
    if daemon:
        return warning(
            "torch-profiler",
            "KINETO_USE_DAEMON is set: a trace may be started from outside at any step",
            "expect outliers in those steps",
        )
    return None


def check_anomaly_mode() -> Result | None:
    """Warn of anomaly detection: it keeps a stack trace for every node and checks every gradient."""
    if not torch.is_anomaly_enabled():
        return None
    return warning("anomaly-mode", "autograd's anomaly detection is on: it slows every module down", "switch it off")


def check_tracing() -> Result | None:
    """Warn of debuggers, coverage tools and Python profilers: they run at each line or call, in our hooks too."""
    found = [
        name
        for name, active in (("sys.settrace", sys.gettrace()), ("sys.setprofile", sys.getprofile()))
        if active is not None
    ]
    monitoring: Any = getattr(sys, "monitoring", None)
    tools = [monitoring.get_tool(i) for i in range(6)] if monitoring is not None else []
    found += [f"sys.monitoring ({tool})" for tool in tools if tool is not None]
    if not found:
        return None
    return warning(
        "tracing",
        f"{', '.join(found)} is in use (a debugger, coverage, a Python profiler): times and overhead are inflated",
        "run without it",
    )


def check_processors(folder: Path = _CPUS) -> Result | None:
    """Warn of fewer processors than threads, and of a frequency governor that keeps them slow."""
    threads = torch.get_num_threads()
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or threads
    if threads > available:
        return warning(
            "processors",
            f"torch uses {threads} threads on {available} processors: the threads wait for each other",
            f"set OMP_NUM_THREADS={available}",
        )
    governor, driver = (_read(folder / "cpu0" / "cpufreq" / f"scaling_{name}") for name in ("governor", "driver"))
    if governor == "powersave" and driver not in (
        "intel_pstate",
        "amd-pstate-epp",
    ):  # with these drivers it means "as needed"
        return warning(
            "processors",
            "the frequency governor is powersave: processors stay slow",
            "cpupower frequency-set -g performance",
        )
    return None


def check_load() -> Result | None:
    """Warn of other processes that use the processors: they interrupt steps."""
    if not hasattr(os, "getloadavg"):
        return None
    load, count = os.getloadavg()[0], os.cpu_count() or 1
    if load <= LOAD * count:
        return None
    return warning(
        "load",
        f"{load:.1f} processes want {count} processors (mean of the last minute): times below are noisy",
        "repeat on a quiet machine",
        load=load,
    )


def check_other_hooks(model: nn.Module) -> Result | None:
    """Warn of foreign hooks: full backward hooks change the graph, and all hooks run inside their module's time."""
    full, forward = _count(model, _FULL_HOOKS), _count(model, _FORWARD_HOOKS)
    everywhere = sum(len(vars(torch_modules)[f"_global{kind}"]) for kind in (*_FULL_HOOKS, *_FORWARD_HOOKS))
    if full:
        names = ", ".join([*full][:5]) + (", …" if len(full) > 5 else "")
        return warning(
            "other-hooks",
            f"{sum(full.values())} backward hooks of others on the model ({names}): they insert autograd functions, "
            "which break some models (pytorch#61519)",
            "remove them if gradients look wrong",
            full=dict(full),
            forward=dict(forward),
        )
    if everywhere:
        return warning(
            "other-hooks",
            f"{everywhere} hooks of others on every module of the process: their time is in every span",
            "remove them for profiled runs",
        )
    return None


def _count(model: nn.Module, kinds: tuple[str, ...]) -> Counter[str]:
    found = Counter(
        {name: sum(len(vars(one).get(kind) or ()) for kind in kinds) for name, one in model.named_modules()}
    )
    return +found


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
