"""The subject of an examination: a model, a batch and a loss, from the user's factory or built in."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ...errors import AutoprofError, nearest

NO_BATCH: Final = object()
"""The value of a missing batch; None is a valid batch."""

RETURNS: Final = "a model, (model, batch) or (model, batch, loss)"


@dataclass(frozen=True, slots=True)
class Subject:
    """A model with the batch and the loss of one training step.

    A tuple as ``batch`` is the positional arguments of the model, a mapping its keyword arguments, anything else its
    only argument. ``loss`` takes the output, or the output and the batch, and returns a tensor of one element.
    """

    name: str
    model: nn.Module
    batch: Any = NO_BATCH
    loss: Callable[..., Any] | None = None

    @property
    def runnable(self) -> bool:
        """Whether there is a batch to call the model with."""
        return self.batch is not NO_BATCH

    def call(self, model: nn.Module, batch: Any) -> Any:
        """Call a model as this one is called."""
        if isinstance(batch, tuple):
            return model(*batch)
        return model(**batch) if isinstance(batch, Mapping) else model(batch)

    def loss_of(self, output: Any, batch: Any) -> Tensor | None:
        """Return the tensor for ``backward``, or None if no output requires a gradient.

        Without a loss it is the output's own ``loss`` if it has one, else the mean of squares of all its tensors.
        """
        if self.loss is not None:
            alone = _takes(self.loss.forward if isinstance(self.loss, nn.Module) else self.loss, output)
            value = self.loss(output) if alone else self.loss(output, batch)
        else:
            value = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
            if value is None:
                tensors = [leaf for _, leaf in leaves(output) if isinstance(leaf, Tensor)]
                squares = [t.abs().float().square().mean() for t in tensors if t.requires_grad and t.numel()]
                value = torch.stack([square.cpu() for square in squares]).sum() if squares else None
        if value is not None and (not isinstance(value, Tensor) or value.numel() != 1):
            shown = f"a tensor of {value.numel()} elements" if isinstance(value, Tensor) else f"a {_kind(value)}"
            raise AutoprofError(f"{self.name}: the loss is {shown}; allowed: a tensor of one element")
        return value if value is not None and value.requires_grad else None


def load_subject(model: str, *, option: str = "--model") -> Subject:
    """Call the user's factory at ``package.module:name`` or ``file.py:name``.

    Modules are found as ``python -m`` finds them: from the working directory, too. Raises ``AutoprofError`` where it
    cannot be used; ``option`` begins its message.
    """
    made = _make(option, model)
    parts = made if isinstance(made, tuple) else (made,)
    if not isinstance(parts[0] if parts else None, nn.Module) or len(parts) > 3:
        shown = f"({', '.join(_kind(part) for part in made)})" if isinstance(made, tuple) else f"a {_kind(made)}"
        raise AutoprofError(f"{option} {model}: returns {shown}; allowed: {RETURNS}")
    batch, loss = parts[1] if len(parts) > 1 else NO_BATCH, parts[2] if len(parts) > 2 else None
    if loss is not None and not callable(loss):
        raise AutoprofError(
            f"{option} {model}: its loss is a {_kind(loss)}; allowed: something to call with the output"
        )
    return Subject(model, parts[0], batch, loss)


class _Reference(nn.Module):
    """Attention and dropout whose activations are computed again in the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(8, 16)
        self.block = nn.TransformerEncoderLayer(16, nhead=2, dim_feedforward=32, batch_first=True)
        self.head = nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(checkpoint(self.block, self.embed(x), use_reentrant=False))
        return out


def reference_subject() -> Subject:
    """Return a small model with attention, dropout and activation checkpointing."""
    return Subject("the built-in reference model", _Reference(), torch.rand(2, 4, 8))


def users_line(error: BaseException) -> str:
    """Phrase an exception of the user's code in one line: its kind, its first line, and where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = str(Path(__file__).resolve().parents[2]) + os.sep
    libraries = os.path.dirname(os.path.dirname(os.path.abspath(torch.__file__))) + os.sep
    theirs = [frame for frame in frames if not frame.filename.startswith((ours, libraries, "<"))]
    where = f" (at {theirs[-1].filename}:{theirs[-1].lineno})" if theirs else ""
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}{': ' if first else ''}{first}{where}"


def _make(option: str, path: str) -> Any:
    """Import the object at the path, and call it unless it is a model already."""
    place, _, qualified = path.rpartition(":")
    if not (place and qualified):
        allowed = "package.module:factory or path/to/file.py:factory"
        raise AutoprofError(f"{option} {path}: is not the path of a factory; allowed: {allowed}")
    is_file = place.endswith(".py")
    if is_file and not os.path.isfile(place):
        raise AutoprofError(f"{option} {path}: there is no file {place}; allowed: path/to/file.py:factory")
    here = os.path.dirname(os.path.abspath(place)) if is_file else os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        value: Any = importlib.import_module(os.path.basename(place)[:-3] if is_file else place)
    except (Exception, SystemExit) as error:  # importing runs the user's code, which may raise anything
        raise AutoprofError(f"{option} {path}: cannot import {place!r}: {users_line(error)}") from error
    for part in qualified.split("."):
        if not hasattr(value, part):
            names = [name for name in dir(value) if not name.startswith("_")]
            raise AutoprofError(f"{option} {path}: there is no {part!r}; {nearest(part, names)}")
        value = getattr(value, part)
    if isinstance(value, nn.Module) or not callable(value):
        return value
    try:
        return value()
    except (Exception, SystemExit) as error:
        raise AutoprofError(f"{option} {path}: calling it without arguments failed: {users_line(error)}") from error


def leaves(value: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield every leaf of nested tuples, lists, mappings and dataclasses with the path to it: ``[0].logits``."""
    inside: dict[str, Any] | None = None
    # The depth is limited, because a container may hold itself.
    if depth < 20 and not isinstance(value, (Tensor, type)):
        if isinstance(value, Mapping):
            inside = {f"[{key!r}]": item for key, item in value.items()}
        elif isinstance(value, (tuple, list)):
            inside = {f"[{at}]": item for at, item in enumerate(value)}
        elif dataclasses.is_dataclass(value):
            inside = {f".{one.name}": getattr(value, one.name, None) for one in dataclasses.fields(value)}
    if inside is None:
        yield path, value
    for name, item in (inside or {}).items():
        yield from leaves(item, f"{path}{name}", depth + 1)


def _takes(function: Callable[..., Any], *arguments: Any) -> bool:
    try:
        inspect.signature(function).bind(*arguments)
    except (TypeError, ValueError):
        return False
    return True


def _kind(value: Any) -> str:
    return type(value).__name__
