"""Note which calls of a module return, in one early step, the values that an earlier call of the step has returned.

The calls of the first recorded step are counted, and those of modules with several are noted in the second one. Results
are compared, not inputs: dropout and noise are no repetition. A few operators on the module's own device take a
checksum and a sample of each result in the step; nothing in it waits for them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import islice
from threading import get_ident
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ...base.allowance import Allowance
from ...base.process.replace import never_compile, skip_frames
from ...devices import HOST_TYPES, device_of
from ..recorder import Recorder
from .call_sites import CallEntry
from .entry_probe import EntryProbe
from .tensors import tensors_of

MAX_MODULES: Final = 1024
"""Modules whose calls are counted, the first ones of a model."""
MAX_CALLS: Final = 64
"""Calls of one module that are noted."""
MAX_RESULTS: Final = 256
"""Results that are kept, of all modules, each of which takes some forty microseconds."""
MAX_TENSORS: Final = 4
"""Tensors of one result that are compared: a module returns its main result first."""
SAMPLE: Final = 256
"""Values of a tensor that are kept, beside the sum of all."""
MIN_DISTINCT: Final = 16
"""Distinct values from which on two tensors are not equal by chance: masks, gates and losses have fewer."""

_PLAIN: Final = (Tensor, nn.Parameter)
_BITS: Final = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_compiling = torch.compiler.is_dynamo_compiling
_tracing = torch._C._get_tracing_state
_modes = torch._C._len_torch_dispatch_stack
_transforms = torch._C._functorch.peek_interpreter_stack
_graph_task = torch._C._current_graph_task_id


def is_parametrization(fqn: str) -> bool:
    """Return whether a module computes a parameter, as torch's ``orthogonal`` and ``weight_norm`` do."""
    return "parametrizations" in fqn.split(".")


class RepeatedCalls(NamedTuple):
    """The calls of a module in one step whose results were noted, and those that returned the values of an earlier one.

    Both were called in one call of the recorded module around them. Else that module is called again, and is named if
    it returns the same.
    """

    calls: int
    repeated: int


class Checksum(NamedTuple):
    """The shape and type of a tensor, and one tensor of the sum of its bits and a sample of them."""

    shape: torch.Size
    dtype: torch.dtype
    bits: Tensor


class StepResults:
    """The results of the modules that are called several times, in the second recorded step, until they are compared.

    It has to be a warm-up step (``warmup`` is their number), since the comparison makes the modules around longer.
    """

    def __init__(self, allowance: Allowance, warmup: int) -> None:
        self.allowance = allowance
        """Pays for the calls that are counted and noted."""
        self.is_open, self.is_closed = False, warmup < 2
        """Whether results are noted now, and whether they have been."""
        self.repeated: dict[str, RepeatedCalls] = {}
        """The modules of which calls were repeated, by fqn."""
        self.around = 0
        """The number of the innermost call that is running; 0 outside of them."""
        self._begun = 0
        self._calls: Counter[str] = Counter()
        """The calls of each module in the first step."""
        self._taken: dict[str, list[tuple[int, list[Checksum]]]] = {}
        self._left = MAX_RESULTS
        self._on_device = False

    def close_step(self) -> None:
        """Note the results of the step after the first one."""
        if not self.is_closed:
            self.is_closed, self.is_open = self.is_open, not self.is_open

    def begin(self, fqn: str) -> int | None:
        """Note that a call begins; return the number of the call around it, and nothing in the first step."""
        if not self.is_open:
            self._calls[fqn] += 1
            return None
        around = self.around
        self._begun = self.around = self._begun + 1
        return around

    def add(self, fqn: str, around: int, given: Any, output: Any) -> None:
        """Keep the checksums of the result of a call, of a module with several in a call of the one around it.

        A result that equals the input is no repeated work: a gate of zeros closes such a block at first.
        """
        is_own = is_parametrization(fqn)  # it takes parameters alone
        if self._calls[fqn] < 2 or (not is_own and self._calls[fqn] <= self._calls_around(fqn)):
            return
        around = 0 if is_own else around
        results = self._taken.setdefault(fqn, [])
        if len(results) < MAX_CALLS and self._left and self.allowance.affords(0):
            self._left -= 1
            floating = (one for one in tensors_of(output) if one.is_floating_point() and one.numel())
            result = [_checksum(one) for one in islice(floating, MAX_TENSORS)]
            first = next((one for one in tensors_of(given) if one.is_floating_point() and one.numel()), None)
            if first is not None and result and first.shape == result[0].shape and first.dtype == result[0].dtype:
                result.append(_checksum(first))  # compared with the first one
            results.append((around, result))
            self._on_device |= any(one.bits.device.type not in HOST_TYPES for one in result)

    def _calls_around(self, fqn: str) -> int:
        """Return the calls of the innermost counted module around one, in each of which it may be called once."""
        while fqn:
            fqn = fqn.rpartition(".")[0]
            if fqn in self._calls:
                return self._calls[fqn]
        return 0

    def compare(self, *, final: bool = False) -> None:
        """Compare the results; those on a device only at the end of the run, since this waits for it."""
        if self.is_closed and (final or not self._on_device):
            taken, self._taken = self._taken, {}
            for fqn, results in taken.items():
                counts = Counter((around, tuple(map(_read, result))) for around, result in results)
                again = [(result, count - 1) for (_, result), count in counts.items() if count > 1]
                repeated = sum(count for result, count in again if _is_computed(result))
                if repeated:
                    self.repeated[fqn] = RepeatedCalls(len(results), repeated)


