"""Spans around copies of tensors from the host to the model's device: ``Tensor.to`` and ``Tensor.cuda``.

Only where a run has another device than the host's; a call that moves nothing costs a look at its arguments. What is
copied otherwise (``copy_`` into a buffer on the device, ``torch.tensor(…, device=…)``) is not seen.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from types import MethodType
from typing import Any

import torch
from torch import Tensor

from ...frame import Phase
from ..marks import ENTER, LEAVE
from ..recorder import Recorder
from .handle import Handle
from .patch import Attribute, Patch, PatchProbe, skip_frames

_is_overridden = torch._C._has_torch_function_unary


class Method:
    """A method of ``Tensor``, wrapped. It equals the one it stands for, also as a key: tables of overrides find it.

    It has the attributes of that one, too. A proxy of wrapt's would cost a microsecond at each call.
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
        return bool(other == self._method) or (isinstance(other, Method) and other._method == self._method)

    def __hash__(self) -> int:
        return hash(self._method)

    def __repr__(self) -> str:
        return repr(self._method)

    def __reduce__(self) -> Any:
        return self._method.__reduce__()


class CopyListener:
    """Mark one session's copies."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._code = recorder.label("To device", None, Phase.H2D)

    def enter(self, function: Callable[..., Any], args: tuple[Any, ...]) -> bool:
        recorder = self._recorder
        if get_ident() != recorder.thread or torch.compiler.is_dynamo_compiling():
            return False
        recorder.mark(self._code | ENTER)
        return True

    def leave(self) -> None:
        self._recorder.mark(self._code | LEAVE)


def _is_on_host(tensor: Tensor) -> bool:
    """Tell where a tensor is, without a word to ``__torch_function__``, of its own or of a mode."""
    if _is_overridden(tensor):
        with torch._C.DisableTorchFunction():
            return tensor.is_cpu
    return tensor.is_cpu


def leaves_host(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Tell whether ``Tensor.to`` with these arguments asks for another device than the host."""
    asked = args[0] if args else kwargs.get("device", kwargs.get("tensor"))
    if isinstance(asked, torch.device):
        return asked.type != "cpu"
    if isinstance(asked, str):
        return asked.partition(":")[0] != "cpu"
    if isinstance(asked, Tensor):
        return not _is_on_host(asked)
    return type(asked) is int  # a device's index


def _to(inner: Any, listeners: list[Any]) -> Method:
    def to(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        if not listeners or not _is_on_host(self) or not leaves_host(args, kwargs):
            return inner(self, *args, **kwargs)
        return _tell(inner, listeners, self, args, kwargs)

    skip_frames(to)
    return Method(inner, to)


def _cuda(inner: Any, listeners: list[Any]) -> Method:
    def cuda(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        if not listeners or not _is_on_host(self):
            return inner(self, *args, **kwargs)
        return _tell(inner, listeners, self, args, kwargs)

    skip_frames(cuda)
    return Method(inner, cuda)


def _tell(inner: Any, listeners: list[Any], tensor: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    told = [listener for listener in listeners if listener.enter(inner, args)]
    try:
        return inner(tensor, *args, **kwargs)
    finally:
        for listener in reversed(told):
            listener.leave()


for _function in (_is_on_host, leaves_host, _tell):
    skip_frames(_function)
TO = Patch(Attribute(Tensor, "to"), _to)
CUDA = Patch(Attribute(Tensor, "cuda"), _cuda)


class CopyProbe(PatchProbe):
    """Time the training thread's copies to the device, once the session reads a device's clock."""

    def __init__(self, recorder: Recorder, handle: Handle) -> None:
        listener = CopyListener(recorder)
        super().__init__([(TO, listener), (CUDA, listener)], handle)
        self._recorder = recorder
        self._wanted = False
        recorder.on_change(self._renew)

    def _renew(self) -> None:
        if self._wanted:  # the model may have moved to a device in the middle of a run
            self.attach()

    def attach(self) -> None:
        """Be told from now on."""
        self._wanted = True
        if self._recorder.on_device:
            super().attach()

    def detach(self) -> None:
        """Be told no more."""
        self._wanted = False
        super().detach()
