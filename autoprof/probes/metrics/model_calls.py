"""The hooks that record the shapes of the calls of a model, or of its parts; no other module gets one."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import replace
from itertools import islice, repeat
from typing import Any, Final, NamedTuple
from weakref import ref

import torch
from torch import Tensor, nn

from ...base.allowance import SAMPLED_CALLS, Allowance
from ...base.process.replace import skip_frames
from ...capture.hooks.backward import BackwardPasses
from ...capture.hooks.call_sites import CallEntry
from ...capture.hooks.entry_probe import EntryProbe
from ...capture.marks.codes import ENTER, INDEX_MASK, KIND_BITS, KIND_MASK, LEAVE
from ...capture.marks.mark_batch import MarkBatch
from ...capture.recorder import Recorder
from .flops import ModelCall, describe

MAX_SHAPES: Final = 32
"""A run with more different shapes gets no figure instead of a growing table."""
MAX_PARTS: Final = 16
"""Modules whose calls are recorded in place of the model's, and their calls in the first step."""
MAX_CALLS: Final = 64
"""Calls in a step from which on none is recorded where there are several parts: each takes some microseconds."""
MAX_SEARCHED: Final = 64
"""Steps with different marks that are searched for calls outside of the parts."""
DEPTH: Final = 4

_compiling = torch.compiler.is_dynamo_compiling
_task = torch._C._current_graph_task_id
_any_autocast = torch._C._is_any_autocast_enabled


class StepCalls(NamedTuple):
    """The calls of the model in one step: the numbers of their shapes, in order."""

    shapes: tuple[int, ...]
    outside: bool
    """Whether modules of the model were called outside of any call of the model itself."""
    passes: int | None
    """The number of backward passes through modules; None where no hook shows which passes reach them."""
    differentiable: int = 0
    """Those of them that recorded a graph of their own."""
    elements: int = 0
    """Elements of the tensors that the calls were given."""
    is_unknown: bool = False
    """Whether calls were not noted yet: those of the step that has shown the parts."""


def callable_parts(model: nn.Module) -> dict[str, nn.Module]:
    """Return the modules by whose calls the work of a step is counted, by fqn: the model itself, as a rule.

    Of one without a forward of its own they are the outermost modules in it that have one: the generator and the
    discriminator of a GAN, which a program keeps in a container or trains as two models. None of more than
    ``MAX_PARTS``.
    """
    found, waiting, seen = dict[str, nn.Module](), [("", model)], set[int]()
    while waiting:
        fqn, module = waiting.pop(0)
        if id(module) in seen:  # it is in several containers
            continue
        seen.add(id(module))
        if _is_callable(module):
            found[fqn] = module
        else:
            waiting += [(f"{fqn}.{name}" if fqn else name, child) for name, child in module.named_children()]
    return found if len(found) <= MAX_PARTS else {}


def _is_callable(module: nn.Module) -> bool:
    return getattr(module.forward, "__func__", None) is not nn.Module.forward


class _PartProbe(EntryProbe):
    """The entry of one of the model's parts."""

    def __init__(self, root: RootProbe, part: str, module: nn.Module, recorder: Recorder) -> None:
        super().__init__(recorder, module)
        self._root = root
        self._part = part
        parameters = [*module.parameters()]
        self._ends = tuple(map(ref, (parameters[:1] + parameters[1:][-1:])))
        """The first and the last parameter: whether they are frozen tells whether the module is."""
        self._entries = [CallEntry(self, _PartProbe.enter, None)]

    def enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if _compiling() or _task() != -1:
            return None
        root, part = self._root, self._part
        root.calls += 1
        if root.calls == SAMPLED_CALLS:
            root.calls = -1  # this call is counted once more
            with root.allowance.sampled():
                return self.enter(module, args, kwargs)
        try:
            frozen = 0  # another number where the module was frozen or unfrozen
            for end in self._ends:
                parameter = end()
                frozen += parameter is not None and not parameter.requires_grad
            casts = _any_autocast() and (torch.is_autocast_enabled("cuda"), torch.is_autocast_enabled("cpu"))
            given = tuple(map(_brief, args)), _brief(kwargs) if kwargs else None
            key = part, frozen, given, module.training, torch.is_grad_enabled(), casts
            number = root.known.get(key)
            if number is None:
                with root.allowance.work():
                    number = root.add_shape(part, module, key, args, kwargs)
            root.numbers.append(number)
        except Exception:
            self.fail()


