"""Count the FLOPs of a model: run one call on fake tensors, forward and backward, once for each new shape.

Nothing of the user's changes: the modules are copies, the tensors are fake, every random generator is restored. The
user's own Python code cannot be copied, so its source is read first (``side_effects``): a forward that may write
outside of the model is not run.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from inspect import unwrap
from threading import get_ident
from time import thread_time_ns
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

from ..._capture.torch_compat import unseen_by_modes
from ..._names import quoted, shorten, visible
from ..._process.signals import raised_by_handler
from ...devices import ask_devices
from .call_inputs import Ambient, Inputs, TensorSpec, autocast_types, rebuild
from .fake_model import FakeModel, fake_copy
from .flop_count import FlopCount, Uncountable, add_up
from .formulas import formulas
from .operator_counter import OperatorCounter
from .side_effects import SideEffects, find_side_effects

COUNTS: Final = 32
"""Calls that are counted in a run, at most: a run in which every batch has another shape is not counted."""
REASON_LIMIT: Final = 300
"""The longest reason, in characters; torch's own messages fill pages."""


@dataclass(frozen=True, slots=True)
class OutermostCall:
    """An outermost call: of the model itself, or of a part that is called directly."""

    fqn: str
    inputs: Inputs
    ambient: Ambient = field(default_factory=Ambient)
    backward: bool = True
    """Whether the step had a backward pass through it."""
    passes: int = 1
    """The backward passes through it: one for each of several losses of the same forward."""


def count_call(model: nn.Module, call: OutermostCall, *, trust: bool = False) -> FlopCount:
    """Count the FLOPs of one call. Never raises; a call that is not countable gives a result with a reason.

    ``trust`` skips the search for side effects: the model's owner has declared that it has none.

    Call it on the training thread, between two steps. It takes the time of some thousand operators on the host (0.15 ms
    each, measured), none on the device; ``count_ns`` is that time.
    """
    started = thread_time_ns()
    mode = _fake_mode()
    counter = OperatorCounter(mode)
    effects = find_side_effects(model.modules())
    if effects.reason is not None and not trust:
        why = shorten(visible(effects.reason), REASON_LIMIT)
        return FlopCount(reason=why, count_ns=thread_time_ns() - started)
    try:
        with _caches_restored(effects), _muted(effects.loggers):
            notes = _count(model, call, mode, counter)  # in its own frame, so that the copy ends with it
        reason = _missing_formulas(counter)
    except BaseException as error:  # a forward may raise SystemExit
        if raised_by_handler(error):
            raise
        notes, reason = (), _reason(error, counter)
    counter.failure = None  # its traceback holds tensors; a checkpoint also ends a recompute by an exception
    reason = counter.find_leak() or reason
    rows = {} if reason else dict(counter.rows)
    attention = {} if reason else dict(counter.attention)
    return FlopCount(rows, attention, dict(counter.uncounted), reason, notes, thread_time_ns() - started)


def _count(model: nn.Module, call: OutermostCall, mode: FakeTensorMode, counter: OperatorCounter) -> tuple[str, ...]:
    if _capturing():
        raise Uncountable("a CUDA graph is being captured")
    with unseen_by_modes(), torch.inference_mode(False), torch.enable_grad(), _random_restored(model):
        counter.formulas = formulas()
        fakes = fake_copy(model, mode)
        _run(fakes, call, mode, counter)
    return fakes.notes


def _fake_mode() -> FakeTensorMode:
    mode = FakeTensorMode(allow_non_fake_inputs=False)
    # A kernel that asks for the address of a fake tensor gets an error. By default it gets null, and the kernel that
    # is launched on it takes the process's device with it.
    mode._allow_unsafe_data_ptr_access = False
    return mode


def _capturing() -> bool:
    return any(capturing for _, capturing in ask_devices(lambda device: device.capturing()))


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
def _caches_restored(effects: SideEffects) -> Iterator[None]:
    """Clear the ``functools`` caches with new entries, which hold fake tensors; caches without new entries stay."""
    before = [cache.cache_info().misses for cache in effects.caches]
    try:
        yield
    finally:
        for cache, misses in zip(effects.caches, before, strict=True):
            if cache.cache_info().misses != misses:
                cache.cache_clear()


