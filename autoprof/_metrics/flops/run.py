"""Make one call of the model on fake tensors, forward and backward, and count the work in it.

Nothing of the user's is touched: the modules are copies, the tensors are fake, the state of every random generator is
put back. What cannot be kept apart is the user's own Python, so it is read first (``purity``): a forward that may write
outside of the model is not run.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from inspect import unwrap
from threading import get_ident
from time import perf_counter_ns
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)

from ..._names import quoted, shorten, visible
from ..._process.signals import raised_by_handler
from .errors import Uncountable
from .faking import FakeModel, fake_copy
from .formulas import formulas
from .purity import Findings, read_model
from .specs import Ambient, Inputs, TensorSpec, rebuild
from .tally import Tally
from .work import WorkCount

REASON_LIMIT: Final = 300
"""The longest reason, in characters: torch's own messages are pages."""


@dataclass(frozen=True, slots=True)
class ModuleCall:
    """A call of a module that nothing else of the model made: the model itself, or a part that is called on its own."""

    fqn: str
    inputs: Inputs
    ambient: Ambient = field(default_factory=Ambient)
    backward: bool = True
    """Whether a backward pass through it was seen."""


def count_call(model: nn.Module, call: ModuleCall, *, trust: bool = False) -> WorkCount:
    """Count the work of one call. Never raises; what cannot be counted is the reason in the result.

    With ``trust``, also of a model whose code may write outside of the model: its owner says that it does not.

    For the thread that trains, between two steps: it takes the time of some thousand operators on the host (0.15 ms
    each where it was measured), none on the device. ``count_ns`` says what it took.
    """
    started = perf_counter_ns()
    mode = _fake_mode()
    tally = Tally(mode)
    read = read_model(model.modules())
    if read.reason is not None and not trust:
        return WorkCount(reason=shorten(visible(read.reason), REASON_LIMIT), count_ns=perf_counter_ns() - started)
    try:
        with _caches_put_back(read), _quiet(read.loggers):
            notes = _count(model, call, mode, tally)  # a frame of its own: when it ends, so does the copy
        reason = _spoiled(tally)
    except BaseException as error:  # a forward may end the process when it is time to
        if raised_by_handler(error):
            raise
        notes, reason = (), _reason(error, tally)
    tally.failure = None  # its traceback holds tensors; a checkpoint ends a recompute by an exception, too
    reason = tally.left_behind() or reason
    rows = {} if reason else dict(tally.rows)
    attention = {} if reason else dict(tally.attention)
    return WorkCount(rows, attention, dict(tally.uncounted), reason, notes, perf_counter_ns() - started)


def _count(model: nn.Module, call: ModuleCall, mode: FakeTensorMode, tally: Tally) -> tuple[str, ...]:
    if _capturing():
        raise Uncountable("a CUDA graph is being captured")
    with torch.inference_mode(False), torch.enable_grad(), _random_put_back(model):
        tally.formulas = formulas()
        fakes = fake_copy(model, mode)
        _run(fakes, call, mode, tally)
    return fakes.notes


def _fake_mode() -> FakeTensorMode:
    mode = FakeTensorMode(allow_non_fake_inputs=False)
    # A kernel that asks for the address of a fake tensor gets an error. By default it gets null, and the kernel that
    # is launched on it takes the process's device with it.
    mode._allow_unsafe_data_ptr_access = False
    return mode


def _capturing() -> bool:
    begun: bool = torch.cuda.is_available() and torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return begun and torch.cuda.is_current_stream_capturing()


@contextmanager
def _random_put_back(model: nn.Module) -> Iterator[None]:
    """Put back every generator that a forward may draw from: dropout draws nothing here, but Python code may."""
    places = {tensor.device for tensor in (*model.parameters(), *model.buffers())}
    kinds = {place.type for place in places} - {"cpu", "meta"}
    python, arrays = random.getstate(), np.random.get_state()
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(devices=()))
        for kind in kinds:
            devices = [place.index or 0 for place in places if place.type == kind]
            stack.enter_context(torch.random.fork_rng(devices, device_type=kind))
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(arrays)


