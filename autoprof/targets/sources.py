"""The places of the code of modules: class, file and line."""

from __future__ import annotations

import os
from typing import Any, Final

import torch
from torch import nn

from .tree import walk

TORCH: Final = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep


def find_sources(model: nn.Module, fqns: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """Return the class of each module, and the file and line of its ``forward``.

    A module of torch has the place of the module around it: its own code is not the user's to change.
    """
    nodes = {fqn: node.inner for node in walk(model) for fqn in node.fqns}
    found: dict[str, dict[str, Any]] = {}
    for fqn in fqns:
        module = nodes.get(fqn)
        if module is None:
            continue
        place, around = _place(module), fqn
        while (place is None or place[0].startswith(TORCH)) and around:
            around = around.rpartition(".")[0]
            outer = nodes.get(around)
            place = place if outer is None else _place(outer)
        kept = place if place is not None and not place[0].startswith(TORCH) else (None, None)
        found[fqn] = {"class": type(module).__qualname__, "file": kept[0], "line": kept[1]}
    return found


def _place(module: nn.Module) -> tuple[str, int] | None:
    code = getattr(getattr(type(module), "forward", None), "__code__", None)
    return None if code is None else (os.path.abspath(code.co_filename), code.co_firstlineno)