@contextmanager
def _muted(of_model: Sequence[logging.Logger]) -> Iterator[None]:
    """Mute the log messages of this thread: the model's, and torch's tracebacks, whose content is in the reason.

    Other threads continue to log.
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


def _run(fakes: FakeModel, call: OutermostCall, mode: FakeTensorMode, counter: OperatorCounter) -> None:
    module = fakes.modules.get(call.fqn)
    if module is None:
        raise Uncountable(f"the model has no module {quoted(call.fqn)}")
    if module.training != call.ambient.training:
        module.train(call.ambient.training)
    counter.follow_modules(fakes.modules)

    def tensor(spec: TensorSpec) -> Tensor:
        made = torch.empty(spec.shape, dtype=spec.dtype, device=spec.device)
        return made.requires_grad_(spec.requires_grad)

    with ExitStack() as stack:
        stack.enter_context(torch.autograd.set_multithreading_enabled(False))  # dispatch modes are per thread
        stack.enter_context(mode)
        args, kwargs = rebuild(call.inputs, tensor)
        stack.enter_context(counter)
        with ExitStack() as around:
            around.enter_context(torch.set_grad_enabled(call.ambient.grad))
            for device, dtype, enabled in _casts(call.ambient):
                around.enter_context(torch.autocast(device, dtype=dtype, enabled=enabled, cache_enabled=False))
            output = module(*args, **kwargs)
        roots = [one for one in _tensors(output) if one.requires_grad and (one.is_floating_point() or one.is_complex())]
        if call.backward and roots:
            with counter.backward():
                backward = unwrap(torch.autograd.backward)  # without a session's wrapper, which would mark it
                # As many losses as outputs: one of each. Else every loss is taken to depend on all outputs.
                passes = [[root] for root in roots] if call.passes == len(roots) else [roots] * call.passes
                for number, starts in enumerate(passes, start=1):
                    ones = [torch.ones_like(root) for root in starts]
                    backward(starts, ones, retain_graph=number < len(passes))


def _casts(ambient: Ambient) -> list[tuple[str, torch.dtype | None, bool]]:
    wanted: list[tuple[str, torch.dtype | None, bool]] = [(device, dtype, True) for device, dtype in ambient.autocast]
    named = {device for device, _, _ in wanted}
    return wanted + [
        (device, None, False)
        for device in autocast_types()
        if device not in named  # the caller's autocast must not affect the copy
    ]


def _tensors(value: Any) -> Iterator[Tensor]:
    from torch.utils._pytree import tree_leaves

    for leaf in tree_leaves(value):
        if isinstance(leaf, Tensor):
            yield leaf
        elif hasattr(type(leaf), "__dataclass_fields__"):
            yield from _tensors([getattr(leaf, name, None) for name in type(leaf).__dataclass_fields__])


def _missing_formulas(counter: OperatorCounter) -> str | None:
    if not counter.uncounted:
        return None
    named = ", ".join(f"{name} ({calls} times)" for name, calls in counter.uncounted.most_common())
    return shorten(f"no formula for {named}", REASON_LIMIT)


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


class FlopCounter:
    """Count the calls of one model, once for each combination of shapes, modes, autocast and trained parameters."""

    def __init__(self, model: nn.Module, limit: int = COUNTS, *, trust: bool = False) -> None:
        self._model = model
        self._limit = limit
        self._trust = trust
        self._known: dict[Hashable, FlopCount] = {}
        self._training: Hashable = None
        self.spent_ns = 0
        """Time of all counts so far."""

    def count(self, calls: Iterable[tuple[OutermostCall, int]]) -> FlopCount:
        """Return the count of a step's calls, each with its number of times; count the new ones.

        Call it on the training thread, between two steps, for calls with new shapes or after parameters were frozen or
        unfrozen: it reads every parameter.
        """
        training = tuple(parameter.requires_grad for parameter in self._model.parameters())
        if training != self._training:
            self._training = training
            self._known.clear()
        return add_up((self._one(call), times) for call, times in list(calls))

    def _one(self, call: OutermostCall) -> FlopCount:
        key = _key(call)
        count = self._known.get(key)
        if count is not None:
            return count
        if len(self._known) >= self._limit:
            return FlopCount(reason=f"the shapes of the inputs changed more than {self._limit} times")
        count = self._known[key] = count_call(self._model, call, trust=self._trust)
        self.spent_ns += count.count_ns
        return count


def _key(call: OutermostCall) -> Hashable:
    return call.fqn, call.inputs.key(), call.ambient, call.backward, call.passes
