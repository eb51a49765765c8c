"""What the reading of a model's code goes by: which packages keep nothing, which names write, which only read."""

from __future__ import annotations

import sys
from collections import deque
from enum import Enum
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    GetSetDescriptorType,
    MethodDescriptorType,
    MethodWrapperType,
    WrapperDescriptorType,
)
from typing import Final

import torch

FUNCTIONS: Final = 2000
"""Functions read; a model that needs more is not counted."""
HELD: Final = 64
"""Things in a container of a module's that are looked at."""
UNCALLED: Final = frozenset(
    {"__repr__", "__str__", "__del__", "__reduce__", "__getstate__", "__setstate__", "__sizeof__"}
)
"""Methods that Python does not call in a forward."""
TRUSTED: Final = (
    {"torch", "torchvision", "torchaudio", "numpy", "einops", "opt_einsum", "typing_extensions", "packaging"}
    | set(sys.stdlib_module_names)
) - {"subprocess", "socket", "shutil", "multiprocessing", "queue", "threading", "ctypes", "sqlite3", "shelve"}
"""Packages whose functions keep nothing of what they are given, those of ``WRITES`` apart."""
TRUSTED_PARTS: Final = ("transformers.utils",)
"""Parts of packages that are trusted: what collects a model's outputs for as long as its call lasts."""
WRITES: Final = frozenset(
    {
        "save", "savez", "savez_compressed", "savetxt", "tofile", "dump", "write", "writelines", "write_text",
        "write_bytes", "writerow", "system", "popen", "unlink", "makedirs", "mkdir", "put", "put_nowait", "send",
        "imsave", "savefig", "add_scalar", "add_scalars", "add_image", "add_histogram", "log_metrics", "log_dict",
    }
)  # fmt: skip
"""Names of methods and functions that write to files, pipes, queues or loggers of metrics, whatever they belong to."""
REFUSED: Final = frozenset({"print", "open", "input", "exec", "eval", "compile", "globals", "breakpoint", "__import__"})
"""Functions of the language that act outside, or whose effect cannot be read."""
READS: Final = frozenset({"get", "items", "keys", "values", "index", "count", "copy", "__len__", "__contains__"})
"""Methods of containers that change nothing."""
CHANGES: Final = frozenset({"append", "extend", "add", "update", "setdefault", "pop", "insert", "clear", "remove"})
"""Methods that change what was taken out of a container."""
READERS: Final = frozenset({"len", "sorted", "min", "max", "sum", "any", "all", "isinstance", "enumerate", "zip"})
"""Functions of the language that only read what they are given."""
CONTAINERS: Final = (list, dict, set, deque, bytearray)
CONSTANTS: Final = (
    str, bytes, int, float, complex, type(None), type(...), type(NotImplemented), slice, range, frozenset, Enum,
    torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size, torch.Tensor,
)  # fmt: skip
CONSTANT_IN: Final = frozenset({"torch", "typing", "types", "_thread", "numpy"})
"""Packages whose objects, containers and arrays apart, hold nothing of what they are given."""
OF_C: Final = (
    BuiltinFunctionType, GetSetDescriptorType, MethodDescriptorType, ClassMethodDescriptorType, WrapperDescriptorType,
    MethodWrapperType, type(torch.ops.aten), type(torch.ops.aten.mm),
)  # fmt: skip
"""What has no source: kernels and built-in functions. An operator of torch is seen when it runs."""
