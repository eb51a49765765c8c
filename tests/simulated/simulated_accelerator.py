"""A simulated accelerator that torch drives as it drives a GPU: three devices, ``sim:0`` to ``sim:2``.

``load()`` builds ``accelerator.cpp`` once per machine and registers it as torch's PrivateUse1 backend. torch starts its
backward threads at the first backward of a process, one per device known by then, so the device is loaded before it.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import torch

SOURCE: Final = Path(__file__).with_suffix(".cpp")
LIBRARIES: Final = ("-lc10", "-ltorch_cpu")
FIRST_TORCH: Final = (2, 13)
"""The first torch whose interface the source fits."""
BUILD_LIMIT_S: Final = 300


class CannotBuildError(Exception):
    """The accelerator cannot be built here; the message says why."""


def load() -> Simulated:
    """Build the accelerator where it is not built yet, and register it; once per process.

    Raises ``CannotBuildError`` without a compiler, on another system than Linux, and for a torch that does not fit.
    """
    global _loaded
    if _loaded is None:
        _loaded = Simulated(ctypes.CDLL(str(build()), mode=ctypes.RTLD_GLOBAL))
    return _loaded


_loaded: Simulated | None = None


def build() -> Path:
    """Return the compiled library, from the cache of torch's extensions or made now (8 s of one core)."""
    if not sys.platform.startswith("linux"):
        raise CannotBuildError("needs Linux: the simulated accelerator is for no other system")
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if version < FIRST_TORCH:
        raise CannotBuildError(f"needs torch {FIRST_TORCH[0]}.{FIRST_TORCH[1]}: the simulated accelerator")
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        raise CannotBuildError("needs a C++ compiler: g++ or c++, for the simulated accelerator")
    from torch.utils import cpp_extension  # slow to import

    command = [
        *compiler.split(), "-std=c++20", "-O0", "-fPIC", "-shared", "-w",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
        *(f"-I{path}" for path in cpp_extension.include_paths()), str(SOURCE),
        *(f"-L{path}" for path in cpp_extension.library_paths()), *LIBRARIES,
    ]  # fmt: skip
    identity = [torch.__version__, torch.version.git_version, *command]
    digest = hashlib.sha256("\0".join(identity).encode() + SOURCE.read_bytes()).hexdigest()[:16]
    root = Path(os.environ.get("TORCH_EXTENSIONS_DIR") or cpp_extension.get_default_build_root())
    library = root / "autoprof_simulated" / f"{digest}.so"
    library.parent.mkdir(parents=True, exist_ok=True)
    with open(library.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the workers of a test run share one build
        if not library.exists():
            made = library.with_suffix(".part")
            done = subprocess.run([*command, "-o", str(made)], capture_output=True, text=True, timeout=BUILD_LIMIT_S)
            if done.returncode != 0:
                raise CannotBuildError(f"the simulated accelerator does not compile:\n{done.stderr[-2000:]}")
            made.rename(library)
    return library


class Simulated:
    """The accelerator: kernels of known length, a hold on its streams, its clock, and counts of its calls."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        for name in ("sim_waits", "sim_queries", "sim_kernels", "sim_unshaped", "sim_now"):
            getattr(library, name).restype = ctypes.c_int64
        library.sim_sleep.argtypes = [ctypes.c_int, ctypes.c_int64]
        library.sim_kernel_ns.argtypes = [ctypes.c_int64]
        library.sim_advance.argtypes = [ctypes.c_int64]
        library.sim_unshaped_names.restype = ctypes.c_char_p
        library.sim_start()
        torch.utils.rename_privateuse1_backend("sim")
        torch._register_device_module("sim", _device_module(library))
        torch.utils.generate_methods_for_privateuse1_backend()
        atexit.register(self.finish)

    def sleep(self, ns: float, device: int = -1) -> None:
        """Launch a kernel of exactly this length on the current stream of a device (-1: the current one)."""
        self._library.sim_sleep(device, round(ns))

    @contextmanager
    def held(self, *devices: int) -> Iterator[None]:
        """Keep the current streams of devices from starting what is launched inside: it then runs without a gap."""
        for device in devices or (torch.accelerator.current_device_index(),):
            self._library.sim_hold(device)
        try:
            yield
        finally:
            self._library.sim_release()

    def release(self) -> None:
        """End a hold before its block does."""
        self._library.sim_release()

    @contextmanager
    def stopped_clock(self) -> Iterator[None]:
        """Stop the clock of host and devices: only ``advance`` and waits of the host for a device let time pass."""
        self._library.sim_stop_clock()
        try:
            yield
        finally:
            self._library.sim_start_clock()

    def advance(self, ns: float) -> None:
        """Let time pass on the stopped clock."""
        self._library.sim_advance(round(ns))

    def now_ns(self) -> int:
        """Return the time of the clock that decides whether an event has passed."""
        return int(self._library.sim_now())

    def set_kernel_ns(self, ns: int) -> None:
        """Set the length of every operator's kernel; 0 takes the time that the CPU kernel took."""
        self._library.sim_kernel_ns(ns)

    @property
    def waits(self) -> int:
        """How often the host has waited for a device."""
        return int(self._library.sim_waits())

    @property
    def queries(self) -> int:
        """How often an event or stream was queried."""
        return int(self._library.sim_queries())

    @property
    def kernels(self) -> int:
        """How many kernels were launched."""
        return int(self._library.sim_kernels())

    @property
    def unshaped(self) -> set[str]:
        """The operators that had to wait, because the shape of their results was not known before they ran."""
        return set(self._library.sim_unshaped_names().decode().split())

    def finish(self) -> None:
        """Wait for all devices, as a user would."""
        for device in range(self._library.sim_device_count()):
            torch.accelerator.synchronize(device)


def _device_module(library: ctypes.CDLL) -> types.ModuleType:
    """Return ``torch.sim``: what torch asks of the module of a device."""
    module: Any = types.ModuleType("torch.sim")
    module.is_available = lambda: True
    module.is_initialized = lambda: True
    module._is_in_bad_fork = lambda: False
    module._lazy_init = lambda: None
    module.device_count = lambda: library.sim_device_count()
    module.current_device = lambda: library.sim_current_device()
    module.set_device = lambda device: library.sim_set_device(torch.device("sim", device).index)
    module.get_amp_supported_dtype = lambda: [torch.float16, torch.bfloat16]

    def index_of(device: Any) -> int:
        place = torch.device("sim", device) if isinstance(device, int) else torch.device(device)
        return int(module.current_device()) if place.index is None else place.index

    module.manual_seed = module.manual_seed_all = lambda seed: library.sim_seed(ctypes.c_int64(seed))
    module.get_rng_state = lambda device="sim": torch.ops.sim.random_state(index_of(device))
    module.set_rng_state = lambda state, device="sim": torch.ops.sim.set_random_state(index_of(device), state)
    module.synchronize = lambda device="sim": torch.accelerator.synchronize(index_of(device))
    return module
