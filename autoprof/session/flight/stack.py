"""The work that a thread does, from its Python stack: phase, module, collective, and the line of the program."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import CodeType, FrameType
from typing import Final, NamedTuple

import torch

from ...base.process import replace
from ...probes import file_owner
from ...probes.collectives import COLLECTIVES

MAX_FRAMES: Final = 512
"""Frames looked at, the innermost ones."""
_TORCH: Final = os.path.dirname(torch.__file__) + os.sep
_MODULE: Final = os.path.join(_TORCH, "nn", "modules", "module.py")
_DISTRIBUTED: Final = tuple(
    os.path.join(_TORCH, *parts)
    for parts in (("distributed", ""), ("nn", "parallel", "distributed.py"), ("nn", "modules", "_functions.py"))
)
"""Files whose innermost frame is a call of the communication library."""
_PHASES: Final = (
    ("backward", os.path.join(_TORCH, "autograd", "")),
    ("optimizer", os.path.join(_TORCH, "optim", "")),
    ("data", os.path.join(_TORCH, "utils", "data", "")),
    ("forward", _MODULE),
)
"""The phase of a frame by the beginning of its file; of a nested one, the innermost counts."""
_EXCLUDED: Final = tuple(
    (word, os.path.join(_TORCH, *parts))
    for word, *parts in (
        ("compile", "_dynamo", "convert_frame.py"),
        ("compile", "_inductor", "compile_fx.py"),
        ("checkpoint", "serialization.py"),
        ("checkpoint", "distributed", "checkpoint", ""),
    )
)
"""Work of torch that takes long and belongs to no step, by the beginning of its file."""


class Activity(NamedTuple):
    """The work of a thread at one moment. ``signature`` is equal where a thread has not moved between two moments."""

    phase: str | None = None
    module: str | None = None
    call: str | None = None
    """The function of torch or of a library that the innermost line calls, if it is written in Python."""
    collective: str | None = None
    """The collective that the thread is in."""
    in_engine: bool = False
    """Whether the innermost frame is the autograd engine's: no Python runs in the backward pass."""
    excluded: str | None = None
    """The word for work that belongs to no step: ``compile``, ``checkpoint``."""
    site: str | None = None
    """The innermost line of the program: ``file:line function``."""
    stack: tuple[str, ...] = ()
    """The innermost lines first."""
    signature: tuple[tuple[CodeType, int], ...] = ()


def read_activity(frame: FrameType | None, names: Mapping[int, str]) -> Activity:
    """Return the work of the thread of this innermost frame; ``names`` has the name of each module by its id."""
    phase = module = call = collective = excluded = site = None
    lines: list[str] = []
    signature: list[tuple[CodeType, int]] = []
    in_engine, is_first = False, True
    for _ in range(MAX_FRAMES):
        if frame is None:
            break
        code = frame.f_code
        file, function = code.co_filename, code.co_name
        signature.append((code, frame.f_lasti))
        if is_first and file == replace.__file__:  # of a replaced function in C, which has no frame
            call = str(getattr(frame.f_locals.get("original"), "__name__", "")) or None
            collective = call if call in COLLECTIVES or call == "wait" else None
        owner = file_owner(file)
        if owner != "autoprof":
            if is_first:
                in_engine = file.startswith(_PHASES[0][1]) and function in ("_engine_run_backward", "backward", "grad")
            if collective is None and phase is None and site is None and file.startswith(_DISTRIBUTED):
                collective, call = function, None
            elif file.startswith(_DISTRIBUTED) and function in COLLECTIVES and site is None:
                collective = function  # the call inside of which an inner function waits
            if excluded is None:
                excluded = next((word for word, begin in _EXCLUDED if file.startswith(begin)), None)
            if phase is None:
                phase = next((word for word, begin in _PHASES if file.startswith(begin)), None)
            if module is None and function in ("_call_impl", "_wrapped_call_impl") and file == _MODULE:
                module = names.get(id(frame.f_locals.get("self")))
            if site is None and owner == "user":
                site = f"{_short(file)}:{frame.f_lineno or code.co_firstlineno} {function}"
            elif site is None and call is None and collective is None:
                call = function
            if len(lines) < 30:
                lines.append(f"{_short(file)}:{frame.f_lineno or code.co_firstlineno} {function}")
        is_first = is_first and owner == "autoprof"
        frame = frame.f_back
    if collective is not None:
        phase = phase if phase == "backward" else "comm"
    return Activity(
        phase, module, call, collective, in_engine, excluded, site, tuple(lines), tuple(signature)
    )  # fmt: skip


def _short(file: str) -> str:
    """Return the last parts of a path: below torch's folder, or the name and its folder."""
    if file.startswith(_TORCH):
        return "torch/" + file[len(_TORCH) :].replace(os.sep, "/")
    return "/".join(file.replace(os.sep, "/").rsplit("/", 2)[-2:])
