"""Spans of copies from the host to the model's device: ``Tensor.to``, ``Tensor.cuda`` and their kind.

Only where the session reads the clock of a device; a call that copies nothing costs a look at its arguments. Other
copies (``copy_`` into a buffer on the device, ``torch.tensor(…, device=…)``) are not seen.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import MethodType
from typing import Any

import torch
from torch import Tensor

from ..base.frame import Phase
from ..base.process.replace import Attribute, CallProbe, Replacement, skip_frames
from ..capture.recorder import Recorder
from ..devices import DEVICES
from ._base import ProbeFactory
from ._spans import SpanListener

_is_overridden = torch._C._has_torch_function_unary


class TensorMethod:
    """A replaced method of ``Tensor``. It equals the original, also as a key, so that tables of overrides find it.

    It has the original's attributes, too. (A proxy of wrapt would cost a microsecond at each call.)
    """

    __slots__ = ("_call", "_method")

    def __init__(self, method: Any, call: Callable[..., Any]) -> None:
        self._method = method
        self._call = call

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else MethodType(self._call, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._method, name)

    def __eq__(self, other: object) -> bool:
        return bool(other == self._method) or (isinstance(other, TensorMethod) and other._method == self._method)

    def __hash__(self) -> int:
        return hash(self._method)

    def __repr__(self) -> str:
        return repr(self._method)

    def __reduce__(self) -> Any:
        return self._method.__reduce__()


def _is_on_host(tensor: Tensor) -> bool:
    """Return whether a tensor is on the host, without calling ``__torch_function__``, of its own or of a mode."""
    if _is_overridden(tensor):
        with torch._C.DisableTorchFunction():
            return tensor.is_cpu
    return tensor.is_cpu


def leaves_host(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether ``Tensor.to`` with these arguments copies to another device than the host."""
    target = args[0] if args else kwargs.get("device", kwargs.get("tensor"))
    if isinstance(target, torch.device):
        return target.type != "cpu"
    if isinstance(target, str):
        return target.partition(":")[0] != "cpu"
    if isinstance(target, Tensor):
        return not _is_on_host(target)
    return type(target) is int  # a device's index


def _replace(original: Any, listeners: list[Any]) -> TensorMethod:
    checks_target = original.__name__ == "to"  # the others copy to a device in any case

    def copy_to_device(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        if not listeners or not _is_on_host(self) or (checks_target and not leaves_host(args, kwargs)):
            return original(self, *args, **kwargs)
        return _copy(original, listeners, self, args, kwargs)

    skip_frames(copy_to_device)
    return TensorMethod(original, copy_to_device)


def _copy(original: Any, listeners: list[Any], tensor: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    entered = [listener for listener in listeners if listener.enter(original, args)]
    try:
        return original(tensor, *args, **kwargs)
    finally:
        for listener in reversed(entered):
            listener.leave()


for _function in (_is_on_host, leaves_host, _copy):
    skip_frames(_function)
TO = Replacement(Attribute(Tensor, "to"), _replace)


@cache
def replacements() -> tuple[Replacement, ...]:
    """Return the replacements of ``Tensor.to``, and of methods that copy to one kind of device (``Tensor.cuda``)."""
    names = dict.fromkeys(name for kind in DEVICES.parts.values() for name in kind.copy_methods)
    return TO, *(Replacement(Attribute(Tensor, name), _replace) for name in names)


class CopyProbe(CallProbe):
    """Time the training thread's copies to the device once the session reads a device's clock."""

    def __init__(self, recorder: Recorder) -> None:
        listener = SpanListener(recorder, recorder.label("To device", None, Phase.H2D))
        super().__init__([(replacement, listener) for replacement in replacements()])
        self._recorder = recorder
        self._attached = False
        recorder.on_change(self._update)

    def _update(self) -> None:
        if self._attached:  # the model may have moved to a device in the middle of a run
            self.attach()

    def attach(self) -> None:
        self._attached = True
        if self._recorder.on_device:
            super().attach()

    def detach(self) -> None:
        self._attached = False
        super().detach()

    def remove(self) -> None:
        self._attached = False
        super().remove()


PROBE = ProbeFactory(lambda context: CopyProbe(context.recorder))