def _is_computed(result: tuple[tuple[torch.Size, torch.dtype, bytes], ...]) -> bool:
    """Return whether a result has many values, and differs from the input, whose checksum is the last one."""
    return any(map(_is_varied, result)) and not (len(result) > 1 and result[0] == result[-1])


def _read(checksum: Checksum) -> tuple[torch.Size, torch.dtype, bytes]:
    return checksum.shape, checksum.dtype, checksum.bits.cpu().numpy().tobytes()


def _is_varied(read: tuple[torch.Size, torch.dtype, bytes]) -> bool:
    _shape, dtype, bits = read
    return len({*np.frombuffer(bits, f"i{dtype.itemsize}")[1:].tolist()}) >= MIN_DISTINCT  # behind the sum


def _checksum(tensor: Tensor) -> Checksum:
    """Return a checksum of any change of a value, with a sample that changes with the order of the values."""
    kind = _BITS[tensor.itemsize]
    bits = tensor.detach().view(kind)
    length = 1 + sum((size - 1) * stride for size, stride in zip(bits.shape, bits.stride(), strict=True))
    step = max(length // SAMPLE, 1) | 1  # odd, or it would take the same columns of each row
    sample = bits.as_strided((-(-length // step),), (step,))
    return Checksum(tensor.shape, tensor.dtype, torch.cat((bits.sum(dtype=kind).view(1), sample)))


class ResultProbes:
    """The entries of all modules of a model in the first steps. A ``Probe``."""

    def __init__(self, recorder: Recorder, modules: Iterable[tuple[str, nn.Module]], results: StepResults) -> None:
        self._results = results
        self._probes = [ResultProbe(recorder, *one, results) for one in islice(modules, MAX_MODULES)]

    def attach(self) -> None:
        """Have calls noted, unless the step is over."""
        if self._results.is_closed:
            self.detach()
            self._probes.clear()
        for probe in self._probes:
            probe.attach()

    def detach(self) -> None:
        """Note nothing any more: the next recorded step may be no warm-up step."""
        self._results.is_closed |= self._results.is_open
        for probe in self._probes:
            probe.detach()

    remove = detach


class ResultProbe(EntryProbe):
    """The entry of a module whose results in one step are added to ``StepResults``."""

    where = "result hooks"

    def __init__(self, recorder: Recorder, fqn: str, module: nn.Module, results: StepResults) -> None:
        super().__init__(recorder, module)
        self._fqn = fqn
        self._results = results
        self._entries = [CallEntry(self, ResultProbe.begin, ResultProbe.called)]

    def begin(self, module: nn.Module, args: Any, kwargs: Any) -> int | None:
        """Return the number of the call around a call that is noted; a recomputation is not."""
        results, recorder = self._results, self.recorder
        if results.is_closed:
            self.detach()
            return None
        if _compiling() or _tracing() is not None or _graph_task() != -1:
            return None
        if recorder.suspended or get_ident() != recorder.thread:
            return None
        with results.allowance.work():
            return results.begin(self._fqn)

    def called(self, module: nn.Module, args: Any, kwargs: Any, output: Any, around: int | None) -> None:
        """Note the result of a call that did not raise."""
        if around is None:
            return
        try:
            with self._results.allowance.work():
                self._results.around = around
                is_plain = output is not None and not (_modes() or _transforms())
                if is_plain and _is_readable(output) and _is_readable((args, kwargs)):
                    self._results.add(self._fqn, around, (args, kwargs), output)
        except Exception:
            self.fail(module)


def _is_readable(output: Any) -> bool:
    """Return whether the values of a result can be read: it has plain tensors, and no graph of kernels is captured."""
    tensors = tensors_of(output)
    odd = (one.is_meta or one.is_neg() or one.is_nested or one.layout is not torch.strided for one in tensors)
    if any(type(one) not in _PLAIN for one in tensors) or any(odd):
        return False
    places = {one.device for one in tensors if one.device.type not in HOST_TYPES}
    return not any(device_of(place).capturing() for place in places)


for _function in (StepResults.add, _checksum):
    never_compile(_function)
skip_frames(ResultProbe.begin, callees=True)
skip_frames(ResultProbe.called, callees=True)  # dynamo would compile it beside the graph of a compiled model