@contextmanager
def _caches_put_back(read: Findings) -> Iterator[None]:
    """Empty the caches of ``functools`` that took something up: it is fake. One that had all already stays filled."""
    before = [cache.cache_info().misses for cache in read.caches]
    try:
        yield
    finally:
        for cache, misses in zip(read.caches, before, strict=True):
            if cache.cache_info().misses != misses:
                cache.cache_clear()


@contextmanager
def _quiet(of_model: Sequence[logging.Logger]) -> Iterator[None]:
    """Keep quiet what this thread logs meanwhile: torch, a traceback of what is the reason in the result; the model.

    Other threads go on logging.
    """
    thread = get_ident()
    loggers = [logging.getLogger("torch._subclasses.fake_tensor"), *of_model]

    def of_others(record: logging.LogRecord) -> bool:
        return record.thread != thread

    for logger in loggers:
        logger.addFilter(of_others)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(of_others)


def _run(fakes: FakeModel, call: ModuleCall, mode: FakeTensorMode, tally: Tally) -> None:
    module = fakes.modules.get(call.fqn)
    if module is None:
        raise Uncountable(f"the model has no module {quoted(call.fqn)}")
    if module.training != call.ambient.training:
        module.train(call.ambient.training)
    tally.follow(fakes.modules)

    def tensor(spec: TensorSpec) -> Tensor:
        made = torch.empty(spec.shape, dtype=spec.dtype, device=spec.device)
        return made.requires_grad_(spec.requires_grad)

    with ExitStack() as stack:
        stack.enter_context(torch.autograd.set_multithreading_enabled(False))  # modes belong to a thread
        stack.enter_context(mode)
        args, kwargs = rebuild(call.inputs, tensor)
        stack.enter_context(tally)
        with ExitStack() as around:
            around.enter_context(torch.set_grad_enabled(call.ambient.grad))
            for device, dtype, enabled in _casts(call.ambient):
                around.enter_context(torch.autocast(device, dtype=dtype, enabled=enabled, cache_enabled=False))
            output = module(*args, **kwargs)
        roots = [one for one in _tensors(output) if one.requires_grad and (one.is_floating_point() or one.is_complex())]
        if call.backward and roots:
            with tally.backward():
                backward = unwrap(torch.autograd.backward)  # a session's wrapper would take it for one of the step's
                backward(roots, [torch.ones_like(root) for root in roots])


def _casts(ambient: Ambient) -> list[tuple[str, torch.dtype | None, bool]]:
    wanted: list[tuple[str, torch.dtype | None, bool]] = [(device, dtype, True) for device, dtype in ambient.autocast]
    named = {device for device, _, _ in wanted}
    return wanted + [
        (device, None, False)
        for device in ("cpu", "cuda")
        if device not in named and torch.is_autocast_enabled(device)  # the caller's own must not reach the copy
    ]


def _tensors(value: Any) -> Iterator[Tensor]:
    from torch.utils._pytree import tree_leaves

    for leaf in tree_leaves(value):
        if isinstance(leaf, Tensor):
            yield leaf
        elif hasattr(type(leaf), "__dataclass_fields__"):
            yield from _tensors([getattr(leaf, name, None) for name in type(leaf).__dataclass_fields__])


def _spoiled(tally: Tally) -> str | None:
    if not tally.uncounted:
        return None
    named = ", ".join(f"{name} ({calls} times)" for name, calls in tally.uncounted.most_common())
    return shorten(f"no formula for {named}", REASON_LIMIT)


def _reason(error: BaseException, tally: Tally) -> str:
    if isinstance(error, DataDependentOutputException):
        said = f"its work depends on values: {_operator(error)}"
    elif isinstance(error, DynamicOutputShapeException):
        said = f"a shape depends on values: {_operator(error)}"
    elif isinstance(error, (UnsupportedOperatorException, UnsupportedFakeTensorException)):
        said = f"{_operator(error)} cannot run on fake tensors"
    elif isinstance(error, Uncountable):
        said = str(error)
    else:
        said = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
    where = tally.failure[1] if tally.failure is not None and tally.failure[0] is error else ""
    return shorten(visible(f"{said}, in {quoted(where)}" if where else said), REASON_LIMIT)


def _operator(error: BaseException) -> str:
    func = getattr(error, "func", None) or getattr(error, "reason", None) or error
    return str(getattr(func, "_overloadpacket", func))