class RootProbe:
    """Record each call of the model by the shapes of its arguments, or of its ``callable_parts``.

    Where the first step calls modules of the model and not the model, as one of Lightning does whose ``training_step``
    calls ``self.net``, the outermost ones are its parts. The arguments are described once for each shape. ``allowance``
    pays for that, and for the hooks; ``passes`` counts backward passes, where they are marked.
    """

    def __init__(
        self,
        model: nn.Module,
        recorder: Recorder,
        allowance: Allowance,
        passes: BackwardPasses | None = None,
    ) -> None:
        self.recorder = recorder
        self.models: dict[str, ref[nn.Module]] = {}
        """The parts by fqn."""
        self._model = ref(model)
        self._probes: list[_PartProbe] = []
        self._attached = self._is_called = False
        """Whether calls are recorded now, and whether any was."""
        for part, module in callable_parts(model).items():
            self._add(part, module)
        self._passes = passes
        self.known: dict[Hashable, int] = {}
        """The numbers of the shapes."""
        self._describes = False
        """Whether a call of the open step had new shapes: the step is searched for calls outside of the model's."""
        self._codes = b""
        """The codes of the last step that was searched: one with others may have calls outside of the parts."""
        self._searched = set[int]()
        """The hashes of those codes."""
        self.numbers: list[int] = []
        """Numbers of the open step's calls, in order."""
        self.allowance = allowance
        self.calls = 0
        """The calls since one was measured: one in ``SAMPLED_CALLS`` is."""
        self.shapes: list[ModelCall] = []
        """The first call with each shape, by number."""
        self._elements: dict[int, int] = {}
        """Elements of the tensors of each shape, by number."""
        self._unnumbered = 0
        """Elements of the open step's calls that have no number."""

    def _add(self, part: str, module: nn.Module) -> None:
        self.models[part] = ref(module)
        self._probes.append(_PartProbe(self, part, module, self.recorder))
        if self._attached:
            self._probes[-1].attach()

    def attach(self) -> None:
        """Record calls from now on."""
        self._attached = True
        for probe in self._probes:
            probe.attach()

    def detach(self) -> None:
        """Record no more."""
        self._attached = False
        for probe in self._probes:
            probe.detach()

    def remove(self) -> None:
        """Record no more, for good."""
        for probe in self._probes:
            probe.remove()

    def add_shape(
        self, part: str, module: nn.Module, key: Hashable, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> int:
        """Return the number of the calls like this one of a part, which begins now: the first of its shape."""
        elements = _elements(key)
        if len(self.known) >= MAX_SHAPES:
            self._unnumbered += elements
            return -1
        number = self.known[key] = len(self.shapes)
        self._elements[number] = elements
        call = describe(module, args, kwargs)
        if len(self.models) > 1:  # the rows show which of the parts have a backward, those in ``eval`` mode as well
            call = replace(call, backward=call.grad)
        self.shapes.append(replace(call, part=part))
        self._describes = True
        return number

    def take(self, marks: MarkBatch) -> StepCalls:
        """Return the calls of the step with these marks, and clear them."""
        calls = tuple(self.numbers)
        is_unknown = not self._is_called and self._find_parts(calls, marks)
        if len(calls) > MAX_CALLS and len(self.models) > 1:
            self.remove()
            self.models.clear()
            calls = ()
        self.numbers.clear()
        elements, self._unnumbered = self._unnumbered, 0
        for number in calls:
            elements += self._elements.get(number, 0)
        outside = False
        if calls and (self._describes or marks.raw_codes is not self._codes) and self._searches(marks):
            outside = next(self._outermost(marks.codes), None) is not None
        self._describes = False
        counter = self._passes
        if counter is None:
            return StepCalls(calls, outside, None, 0, elements, is_unknown)
        begun, reached, differentiable = counter.begun, counter.reached, counter.differentiable
        counter.begun = counter.reached = counter.differentiable = 0
        passes = None if begun and not reached else reached  # hooks do not fire inside a compiled graph
        return StepCalls(calls, outside, passes, differentiable, elements, is_unknown)

    def _searches(self, marks: MarkBatch) -> bool:
        """Return whether a step is searched for calls outside of the parts: one with new shapes, or other marks."""
        if marks.raw_codes is not self._codes and len(self._searched) < MAX_SEARCHED:
            self._codes, known = marks.raw_codes, len(self._searched)
            self._searched.add(hash(marks.raw_codes))
            return self._describes or len(self._searched) > known
        return self._describes

    def _find_parts(self, calls: tuple[int, ...], marks: MarkBatch) -> bool:
        """Take the modules that the first step with calls has called in place of the model as its parts.

        Return whether there are any. Not one inside of another, nor one in a module that may have been called itself:
        it has no marks where rules name others.
        """
        found = [] if calls else [*islice(self._outermost(marks.codes), MAX_PARTS + 1)]
        self._is_called, model = bool(calls or found), self._model()
        names = [fqn for fqn in dict.fromkeys(found) if not any(fqn.startswith(f"{other}.") for other in found)]
        if model is None or not names or len(found) > MAX_PARTS:  # a cell that a loop calls costs too much
            return False
        modules = dict(model.named_modules())
        around = {fqn[:at] for fqn in names for at, letter in enumerate(fqn) if letter == "."}
        around -= {label.fqn or "" for label in self.recorder.labels}
        if any(fqn not in modules for fqn in names) or any(_is_callable(modules[fqn]) for fqn in around):
            return False
        self.remove()  # they run inside of the model as well, where a later step calls that
        self.models.clear()
        self._probes.clear()
        for fqn in names:
            self._add(fqn, modules[fqn])
        return True

    def _outermost(self, codes: list[int]) -> Iterator[str]:
        """Yield the modules that were entered outside of the calls of the parts, and of one another."""
        labels, inside = self.recorder.labels, list[str]()
        unmarked = tuple(f"{part}." for part in self.models.keys() - {label.fqn for label in labels} if part)
        for code in codes:
            kind = code & KIND_MASK
            fqn = labels[code >> KIND_BITS & INDEX_MASK].fqn if kind in (ENTER, LEAVE) else None
            if fqn is None or fqn.startswith(unmarked):
                continue
            if kind == LEAVE:
                del inside[-1:]
                continue
            if not inside and fqn not in self.models:
                yield fqn
            inside.append(fqn)


def _brief(value: Any, depth: int = DEPTH) -> Hashable:
    """Return the properties of a value on which FLOPs depend, without the cost of a description."""
    # Values of one container that are read in every call; a longer container is represented by its length.
    most = 64
    if isinstance(value, Tensor):
        # Nested tensors of padded layout have no shape.
        return None if value.is_nested else value.shape, value.dtype, value.requires_grad
    if value is None or isinstance(value, (bool, str)):
        return value
    if depth and isinstance(value, (tuple, list, Mapping)) and len(value) > most:
        return type(value), len(value)
    if depth and isinstance(value, (tuple, list)):
        return tuple(map(_brief, value, repeat(depth - 1)))
    if depth and isinstance(value, Mapping):
        return tuple([(str(name), _brief(item, depth - 1)) for name, item in value.items()])
    if depth and hasattr(type(value), "__dataclass_fields__"):
        return tuple([_brief(getattr(value, name, None), depth - 1) for name in type(value).__dataclass_fields__])
    return id(type(value))


def _elements(brief: Hashable) -> int:
    """Return the elements of all tensors whose shapes a value of ``_brief`` has."""
    if isinstance(brief, torch.Size):
        return brief.numel()
    return sum(map(_elements, brief)) if isinstance(brief, tuple) else 0


skip_frames(_PartProbe.enter, callees=True)  # dynamo would compile it beside the graph of a compiled model
