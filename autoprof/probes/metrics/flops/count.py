"""Count the FLOPs of a model: run one call on fake tensors, forward and backward, once for each new shape.

Nothing of the user's changes: the modules are copies, the tensors are fake, and random generators, globals and caches
are restored.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from inspect import unwrap
from threading import get_ident
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
from torch.utils._pytree import tree_leaves

from ....base.names import quoted, shorten, visible
from ....base.signals import raised_by_handler
from ....capture.torch_compat import unseen_by_modes
from ....devices import ask_devices
from .call_inputs import ModelCall, TensorSpec, autocast_types, rebuild
from .count_table import CountTable
from .fake_model import fake_copy
from .flop_count import TOO_LONG, FlopCount, Uncountable
from .formulas import formulas
from .operator_counter import OperatorCounter
from .outside_state import outside_state_restored
from .repeated_calls import repeated_calls

REASON_LIMIT: Final = 300
"""The longest reason, in characters; torch's own messages fill pages."""


def count_call(
    model: nn.Module,
    call: ModelCall,
    goes_on: Callable[[], bool] = lambda: True,
    processor_ns: Callable[[], int] = lambda: 0,
) -> FlopCount:
    """Count the FLOPs of one call. Never raises; a call that is not countable gives a result with a reason.

    Call it on the training thread, between two steps. It takes the time of some thousand operators on the host (0.15 ms
    each, measured), none on the device. Before each operator it asks whether it ``goes_on``, or stops with
    ``TOO_LONG``. By ``processor_ns`` it measures the Python between operators.
    """
    count, is_sound = count_once(model, call, goes_on, processor_ns, repeats=True)
    return count if is_sound else count_once(model, call, goes_on, processor_ns, repeats=False)[0]


def count_once(
    model: nn.Module,
    call: ModelCall,
    goes_on: Callable[[], bool] = lambda: True,
    processor_ns: Callable[[], int] = lambda: 0,
    *,
    repeats: bool,
) -> tuple[FlopCount, bool]:
    """Count the FLOPs of one call, with ``repeats`` those of calls alike once; return whether that was possible."""
    mode = FakeTensorMode(allow_non_fake_inputs=False)
    # A kernel that asks for the address of a fake tensor gets an error. By default it gets null, and the kernel that
    # is launched on it takes the process's device with it.
    mode._allow_unsafe_data_ptr_access = False
    counter = OperatorCounter(mode, goes_on, processor_ns)
    try:
        with outside_state_restored(model.modules()), _torch_muted():
            notes = _count(model, call, mode, counter, repeats=repeats)  # in its own frame: the copy ends with it
        whole = counter.whole.total()
        missing = ", ".join(f"{name} ({calls} times)" for name, calls in whole.uncounted.most_common())
        reason = shorten(f"no formula for {missing}", REASON_LIMIT) if missing else ""
    except BaseException as error:  # a forward may raise SystemExit
        if raised_by_handler(error):
            raise
        notes, reason = (), _reason(error, counter)
        whole = counter.whole.total() if counter.has_forward else CountTable()
        whole = CountTable() if whole.uncounted else whole
    counter.failure = None  # its traceback holds tensors; a checkpoint also ends a recompute by an exception
    leak = counter.find_leak()
    reason = TOO_LONG if counter.stopped else leak or reason
    is_sound = counter.stopped or not counter.repeats or (not reason and counter.are_repeats_sound)
    if reason and not counter.has_forward:
        return FlopCount(reason=reason, notes=notes), is_sound
    return FlopCount(
        dict(whole.rows), dict(whole.moved), dict(whole.operators), dict(whole.python), dict(whole.attention),
        counter.lines if call.backward and call.grad else {}, frozenset(counter.one_hot), reason=reason or None,
        notes=notes,
    ), is_sound  # fmt: skip


def _count(
    model: nn.Module, call: ModelCall, mode: FakeTensorMode, counter: OperatorCounter, *, repeats: bool
) -> tuple[str, ...]:
    if any(capturing for _, capturing in ask_devices(lambda device: device.capturing())):
        raise Uncountable("a CUDA graph is being captured")
    with ExitStack() as around:
        around.enter_context(unseen_by_modes())
        around.enter_context(torch.inference_mode(False))
        around.enter_context(torch.enable_grad())
        # The program's own switch would print where the operators of the copy were called.
        around.enter_context(torch.autograd.set_detect_anomaly(False))
        around.enter_context(_random_restored(model))
        counter.formulas = formulas()
        modules, notes = fake_copy(model, mode)
        copied = [*modules[""].parameters()]
        for parameter, is_trained in (
            zip(copied, call.trained, strict=False) if len(copied) == len(call.trained) else ()
        ):
            parameter.requires_grad_(is_trained)
        with repeated_calls(counter, modules) if repeats else nullcontext():
            _run(modules, call, mode, counter)
    return notes


@contextmanager
def _random_restored(model: nn.Module) -> Iterator[None]:
    """Restore every generator that a forward may draw from: dropout draws nothing here, but Python code may."""
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
def _torch_muted() -> Iterator[None]:
    """Mute torch's tracebacks of fake tensors on this thread: the reason has their content."""
    thread = get_ident()
    logger = logging.getLogger("torch._subclasses.fake_tensor")

    def of_others(record: logging.LogRecord) -> bool:
        return record.thread != thread

    logger.addFilter(of_others)
    try:
        yield
    finally:
        logger.removeFilter(of_others)


def _run(modules: Mapping[str, nn.Module], call: ModelCall, mode: FakeTensorMode, counter: OperatorCounter) -> None:
    module = modules[""]
    if module.training != call.training:
        module.train(call.training)
    counter.follow_modules(modules)

    def tensor(spec: TensorSpec) -> Tensor:
        made = torch.empty(spec.shape, dtype=spec.dtype, device=spec.device)
        return made.requires_grad_(spec.requires_grad)

    with ExitStack() as stack:
        stack.enter_context(torch.autograd.set_multithreading_enabled(False))  # dispatch modes are per thread
        stack.enter_context(mode)
        args, kwargs = rebuild(call, tensor)
        stack.enter_context(counter)
        with ExitStack() as around:
            around.enter_context(torch.set_grad_enabled(call.grad))
            wanted = dict(call.autocast)
            for device in {*wanted, *autocast_types()}:  # the caller's autocast must not affect the copy
                cast = torch.autocast(device, wanted.get(device), device in wanted, cache_enabled=False)
                around.enter_context(cast)
            counter.begin_python()
            output = module(*args, **kwargs)
        roots = [one for one in _tensors(output) if one.requires_grad and (one.is_floating_point() or one.is_complex())]
        if call.backward and roots:
            backward = unwrap(torch.autograd.backward)  # without a session's wrapper, which would mark it
            with counter.backward():
                backward(roots, [torch.ones_like(root) for root in roots])


def _tensors(value: Any) -> Iterator[Tensor]:
    for leaf in tree_leaves(value):
        if isinstance(leaf, Tensor):
            yield leaf
        elif hasattr(type(leaf), "__dataclass_fields__"):
            yield from _tensors([getattr(leaf, name, None) for name in type(leaf).__dataclass_fields__])


def _reason(error: BaseException, counter: OperatorCounter) -> str:
    if isinstance(error, DataDependentOutputException):
        text = f"its work depends on values: {_operator(error)}"
    elif isinstance(error, DynamicOutputShapeException):
        text = f"a shape depends on values: {_operator(error)}"
    elif isinstance(error, (UnsupportedOperatorException, UnsupportedFakeTensorException)):
        text = f"{_operator(error)} cannot run on fake tensors"
    elif isinstance(error, Uncountable):
        text = str(error)
    else:
        text = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
    where = counter.failure[1] if counter.failure is not None and counter.failure[0] is error else ""
    return shorten(visible(f"{text}, in {quoted(where)}" if where else text), REASON_LIMIT)


def _operator(error: BaseException) -> str:
    func = getattr(error, "func", None) or getattr(error, "reason", None) or error
    return str(getattr(func, "_overloadpacket", func))
